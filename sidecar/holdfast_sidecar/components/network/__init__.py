"""Links: Ethernet, RDMA, PCIe, TCP and round trips between nodes."""
