"""What the other nodes' sidecars reported of their ranks, from the newest reading of the store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from holdfast_sidecar.observation import PeerRank


def parse_peers(reports: Mapping[str, str], own_node: str, attempt: int) -> dict[int, PeerRank]:
    """Ranks of the same attempt on other nodes, by rank number.

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
                peers.update((peer.rank, peer) for peer in map(_peer, report["ranks"]))
        except (ValueError, KeyError, TypeError):
            continue
    return peers


def _peer(rank: Mapping[str, Any]) -> PeerRank:
    return PeerRank(
        rank=int(rank["rank"]),
        step=int(rank["step"]),
        phase=str(rank["phase"]),
        phase_age_s=float(rank["phase_age_s"]),
        own_s=float(rank["own_s"]),
        has_ended=rank.get("ending", 0) == 1,
    )
