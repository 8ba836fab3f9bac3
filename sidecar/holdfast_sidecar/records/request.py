"""What a person asked the leader, or a node's sidecar, for."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Request:
    """What a person asked for. kind: `checkpoint`, `stop`, `restart` (without `node`, if given),
    `pause` (for `for_s`), `resume` (or only: let `node` in again), `drain` (keep `node` outside for
    `for_s`), `return` (let it in again), `test` (put `node` to the test; its sidecar answers),
    `trace` (profile `ranks` for `steps`, within `for_s`)."""

    identifier: str
    kind: str
    by: str = ""
    at_unix_s: float = 0.0
    refused: str = ""
    """Why it came to nothing; the leader's word for whoever asked, who then removes it."""
    reason: str = ""
    for_s: float = 0.0
    node: str = ""
    is_forced: bool = False
    """Do it although it harms: test a node whose ranks run, drain one that is needed."""
    ranks: list[int] = field(default_factory=list)
    """To be traced; none: the slowest one and a healthy peer."""
    steps: int = 1
    at_step: int = 0
    """The step to trace from; 0: the next one that all ranks hear of in time."""
