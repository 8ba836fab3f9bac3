"""`holdfast top`: a job as it is right now, in a terminal. Never imported by the sidecar."""
