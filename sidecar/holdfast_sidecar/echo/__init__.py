"""Round trips between sidecars: how long a packet takes to another node and back."""
