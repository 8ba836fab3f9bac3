"""What the other nodes' sidecars reported of their ranks, from the newest reading of the store."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Collection, Mapping
from typing import Any

from holdfast_sidecar.observation import PeerRank
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.collectives import RankTrace
from holdfast_sidecar.records.reports import FINISHED, NodeReport


def parse_peers(
    reports: Mapping[str, str], own_node: str, attempt: int, stale: Collection[str] = ()
) -> dict[int, PeerRank]:
    """Ranks of the same attempt on other nodes, by rank number.

    stale: nodes of which the store has heard nothing for too long. What their ranks do now is not
    known, so they prove nothing against others; what excuses others still does.

    Reads the few fields it needs straight from JSON: every node does this at every tick for all
    others, and building whole reports would cost a hundred-node job a core's worth of that.
    """
    peers: dict[int, PeerRank] = {}
    for node, text in reports.items():
        if node == own_node:
            continue
        try:
            report = json.loads(text)
            if report["attempt"] == attempt:
                known = map(_peer, report["ranks"])
                told = map(_as_unknown, known) if node in stale else known
                peers.update((peer.rank, peer) for peer in told)
        except (ValueError, KeyError, TypeError):
            continue
    return peers


def parse_traces(
    reports: Mapping[str, str], own_node: str, attempt: int, stale: Collection[str] = ()
) -> tuple[bool, dict[int, RankTrace]]:
    """Whether another node doubts a rank of this attempt, and what its ranks told when asked.

    Reports of nodes where nothing is wrong are not even parsed. stale: as above; what those told is
    left out.
    """
    doubts, traces = False, dict[int, RankTrace]()
    for node, text in reports.items():
        if node == own_node or node in stale:
            continue
        if not ('"doubts":true' in text or '"traces":[{' in text):
            continue
        report = decode(NodeReport, text)
        if report is not None and report.attempt == attempt:
            doubts = doubts or report.doubts
            traces.update((trace.rank, trace) for trace in report.traces)
    return doubts, traces


def _as_unknown(peer: PeerRank) -> PeerRank:
    """In no phase that is known: neither waiting nor standing still."""
    return dataclasses.replace(peer, phase="", phase_age_s=0.0)


def _peer(rank: Mapping[str, Any]) -> PeerRank:
    stopped_ago_s = rank.get("stopped_ago_s")
    return PeerRank(
        rank=int(rank["rank"]),
        step=int(rank["step"]),
        phase=str(rank["phase"]),
        phase_age_s=float(rank["phase_age_s"]),
        has_ended=rank.get("ending", 0) == FINISHED
        or (not rank.get("alive", True) and rank.get("exit_code") == 0),
        is_busy=bool(rank.get("busy")),
        stopped_ago_s=math.inf if stopped_ago_s is None else float(stopped_ago_s),
    )
