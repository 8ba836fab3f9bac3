"""What contestants, rows and measures are called in samples and figures."""

from __future__ import annotations

HOLDFAST = "Holdfast"
PIDFD = "pidfd"
TORCHRUN = "torchrun"
NVRX = "NVRx"

DEATH = "death"
EVERYWHERE = "everywhere"
HOT_PATH = "hot-path"
