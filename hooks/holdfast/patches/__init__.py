"""What is hooked in torch, in this order. Each patch leaves out what this torch does not have.

A patch is `install(torch, recorder, guard)`; `switches` says which of them are on. Inside a graph
that torch.compile traces every hook is nothing at all: a graph break of ours would fail
`fullgraph=True`, and a compiled region is timed as a whole by what encloses it.
"""

from __future__ import annotations

from holdfast.patches import (
    backward,
    buffers,
    collector,
    communication,
    compiling,
    data,
    devices,
    gradients,
    layout,
    optimizer,
    saves,
    traces,
    transfers,
    untraced,
    workers,
)

PATCHES = (
    ("optimizer", optimizer.install),
    ("backward", backward.install),
    ("buffers", buffers.install),
    ("gradients", gradients.install),
    ("data", data.install),
    ("workers", workers.install),
    ("transfers", transfers.install),
    ("communication", communication.install),
    ("layout", layout.install),
    ("compiling", compiling.install),
    ("untraced", untraced.install),
    ("devices", devices.install),
    ("traces", traces.install),
    ("garbage-collector", collector.install),
    ("saves", saves.install),
)
