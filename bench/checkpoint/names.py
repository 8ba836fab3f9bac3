"""What contestants, rows and measures are called in samples and figures."""

from __future__ import annotations

HOLDFAST = "Holdfast"
COPY = "plain copy"
DCP_THREAD = "DCP thread"
DCP_THREAD_CACHED = "DCP thread, one cached stager"
DCP_PROCESS = "DCP process"
DCP_SYNC = "DCP"
TORCH_SAVE = "torch.save"

SAVERS = (COPY, DCP_THREAD, DCP_THREAD_CACHED, DCP_PROCESS, DCP_SYNC, TORCH_SAVE)
"""Those that a loop calls; Holdfast works at its boundary."""

BLOCKED = "blocked"
IN_FLIGHT = "in-flight"
LOAD = "load"
LOST_RANK = "lost-rank"
LOST_NODE = "lost-node"

SLEEPING = "sleeping"
COMPUTING = "computing"

ASYNC = "async"
SYNC = "sync"
