"""RDMA ports, the PCIe links of their devices, and what TCP had to send again."""
