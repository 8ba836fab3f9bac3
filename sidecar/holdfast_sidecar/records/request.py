"""What a person asked the leader, or a node's sidecar, for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Request:
    """What a person asked for. kind: `checkpoint`, `stop`, `restart` (without `node`, if given),
    `pause` (for `for_s`), `resume` (or only: let `node` in again), `drain` (keep `node` outside for
    `for_s`), `return` (let it in again), `test` (put `node` to the test; its sidecar answers)."""

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
