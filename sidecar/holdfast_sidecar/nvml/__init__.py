"""What the GPU driver tells through NVML. Runs in a child process, because a call may never end."""
