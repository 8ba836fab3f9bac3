"""What a rank is doing, step by step, written where its sidecar reads it."""
