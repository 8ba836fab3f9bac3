"""A node that is kept outside, and the command of the user's that is run for it."""

from __future__ import annotations

from dataclasses import dataclass, field

DONE = "done"
"""Outcome of a command that went well; any other says what went wrong."""


@dataclass(frozen=True)
class Quarantine:
    """A node that is kept outside; `part`: the machine that is meant (see decisions.quarantine)."""

    part: str
    node: str
    since_unix_s: float
    until_unix_s: float
    evidence: list[str] = field(default_factory=list)
    by: str = ""
    """Who asked for it; empty: it was blamed too often, or its hardware is ill."""
    gpu: str = ""
    """UUID of the GPU that it is kept outside for; empty: the whole machine is meant."""
    remedy: str = ""
    """A remedy.Remedy: what ends it before its time; empty: nothing but a person does."""
    boot: str = ""
    """Boot id of the machine when it was put there; another one means it was rebooted since."""
    incident: str = ""
    """For which it was put there; empty: a person did."""
    is_drained: bool = field(default=False, kw_only=True)
    """By `holdfast node drain`: it is not let in though it be needed."""


@dataclass(frozen=True)
class HookRun:
    """A command of the user's that is run because a node is kept outside, or let in again.

    event: `quarantine` or `return`. What it is about stands here, for the quarantine may be over.
    """

    part: str
    node: str
    since_unix_s: float
    event: str
    by: str
    """Candidate whose sidecar runs it; empty: there is no command for this."""
    outcome: str = ""
    """DONE, or what went wrong; empty: not over yet."""
    reason: str = ""
    gpu: str = ""
    remedy: str = ""

    @property
    def key(self) -> str:
        """By which its outcome is told."""
        return f"{self.event}:{self.part}:{self.since_unix_s:.3f}"
