"""Snapshots inside a rank: laid out, copied, agreed on, and read back after a restart."""
