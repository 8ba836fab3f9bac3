"""XIDs: the driver's errors, from the kernel's log and from NVML."""
