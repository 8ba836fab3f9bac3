"""GPUs: what NVML says of them, which process uses which, and what is wrong."""
