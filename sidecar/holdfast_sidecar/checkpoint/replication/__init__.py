"""Copies of snapshots in the memory of other nodes."""
