"""Ill hardware under an attempt: which of it ends ranks that live, and whose death it explains.

Nodes tell what their parts need; here it is seen which ranks that concerns. A driver that does not
answer and a link that flaps are told of, and end nothing. Pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast_sidecar.policy.blame import VICTIM, part_of_node
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.policy.modes import mode_on
from holdfast_sidecar.policy.signature import BESIDE, said_why
from holdfast_sidecar.records.findings import Finding, Kind, Remedy, harsher, parse_remedy
from holdfast_sidecar.records.formatting import name_ranks
from holdfast_sidecar.records.plan import Incident, Member, Plan

GPU = "gpu"
LINK = "link"
HOST = "host"

OF_HARDWARE = frozenset({GPU, LINK, HOST})
"""Causes for which a part of a node is to blame, whatever the ranks did."""

CAUSES: Mapping[Kind, str] = {
    Kind.GPU_FAULT: GPU,
    Kind.GPU_LOST: GPU,
    Kind.GPU_MEMORY_FAILING: GPU,
    Kind.ECC_STORM: GPU,
    Kind.GPU_LINK_DEGRADED: GPU,
    Kind.LINK_DOWN: LINK,
    Kind.LINK_DEGRADED: LINK,
    Kind.HOST_MEMORY_ERRORS: HOST,
}
"""What may be to blame. Not among them: NVML_WEDGED (the GPUs may compute on; who waits for them
is found by its silence), LINK_FLAPPING (a flap inside the window is no fault) and PCI_ERRORS (what
a fatal one did to its device is that one's fault, with a remedy: an XID, a link that is down)."""

OF_PARTS = frozenset({"gpu", "switch"})
"""Whose an XID is (`Finding.to_blame`) where it is no program's."""

OF_PROGRAMS = "application"

EXPLAINED = frozenset({"crash", "hang", "stall", "data_stall"})
"""Causes that say what a rank did, and not why."""

NEAR_S = 60.0
"""A fault this long before or after a rank's end is of the same event. The kernel's line may come
seconds after the death, when the driver has given up on the GPU; the same window within which an
XID counts as the consequence of another one (xid.md b.3)."""

SAME_S = 1.0
"""Onsets of one finding differ by no more, whatever is rounded on the way."""

STILL_RAN = "no rank had died of it: Holdfast ended the attempt, before it computes on wrongly"
"""Why ranks were ended that had done nothing: an error that was not contained may be in what they
compute, and who has lost its GPU waits for ever."""

NO_MACHINE = "it is the application's, and no machine is to blame"
SPARED = "it is the hardware's, though new ranks are enough"
UNTOLD = "new ranks are enough, and whose fault it is was not told"
DOUBTFUL = "it may be the application's, or the GPU's: a test tells (`holdfast nodes test`)"

BESIDES = "at the same time: "
BESIDES_MOST = 4
"""What strikes more parts than this is something that they share, and its lines say the same."""

NEEDS = {
    Remedy.RESET_GPU: "it needs a reset",
    Remedy.REBOOT_NODE: "its node needs a reboot",
    Remedy.REPLACE: "it needs to be replaced",
}


@dataclass(frozen=True)
class Fault:
    """A part that is ill, the ranks that use it, and what may be done about it there."""

    finding: Finding
    ranks: tuple[int, ...]
    mode: str

    @property
    def is_grave(self) -> bool:
        """Whether the part must not be used before it was mended."""
        return self.finding.remedy.blames_hardware

    @property
    def cause(self) -> str:
        """See OF_HARDWARE."""
        return cause_of(self.finding)

    @property
    def is_of_hardware(self) -> bool:
        """Whether the part itself is at fault, be it that the driver then asked for nothing."""
        return self.is_grave or self.finding.to_blame in OF_PARTS

    @property
    def has_broken(self) -> bool:
        """Whether it makes an end of what runs on it, where others merely stand ill: the GPU is
        gone, or its driver told of an error that it must not be used after."""
        finding = self.finding
        is_told = finding.kind is Kind.GPU_FAULT and finding.to_blame in OF_PARTS
        is_over = finding.acts or finding.kind is Kind.GPU_LOST or is_told
        return self.cause == GPU and self.is_grave and is_over


def cause_of(finding: Finding) -> str:
    """What an incident of it is called; a bus error of a GPU is the GPU's."""
    return GPU if finding.gpu else CAUSES[finding.kind]


def find_faults(cluster: Cluster, plan: Plan) -> list[Fault]:
    """What is ill of the parts that this attempt uses, oldest first."""
    found = [
        Fault(finding, ranks, mode_on(node, cause_of(finding)))
        for member in plan.members
        if (node := cluster.nodes.get(member.node)) is not None and node.attempt == plan.attempt
        for finding in node.findings
        if finding.kind in CAUSES and finding.remedy is not Remedy.NONE
        if (ranks := _users(finding, member, plan))
    ]
    return sorted(found, key=lambda fault: (fault.finding.since_unix_s, fault.ranks))


def _users(finding: Finding, member: Member, plan: Plan) -> tuple[int, ...]:
    """Ranks of this member that the part serves: the host's memory serves them all, and so does a
    link, unless they have no other node to talk to."""
    if cause_of(finding) == LINK and len(plan.members) == 1:
        return ()
    if cause_of(finding) == GPU or finding.ranks:
        return tuple(rank for rank in finding.ranks if rank in member.ranks)
    return tuple(member.ranks)


def unanswered(cluster: Cluster, plan: Plan) -> list[Fault]:
    """Faults for which ranks that live are ended, and nothing was decided so far."""
    return [
        fault
        for fault in find_faults(cluster, plan)
        if fault.finding.acts and fault.is_grave
        if not is_answered(fault, cluster.incidents.values())
    ]


def is_answered(fault: Fault, incidents: Iterable[Incident]) -> bool:
    """Whether a restart reckoned with it: then it was chosen to go on in spite of it, and what it
    does to a rank is seen by what that rank does. One that asks for more now is another."""
    return any(
        _is_of(fault, incident)
        and incident.decided == "restart"
        and fault.finding.remedy.severity <= parse_remedy(incident.remedy).severity
        and fault.finding.since_unix_s
        <= max(incident.fault_unix_s + SAME_S, incident.reopened_unix_s)
        for incident in incidents
    )


def began_unix_s(cluster: Cluster, plan: Plan) -> float:
    """When this attempt was opened; 0: not known."""
    reopened = [one.reopened_unix_s for one in cluster.incidents.values() if _is_before(one, plan)]
    return max([plan.began_unix_s, *reopened])


def _is_before(incident: Incident, plan: Plan) -> bool:
    return incident.attempt < plan.attempt and incident.decided == "restart"


def name_fault(faults: Iterable[Fault], plan: Plan, began_s: float = 0.0) -> Incident | None:
    """The incident that these faults (there may be none) make of the attempt: the oldest's of those
    that came up in it. What was there before (a line in the log for which the driver's word of now
    asks for as much) may be another story's.

    began_s: see `began_unix_s`; no trouble of an attempt is older than it.
    """
    faults = list(faults)
    if not faults:
        return None
    named = next((one for one in faults if one.finding.since_unix_s >= began_s), faults[0])
    since_s = max(named.finding.since_unix_s, began_s)
    return _blaming(Incident("", plan.attempt, "", since_unix_s=since_s), named, faults)


def explained(incident: Incident, cluster: Cluster, plan: Plan) -> Incident:
    """The incident with the hardware to blame for it where that is ill; what an application did to
    its GPU blames no machine, however much the crash looks like one, unless it may as well be the
    GPU. What stands ill beside a program that said itself what it died of is told. Safe to repeat.
    """
    faults = find_faults(cluster, plan)
    if incident.cause in OF_HARDWARE:
        known = _as_harsh_as_known(_told_of_again(incident, faults), faults)
        return _with_lines(known, _besides(known, faults))
    fault = _behind(incident, faults)
    if said_why(incident) and (fault is None or not fault.has_broken):
        return _with_lines(incident, [BESIDE + headline(f) for f in _beside(incident, faults)])
    if fault is None:
        return incident
    if not fault.is_of_hardware:
        is_programs = fault.finding.to_blame == OF_PROGRAMS and not fault.finding.check
        told = _with_lines(incident, [headline(fault)])
        return dataclasses.replace(told, is_of_script=incident.is_of_script or is_programs)
    blamed = _blaming(incident, fault, faults)
    blamed = dataclasses.replace(blamed, culprit_part=part_of_node(cluster, fault.finding.node))
    return _with_lines(blamed, _besides(blamed, faults))


def explained_late(incident: Incident, cluster: Cluster, plan: Plan) -> Incident:
    """The same of an incident whose restart was opened before the fault was known: the fault is
    yet to be dealt with, but the script is not blamed for it any more."""
    fault = _behind(incident, find_faults(cluster, plan))
    if fault is None or not _is_near(incident, fault):
        return incident
    better = explained(incident, cluster, plan)
    if better.cause == incident.cause:
        return better
    return dataclasses.replace(better, remedy="", seen_as=incident.cause)


def taken_back(incident: Incident, cluster: Cluster, plan: Plan) -> Incident:
    """The incident as it was before its hardware was blamed, once the program has said why it
    ended; the same where that hardware broke, or is not told of any more."""
    faults = [fault for fault in find_faults(cluster, plan) if _is_of(fault, incident)]
    if not faults or any(fault.has_broken for fault in faults):
        return incident
    of_it = {line for fault in faults for line in (headline(fault), *fault.finding.evidence)}
    return dataclasses.replace(
        incident,
        cause="crash",
        confidence=0.0,
        evidence=[line for line in incident.evidence if line not in of_it],
        gpu="",
        remedy="",
        fault_unix_s=0.0,
        seen_as="",
    )


def headline(fault: Fault) -> str:
    """The fault in a line: what, where, which ranks, what it needs."""
    finding = fault.finding
    what = finding.what
    if finding.kind is not Kind.GPU_FAULT:
        what = finding.kind.value.replace("_", " ") + f" ({what})" * bool(what)
    where = finding.named_gpu if finding.gpu else f"node {finding.node}"
    needs = NEEDS.get(finding.remedy) or _whose(finding)
    return f"{what}, {where}, {name_ranks(fault.ranks)}: {needs}"


def _whose(finding: Finding) -> str:
    """Of what needs no mending: which remedy is enough says nothing about whose fault it is."""
    if finding.to_blame in OF_PARTS:
        return SPARED
    if finding.check:
        return DOUBTFUL
    return NO_MACHINE if finding.to_blame == OF_PROGRAMS else UNTOLD


def _told_of_again(incident: Incident, faults: list[Fault]) -> Incident:
    """A plan names no part: where whoever ended the attempt died before it wrote the rest down, its
    node still tells."""
    if incident.fault_unix_s:
        return incident
    own = (f for f in faults if f.is_grave and f.cause == incident.cause and _is_own(incident, f))
    fault = next(own, None)
    return incident if fault is None else _blaming(incident, fault, faults)


def _behind(incident: Incident, faults: list[Fault]) -> Fault | None:
    """The fault that explains what the culprit did: of its own GPU; or, where who is to blame is a
    guess or nobody, of any at the time. The gravest of them."""
    if incident.cause not in EXPLAINED:
        return None
    # Where all ranks have the same bug, which was first is a guess, and what it was is none.
    is_guess = not incident.culprit_ranks or incident.confidence <= VICTIM
    is_guess = is_guess and not said_why(incident)
    found = [
        fault
        for fault in faults
        if (_is_own(incident, fault) and _is_in_time(incident, fault))
        or (is_guess and fault.is_grave and _is_near(incident, fault))
    ]
    return max(found, key=lambda fault: fault.finding.remedy.severity, default=None)


def _beside(incident: Incident, faults: list[Fault]) -> list[Fault]:
    """What else would be thought of: what is ill of the parts that the culprit used."""
    return [fault for fault in faults if fault.is_of_hardware and _is_own(incident, fault)]


def _besides(incident: Incident, faults: list[Fault]) -> list[str]:
    """What else failed at the time, whichever of them was sure first: it may be what began it."""
    others = [
        fault
        for fault in faults
        if fault.is_of_hardware and not _is_of(fault, incident) and _is_near(incident, fault)
    ]
    return [f"{BESIDES}{headline(fault)}" for fault in others[:BESIDES_MOST]]


def _with_lines(incident: Incident, lines: list[str]) -> Incident:
    """With these among its reasons, last; once each, with what the part was last said to need."""
    told = {_about(line) for line in lines}
    kept = [one for one in incident.evidence if _about(one) not in told]
    return dataclasses.replace(incident, evidence=[*kept, *dict.fromkeys(lines)])


def _about(line: str) -> str:
    return line.rpartition(": ")[0] or line


def _is_own(incident: Incident, fault: Fault) -> bool:
    is_there = fault.finding.node == incident.culprit_node
    return is_there and bool(set(fault.ranks) & set(incident.culprit_ranks))


def _is_near(incident: Incident, fault: Fault) -> bool:
    return abs(fault.finding.since_unix_s - incident.since_unix_s) <= NEAR_S


def _is_in_time(incident: Incident, fault: Fault) -> bool:
    """At the time; or long before, and not mended since, where the program has no fault of its own
    to show. What only foretells, as rows that wait to be remapped, explains nothing later."""
    is_programs = incident.is_of_script or bool(incident.signature)
    has_happened = fault.finding.acts or fault.finding.kind in (Kind.GPU_FAULT, Kind.GPU_LOST)
    is_old = fault.is_grave and fault.finding.since_unix_s < incident.since_unix_s
    return _is_near(incident, fault) or (is_old and has_happened and not is_programs)


def _blaming(incident: Incident, fault: Fault, faults: list[Fault]) -> Incident:
    finding = fault.finding
    told = [headline(fault), *finding.evidence]
    blamed = dataclasses.replace(
        incident,
        cause=fault.cause,
        culprit_node=finding.node,
        culprit_ranks=list(fault.ranks),
        confidence=min(finding.confidence, finding.rank_confidence),
        signature="",
        is_of_script=False,
        evidence=[*told, *(line for line in incident.evidence if line not in told)],
        gpu=finding.gpu,
        remedy=finding.remedy.value if fault.is_grave else "",
        fault_unix_s=finding.since_unix_s,
    )
    return _as_harsh_as_known(blamed, faults)


def _as_harsh_as_known(incident: Incident, faults: list[Fault]) -> Incident:
    """With what else is known of the same part: the driver may ask for more a moment later."""
    same = [fault for fault in faults if fault.is_grave and _is_of(fault, incident)]
    remedy = parse_remedy(incident.remedy)
    told = list(incident.evidence)
    for fault in same:
        remedy = harsher(remedy, fault.finding.remedy)
        told += [line for line in [headline(fault)] if line not in told]
    if remedy is Remedy.NONE:
        return incident
    return dataclasses.replace(incident, remedy=remedy.value, evidence=told)


def _is_of(fault: Fault, incident: Incident) -> bool:
    """Whether both are about the same part."""
    return (fault.cause, fault.finding.node, fault.finding.gpu) == (
        incident.cause,
        incident.culprit_node,
        incident.gpu,
    )
