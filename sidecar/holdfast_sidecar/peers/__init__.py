"""Copies of snapshots on other nodes: served, pulled and fetched between sidecars."""
