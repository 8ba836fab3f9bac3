"""The children that ask NVML, and the sidecar's side of them."""
