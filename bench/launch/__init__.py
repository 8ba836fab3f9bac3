"""The launch benchmark: one small job under several launchers, disturbed in several ways."""
