"""Checkpoints and snapshots on this node: storage, shared memory, copies and the writer process."""
