"""What the leader decides, from a picture of the job and the time. Pure."""
