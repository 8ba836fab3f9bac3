"""The shared memory that snapshots are taken into."""
