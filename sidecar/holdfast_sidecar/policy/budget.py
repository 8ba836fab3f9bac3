"""Restart or stop: budgets per cause, backoff, and an end to a bug that repeats."""

from __future__ import annotations

import dataclasses
import math
import signal
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from holdfast.contract.permit import Handle, Licence, NotPermitted, Permit
from holdfast_sidecar.config.settings import PolicySettings
from holdfast_sidecar.policy.checkpoint_choice import is_about_numbers
from holdfast_sidecar.policy.hardware import OF_HARDWARE
from holdfast_sidecar.policy.signature import are_alike, in_words
from holdfast_sidecar.records.findings import Remedy
from holdfast_sidecar.records.plan import WITHHELD, Incident, Quarantine
from holdfast_sidecar.store.orders import Orders

EXIT_FAILED = 1
EXIT_DO_NOT_REQUEUE = 65
"""The job itself is broken (sysexits' EX_DATAERR): starting it again can't help."""

EXIT_REQUEUE = 75
"""The job may be started again (sysexits' EX_TEMPFAIL), and resumes then: it was asked to go, or
hardware is to blame, which other nodes may not have."""

PLANNED = frozenset({"grow", "preempted", "restart", "stop"})
"""Causes that are nobody's fault: they use up no budget."""

OF_SILENCE = frozenset({"hang", "stall", "data_stall"})
"""Causes of ranks that lived and did nothing."""

SURROUNDINGS_FACTORS = (1, 3, 12, 30)
"""Of the first pause: 10 s, 30 s, 2 min, then 5 min each: a server that fails over, a switch that
starts anew, a file server that does. In all the default limit of attempts is half an hour."""

OF_MACHINES = frozenset({"node_lost", "node_left", "agent_restarted", "unreachable"}) | OF_HARDWARE
"""Causes that lie with nodes."""


@dataclass(frozen=True)
class Restart:
    """Start again, but not before the pause is over."""

    pause_s: float
    why: str = ""
    """What the pause is for."""


@dataclass(frozen=True)
class Stop:
    """End the job, and say why."""

    exit_code: int
    message: str
    outside: list[Quarantine] | None = None
    """Who is kept outside from now on; None: nobody new."""


def decide(
    incident: Incident,
    earlier: Iterable[Incident],
    restarts: int,
    cap: int,
    settings: PolicySettings,
    now_unix_s: float,
) -> Restart | Stop:
    """What to do about `incident`, given those before it (of any age, in any order).

    restarts: of this run so far; a run before it under the same name had its own. cap: most of
    them, -1 for none beside the budget.
    """
    if incident.cause in PLANNED:
        return Restart(0.0)
    faults = [i for i in earlier if i.decided == "restart" and i.cause not in PLANNED]
    in_vain = 1 + failures_since_a_step(incident, faults)
    if in_vain >= settings.stepless_limit:
        return Stop(
            EXIT_REQUEUE if is_nobodys(incident) else EXIT_DO_NOT_REQUEUE,
            f"{in_vain} failures in a row without a step that had not been made before",
        )
    if incident.is_of_surroundings:
        return _wait_for_surroundings(incident, faults, restarts, cap, settings)
    repeats = sum(are_alike(i.signature, incident.signature) for i in faults) + 1
    if incident.signature and repeats >= settings.same_signature_limit:
        return Stop(EXIT_DO_NOT_REQUEUE, f"the same failure {repeats} times: {in_words(incident)}")
    if 0 <= cap <= restarts:
        return Stop(EXIT_FAILED, f"{restarts} of {cap} restarts are used up")
    recent = [
        i
        for i in faults
        if i.cause == incident.cause and now_unix_s - i.detected_unix_s <= settings.budget_window_s
    ]
    if len(recent) >= settings.budget:
        return Stop(
            EXIT_REQUEUE if incident.cause in OF_HARDWARE else EXIT_FAILED,
            f"{len(recent)} restarts for {incident.cause} within {settings.budget_window_s:g} s",
        )
    why = (
        f"restarted {len(recent)} times for {incident.cause} within {settings.budget_window_s:g} s"
    )
    return Restart(pause_s(len(recent), settings), why)


def failures_since_a_step(incident: Incident, earlier: Iterable[Incident]) -> int:
    """How many failures came before this one since one that no later attempt came past, that one
    with them. Of a run whose steps nobody sees an attempt that lived for long came past it; what
    was rolled back begins anew: its steps are made again on purpose. So are those of a run that
    Holdfast does not resume, as its script may do so unseen: there only attempts count that ended
    like this one, at the very step.

    A hang is no sign that it lived: ranks that wait for each other live for as long as they do."""
    return _come_no_further(
        incident,
        takewhile(lambda one: not _ended_elsewhere_from_0(one, incident), _newest_first(earlier)),
    )


def _newest_first(incidents: Iterable[Incident]) -> list[Incident]:
    return sorted(incidents, key=lambda one: one.attempt, reverse=True)


def _ended_elsewhere_from_0(one: Incident, incident: Incident) -> bool:
    """Whether steps were made after it that began at 0, and it is not what ended them now."""
    stepped_from_0 = one.recovered_unix_s > 0 and one.step_resumed <= 0 and not one.is_over_unseen
    is_same = (one.step_reached, one.cause) == (incident.step_reached, incident.cause)
    return stepped_from_0 and not is_same


def _come_no_further(incident: Incident, newest_first: Iterable[Incident]) -> int:
    count, furthest = 0, incident.step_reached
    hangs = incident.cause in OF_SILENCE
    for number, one in enumerate(newest_first, start=1):
        lived_long = not furthest and not hangs and one.recovered_unix_s > 0
        if is_about_numbers(one) or lived_long:
            break
        if one.step_reached >= furthest:
            count, furthest = number, one.step_reached
    return count


def is_nobodys(incident: Incident) -> bool:
    """Whether another try, later or on other nodes, may do better."""
    return incident.is_of_surroundings or incident.cause in OF_MACHINES


def _wait_for_surroundings(
    incident: Incident,
    faults: Iterable[Incident],
    restarts: int,
    cap: int,
    settings: PolicySettings,
) -> Restart | Stop:
    """No budget: what is away for an hour is back in the next. It is waited for ever longer, until
    an attempt comes further than all before it, wherever they began."""
    if 0 <= cap <= restarts:
        return Stop(EXIT_FAILED, f"{restarts} of {cap} restarts are used up")
    alike = [one for one in faults if one.is_of_surroundings]
    tries = _come_no_further(incident, _newest_first(alike))
    factor = SURROUNDINGS_FACTORS[min(tries, len(SURROUNDINGS_FACTORS) - 1)]
    words = incident.evidence[0] if incident.evidence else incident.cause
    return Restart(settings.surroundings_backoff_s * factor, f"not the script's fault: {words}")


def pause_s(recent: int, settings: PolicySettings) -> float:
    """No pause for the first two restarts of a cause, then doubling up to the limit."""
    if recent < 2:
        return 0.0
    return min(settings.backoff_s * 2.0 ** (recent - 2), settings.backoff_limit_s)


# Whether a rank of this node may be ended now that lives: everything that must be so before.

HANGS = frozenset({"hang", "stall", "data_stall"})
"""Causes whose culprit still lives and stands still."""

ENDED_BY_US = HANGS | OF_HARDWARE
"""Causes of a plan whose culprit still lives and has to be ended: a rank whose GPU is gone waits in
the driver and hears no other signal. Crashed ranks and lost nodes need none; where hardware turns
out to be to blame for a crash, the incident says so and the plan does not."""


@dataclass(frozen=True)
class Warrant:
    """What is known at the moment of the kill."""

    node: str
    mode: str
    evidence_for: str
    """Incident whose evidence this node has on disk."""
    everyone_kept: bool
    """Whether every node of the attempt has kept its evidence too, or the time for it is over."""
    is_evidence_given_up: bool = False
    """Whether this node's own can't be kept: its disk takes nothing, or the time for it is over."""


def refusal(orders: Orders, warrant: Warrant) -> str:
    """Why nothing may be killed now; empty when the plan's culprits on this node may be."""
    plan = orders.plan
    if plan is None or plan.state not in ("evidence", "ended") or plan.cause not in ENDED_BY_US:
        return "nothing is being dealt with for which a rank is ended"
    if plan.culprit_node != warrant.node or not plan.culprit_ranks:
        return "the culprit is not on this node"
    if plan.pause is not None:
        return "the job is paused"
    if not orders.store_up:
        return "Redis is away"
    if orders.lease.epoch < plan.epoch:
        return f"the plan's epoch {plan.epoch} is not the leader's {orders.lease.epoch}"
    if warrant.mode != "act":
        return f"mode is {warrant.mode}"
    if warrant.evidence_for != plan.incident and not warrant.is_evidence_given_up:
        return "the evidence is not on disk yet"
    if not warrant.everyone_kept:
        return "other nodes are still keeping evidence, which dies with the culprit's peers"
    return ""


def warranted(
    orders: Orders, warrant: Warrant, attempt: int, rank: int, pidfd: int | None
) -> Permit:
    """To kill this rank of an attempt, which is held open. Raises NotPermitted.

    Only in the plan's own attempt: a sidecar that slept between check and act harms nobody.
    """
    if refused := refusal(orders, warrant):
        raise NotPermitted(refused)
    plan = orders.plan
    if plan is None or attempt != plan.attempt or rank not in plan.culprit_ranks:
        raise NotPermitted(f"rank {rank} of attempt {attempt} is no culprit")
    if pidfd is None:
        raise NotPermitted(f"the process of rank {rank} can't be reached")
    proof = f"{plan.cause}, incident {plan.incident}"
    return Permit(Licence.OWN_RANK, Handle(pidfd, signal.SIGKILL), proof)


# How often a node, or a GPU of it, was to blame for a failure: a score that fades with time. Pure.
#
# Failures that a program explains count for nothing. What a node was kept outside for in full
# counts no more: whoever lets it in again says that it is well.

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
class RepeatOffender:
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
) -> list[RepeatOffender]:
    """Everyone that was ever blamed, as far as incidents are kept: the worst first."""
    blamed = [i for i in _once_each(incidents) if blames_a_machine(i) and (i.gpu or not of_gpus)]
    parts = {_part(incident, of_gpus) for incident in blamed}
    lemons = [
        _repeat_offender([i for i in blamed if _part(i, of_gpus) == part], part, policy, now_unix_s)
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


def is_repeat_offender(
    held: Collection[Incident], policy: PolicySettings, now_unix_s: float
) -> bool:
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


def _repeat_offender(
    own: Sequence[Incident], part: str, policy: PolicySettings, now: float
) -> RepeatOffender:
    newest = max(own, key=lambda incident: incident.detected_unix_s)
    return RepeatOffender(
        newest.culprit_node,
        part,
        round(score(_not_answered(own), policy, now), 3),
        dict(sorted(Counter(incident.cause for incident in own).items())),
        newest.detected_unix_s,
    )


# As what metrics count an incident. What it was counted as once it stays, though it be known better
# later: a counter that falls looks to Prometheus like one that began again, and all of it like
# news. Pure.


def counted_now(incident: Incident) -> frozenset[str]:
    """`incident CAUSE`, `lost CAUSE` once its loss is known, `withheld WHY`, `blame NODE CAUSE`."""
    counted = set()
    if incident.decided not in WITHHELD:
        # As what it was seen before its hardware was known to be ill is counted, too.
        counted |= {f"incident {cause}" for cause in (incident.cause, incident.seen_as) if cause}
        if incident.recovered_unix_s:
            counted.add(f"lost {incident.cause}")
    if (why := incident.withheld or incident.decided) in WITHHELD:
        counted.add(f"withheld {why}")
    if blames_a_machine(incident):
        counted.add(f"blame {incident.culprit_node} {incident.cause}")
    return frozenset(counted)


def counted_ever(incident: Incident) -> frozenset[str]:
    """With what it was counted as before."""
    return counted_now(incident) | {*incident.counted_before}


def keep_counted(known: Incident | None, better: Incident) -> Incident:
    """The incident as it is known now, with what it was counted as when it was known as `known`."""
    before = frozenset() if known is None else counted_ever(known)
    kept = sorted(before - counted_now(better))
    if kept == better.counted_before:
        return better
    return dataclasses.replace(better, counted_before=kept)


def count(incidents: Iterable[Incident], what: str) -> Counter[str]:
    """How many were ever counted as this (`incident`, `lost`, ...), by what follows the word."""
    named = (one.partition(" ") for incident in incidents for one in counted_ever(incident))
    return Counter(rest for kind, _, rest in named if kind == what)


def taken_back(incidents: Iterable[Incident]) -> Counter[tuple[str, str]]:
    """(node, cause) -> blames that were counted and are not held against anybody any more."""
    gone: Counter[tuple[str, str]] = Counter()
    for incident in incidents:
        for one in {*incident.counted_before} - counted_now(incident):
            kind, _, rest = one.partition(" ")
            if kind == "blame":
                node, _, cause = rest.partition(" ")
                gone[node, cause] += 1
    return gone
