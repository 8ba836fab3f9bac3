"""The process that writes snapshots to storage as checkpoints."""
