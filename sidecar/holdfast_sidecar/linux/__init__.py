"""What the kernel tells of processes, control groups, sockets and its log; no knowledge of jobs."""
