"""Who began a fault, in a job that somebody else launched: the finding that says most. Pure.

Launchers of ours tell the order of exits; here there are only the sidecars' findings.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.decisions import fault_time
from holdfast_sidecar.decisions.blame import ABORTED, OF_A_PEER, VICTIM
from holdfast_sidecar.decisions.divergence import describe, judge
from holdfast_sidecar.decisions.modes import mode_on
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.reports import NodeReport

FAULTS = frozenset({Kind.CRASH, Kind.HANG, Kind.STALL, Kind.DATA_STALL})

BY_ORDER = re.compile(
    r"\bended by (SIGTERM|SIGINT)\b|\bexited with code (130|143)\b"
    r"|\b(last words|rank \d+): KeyboardInterrupt\b"
)
"""How launchers, schedulers and people end ranks: a consequence, or wanted. (130 and 143 are what
programs leave by that handle SIGINT and SIGTERM.)"""


LEAST = 0.3
"""Findings below this are about ranks that wait for another one."""


@dataclass(frozen=True)
class Accusation:
    """A finding, how sure it is that it tells who began it, and what may be done where it was."""

    finding: Finding
    sureness: float
    mode: str

    @property
    def weight(self) -> tuple[bool, float, float]:
        """What speaks for itself comes first, then what is surer, then what was first."""
        return (self.finding.acts, self.sureness, -self.finding.since_unix_s)


def accuse(nodes: Sequence[NodeReport], settings: Settings, now_unix_s: float) -> Accusation | None:
    """Who most likely began what is wrong with the ranks of these nodes; None: all is well."""
    accusations = [
        Accusation(finding, sureness_of(finding), mode_on(node, finding.kind.value))
        for node in nodes
        for finding in node.findings
        if finding.kind in FAULTS and sureness_of(finding) >= LEAST
    ]
    if accusations:
        return max(accusations, key=lambda accusation: accusation.weight)
    return _wrong_numbers(nodes, settings, now_unix_s)


def sureness_of(finding: Finding) -> float:
    """The finding's confidence, less where a death looks like another one's consequence."""
    if finding.kind is not Kind.CRASH:
        return finding.confidence
    told = " ".join(finding.evidence)
    if BY_ORDER.search(told):
        return 0.0
    is_victim = OF_A_PEER.search(told) is not None or ABORTED in told
    return min(finding.confidence, VICTIM) if is_victim else finding.confidence


def _wrong_numbers(
    nodes: Sequence[NodeReport], settings: Settings, now_unix_s: float
) -> Accusation | None:
    """Numbers that are wrong on all ranks that tell any: a job of ours would go back for them."""
    ranks = [rank for node in nodes for rank in node.ranks]
    onset = judge(ranks, settings)
    if onset is None:
        return None
    sureness = 0.6 if onset.first else 0.9
    finding = Finding(
        kind=Kind(onset.cause),
        node="",
        since_unix_s=fault_time.of_numbers(onset.step, ranks, now_unix_s),
        confidence=sureness,
        ranks=list(onset.first),
        evidence=[describe(onset)],
    )
    return Accusation(finding, sureness, mode_on(nodes[0], onset.cause))
