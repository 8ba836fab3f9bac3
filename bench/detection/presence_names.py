"""What the rows of lost and living nodes, and what they measure, are called."""

from __future__ import annotations

NODE_LOSS = "node-loss"
HEARTBEATS = "heartbeats"

NODE = "node"
SIDECAR = "sidecar"
FROZEN_SIDECAR = "frozen sidecar"

SIMULATED = "simulated"
REAL = "real"
