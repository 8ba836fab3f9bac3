"""Traces of chosen steps: what is ordered, and what a rank's trace came to."""

from __future__ import annotations

from dataclasses import dataclass, field

DONE = frozenset({"saved", "failed", "void", "missed"})
"""States of a rank from which nothing more will come."""


@dataclass(frozen=True)
class OperatorTime:
    """What one operator took in a traced step, without what it called; a mean over the steps."""

    name: str
    self_us: float
    calls: float


@dataclass(frozen=True)
class TracedRank:
    """How far a rank is with a trace, and what it came to."""

    rank: int
    state: str = "none"
    """page.ReplyState name, lower case."""
    host: str = ""
    path: str = ""
    """Where its trace lies, on this host; empty while it does not."""
    size_bytes: int = 0
    kept_s: float = 0.0
    """So long its loop stood for it."""
    parts_us: dict[str, int] = field(default_factory=dict)
    """Part of a step -> microseconds, the mean of the traced steps."""
    operators: list[OperatorTime] = field(default_factory=list)
    """The dearest ones; only of ranks that are compared."""
    error: str = ""
    """Why there is no trace, or why its operators are not summed up."""
    is_summed_up: bool = False
    """Nothing more is to be learnt of its operators."""


@dataclass(frozen=True)
class TracedPart:
    """This node's part of a trace."""

    identifier: str
    ranks: list[TracedRank] = field(default_factory=list)


@dataclass(frozen=True)
class TraceOrder:
    """Ranks that shall trace the same steps. state: `armed`, `taken`, `void`."""

    identifier: str
    attempt: int
    epoch: int
    step: int
    """So many steps are complete when it begins."""
    steps: int
    state: str
    deadline_s: float
    """Time from arming until it is void, or what there is must do, seconds."""
    request: str
    """Whom it answers."""
    ranks: list[int] = field(default_factory=list)
    compared: list[int] = field(default_factory=list)
    """Those of them that are set side by side: the slow one first."""
    why: str = ""
    """Why these."""
    reason: str = ""
    """Why it is void."""
    tries: int = 0
    """Orders for the same request that came too late, before this one."""
    taken: list[TracedRank] = field(default_factory=list)
    """What it came to."""
