"""Checkpoints on storage: hashing, manifest, ledger, retention, and this node's part of them."""
