"""A scheduler wants this node back: as its launcher says, or as its ranks were told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from holdfast.page import Flag, Word
from holdfast_sidecar.observation import Ranks
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.reports import AgentReport

SIGNAL = "SIGTERM"


def told_to_go(ranks: Ranks) -> str:
    """What all ranks here were sent that they hold; empty: nothing, or one of them alone.

    A scheduler signals every process; whoever signals a single rank means that one.
    """
    living = [history.look for history in ranks.local.values() if not history.look.is_gone]
    held = [look for look in living if look.has(Flag.HOLDS_TERMINATION)]
    told = [look for look in held if look.words[Word.TERMINATION_NS]]
    return SIGNAL if living and len(told) == len(living) else ""


def asked_of(agents: Mapping[str, str], node: str) -> str:
    """The signal that this node's launcher got, as it reports."""
    report = decode(AgentReport, agents.get(node, ""))
    return "" if report is None else report.preempted_by


def find_preemption(preempted_by: str, moment: Moment) -> Iterator[Finding]:
    """The node will be gone soon."""
    if preempted_by:
        text = f"its processes were sent {preempted_by}"
        yield Finding(Kind.PREEMPTED, moment.node, moment.now_unix_s, 0.95, evidence=[text])
