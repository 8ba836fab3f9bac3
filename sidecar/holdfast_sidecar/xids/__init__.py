"""What the NVIDIA driver says of its GPUs' faults: XIDs read, understood, weighed."""
