"""The rows of `bench gpu-anatomy`."""

EVENTS = "events"
"""Row `events`: what one CUDA event takes the host, to record, to ask and to read."""

TRAINING = "training"
"""Row `training`: a transformer's steps with the hooks and without, by turns."""
