"""Nodes of which nothing is heard: what they said last is not what they do now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast_sidecar.records.findings import Finding, Kind

LOST, SILENT, OLD = "lost", "silent", "old"

PATIENCE_S = 2.2
"""Twice `sidecar.node_timeout_s`: the leader calls a node lost sooner, so nobody's ranks look dead
here of whom it knows better."""

GONE = (Kind.NODE_LOST, Kind.SIDECAR_LOST)


@dataclass(frozen=True)
class Silence:
    """Of one node."""

    kind: str
    """`lost` with all its ranks; `silent`: nobody there tells of them; `old`: Redis is away."""
    since_unix_s: float


@dataclass(frozen=True)
class Hearing:
    """What there is to judge by who is heard."""

    now_unix_s: float
    own: str
    """The node that listens: it needs no Redis to know of its own ranks."""
    heartbeats: Mapping[str, float]
    findings: Iterable[Finding] = ()
    store_up: bool = True
    away_since_unix_s: float | None = None
    patience_s: float = PATIENCE_S


def silences(nodes: Iterable[str], heard: Hearing) -> dict[str, Silence]:
    """Those of these nodes that are not heard."""
    gone = {one.node: one for one in heard.findings if one.kind in GONE}
    told = {node: _silence(node, heard, gone.get(node)) for node in nodes if node != heard.own}
    return {node: one for node, one in told.items() if one is not None}


def _silence(node: str, heard: Hearing, gone: Finding | None) -> Silence | None:
    at_unix_s = heard.heartbeats.get(node)
    if at_unix_s is not None and heard.now_unix_s - at_unix_s < heard.patience_s:
        return None if heard.store_up else Silence(OLD, at_unix_s)
    if gone is not None:
        since_unix_s = gone.since_unix_s if at_unix_s is None else at_unix_s
        return Silence(LOST if gone.kind is Kind.NODE_LOST else SILENT, since_unix_s)
    if not heard.store_up:
        away_unix_s = heard.away_since_unix_s
        known = heard.now_unix_s if away_unix_s is None else away_unix_s
        return Silence(OLD, known if at_unix_s is None else at_unix_s)
    return None if at_unix_s is None else Silence(SILENT, at_unix_s)
