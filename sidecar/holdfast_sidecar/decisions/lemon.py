"""How often a node, or a GPU of it, was to blame for a failure: a score that fades with time. Pure.

Failures that a program explains count for nothing. What a node was kept outside for in full counts
no more: whoever lets it in again says that it is well.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from holdfast_sidecar.config.settings import PolicySettings
from holdfast_sidecar.decisions.hardware import OF_HARDWARE
from holdfast_sidecar.records.findings import Remedy
from holdfast_sidecar.records.plan import Incident

WITHOUT_NODE = "without_node"
"""Escalation of an incident after which the job went on without the node that is to blame."""

OF_A_NODE = frozenset({"crash", "hang", "stall", "node_lost"}) | OF_HARDWARE
"""Causes for which a machine may be to blame."""

SURE = 0.6
"""A guess among several that died alike is no evidence against a machine."""

OUT_OF_MEMORY = "OOM killer"
"""As the sidecar words it whose rank was killed for that."""

ROUNDING = 0.5
"""The limit counts failures, the score fades a little between them: it is reached as soon as the
score rounds to it."""


@dataclass(frozen=True)
class Lemon:
    """What is held against a node, or against one GPU."""

    node: str
    part: str
    """Its machine, or the UUID of the GPU."""
    score: float
    """1 for each failure that is blamed on it, halved with every `policy.blames_half_life_s`."""
    blamed: dict[str, int] = field(default_factory=dict)
    """Cause -> how often it was blamed in all, answered or not."""
    last_unix_s: float = 0.0


def find_lemons(
    incidents: Iterable[Incident], policy: PolicySettings, now_unix_s: float, of_gpus: bool = False
) -> list[Lemon]:
    """Everyone that was ever blamed, as far as incidents are kept: the worst first."""
    blamed = [i for i in _once_each(incidents) if blames_a_machine(i) and (i.gpu or not of_gpus)]
    parts = {_part(incident, of_gpus) for incident in blamed}
    lemons = [
        _lemon([i for i in blamed if _part(i, of_gpus) == part], part, policy, now_unix_s)
        for part in parts
    ]
    return sorted(lemons, key=lambda lemon: (-lemon.score, lemon.node, lemon.part))


def held_against(incident: Incident, earlier: Iterable[Incident]) -> list[Incident]:
    """The failures of this incident's machine that count, with this one; none: it is no machine's.

    What follows its ranks to another machine is theirs (the rank that always runs out of memory),
    and what a quarantine has answered does not count again.
    """
    if not blames_a_machine(incident):
        return []
    alike = [i for i in earlier if blames_a_machine(i)]
    if any(_follows_its_ranks(incident, other) for other in alike):
        return []
    own = [i for i in alike if i.culprit_part == incident.culprit_part]
    return _once_each([*_not_answered(own), incident])


def score(held: Iterable[Incident], policy: PolicySettings, now_unix_s: float) -> float:
    """One for each, halved with every half-life of its age."""
    ages = (max(0.0, now_unix_s - incident.detected_unix_s) for incident in held)
    return sum(math.pow(0.5, age / policy.blames_half_life_s) for age in ages)


def is_lemon(held: Collection[Incident], policy: PolicySettings, now_unix_s: float) -> bool:
    """Whether so much is held against it that it is kept outside."""
    return score(held, policy, now_unix_s) >= policy.blames_limit - ROUNDING


def blames_a_machine(incident: Incident) -> bool:
    """Whether a machine may be to blame, and is named surely enough."""
    return (
        bool(incident.culprit_part)
        and incident.cause in OF_A_NODE
        and incident.confidence >= SURE
        and not _is_of_program(incident)
        and not _needs_new_ranks_only(incident)
    )


def ran_out_of_memory(incident: Incident) -> bool:
    """Whether the kernel ended a rank for want of memory."""
    return any(OUT_OF_MEMORY in line for line in incident.evidence)


def _is_of_program(incident: Incident) -> bool:
    """An exception of the script, a hang that its collectives explain, memory that it used up."""
    explained = incident.cause != "crash" and bool(incident.signature)
    return incident.is_of_script or explained or ran_out_of_memory(incident)


def _needs_new_ranks_only(incident: Incident) -> bool:
    """Memory that had an error and contained it: the GPU is the cause, the node is not to blame."""
    return incident.cause in OF_HARDWARE and not incident.remedy


def _follows_its_ranks(incident: Incident, other: Incident) -> bool:
    """Ill hardware does not follow anybody."""
    return (
        incident.cause not in OF_HARDWARE
        and other.culprit_part != incident.culprit_part
        and other.cause == incident.cause
        and other.culprit_ranks == incident.culprit_ranks
    )


def _not_answered(own: Sequence[Incident]) -> list[Incident]:
    answered = max((i.detected_unix_s for i in own if _is_answered(i)), default=0.0)
    return [i for i in own if i.detected_unix_s > answered]


def _is_answered(incident: Incident) -> bool:
    """A reset or a reboot only says that this time is over: a machine that needs one again and
    again is a lemon all the same."""
    return incident.escalation == WITHOUT_NODE and incident.remedy in ("", Remedy.REPLACE.value)


def _once_each(incidents: Iterable[Incident]) -> list[Incident]:
    """A fault that ended two attempts, because it became known late, is one."""
    seen: dict[tuple[object, ...], Incident] = {}
    for one in incidents:
        is_fault = one.cause in OF_HARDWARE and one.fault_unix_s
        what = (one.culprit_node, one.gpu, one.fault_unix_s) if is_fault else (one.identifier,)
        seen[what] = one
    return list(seen.values())


def _part(incident: Incident, of_gpus: bool) -> str:
    return incident.gpu if of_gpus else incident.culprit_part


def _lemon(own: Sequence[Incident], part: str, policy: PolicySettings, now: float) -> Lemon:
    newest = max(own, key=lambda incident: incident.detected_unix_s)
    return Lemon(
        newest.culprit_node,
        part,
        round(score(_not_answered(own), policy, now), 3),
        dict(sorted(Counter(incident.cause for incident in own).items())),
        newest.detected_unix_s,
    )
