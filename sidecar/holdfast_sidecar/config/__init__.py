"""Settings, paths, timeouts and addresses: what a process is told before it begins."""
