"""Whether a node may take part in the next attempt."""
