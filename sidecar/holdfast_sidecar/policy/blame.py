"""Whose exit began a failure: the first to die is told from those that died of its death."""

from __future__ import annotations

import dataclasses
import re
import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from holdfast_sidecar.config.settings import SidecarSettings
from holdfast_sidecar.policy import modes
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.policy.modes import mode_on
from holdfast_sidecar.policy.quarantine import part_of
from holdfast_sidecar.ranks.collectives import Arrival, StuckCause
from holdfast_sidecar.ranks.deadlock import judge_late
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.formatting import name_signal
from holdfast_sidecar.records.plan import Incident, Member, Plan
from holdfast_sidecar.records.reports import AgentReport, Exit, NodeReport, RankReport

VICTIM = 0.5
"""How sure it is that a rank began it which speaks of a lost peer."""


OF_A_PEER = re.compile(
    r"connection (closed|reset|refused)|broken pipe|socket|recv|timed out|timeout"
    r"|gloo|nccl|DistBackendError|DistNetworkError|TCPStore|process group",
    re.IGNORECASE,
)
"""What a rank says when another one went away. A survivor of gloo raises within 20 ms of a peer's
death, so its exit may well be reported first."""

OF_THE_CODE = re.compile(
    r"(?:Type|Name|UnboundLocal|Attribute|Import|ModuleNotFound|Syntax|Indentation"
    r"|Key|Index|Value|ZeroDivision|NotImplemented|Assertion)Error\b"
)
"""What begins the words of no lost peer, whatever else they say: an argument that is called
`timeout`, a process group that was not initialised."""

OF_A_MISMATCH = re.compile(
    r"\bop\.preamble\.|collective mismatch|mismatch between collectives", re.IGNORECASE
)
"""What a rank says that got something else from another one than it expected: gloo, which makes it
raise or aborts it, and torch under TORCH_DISTRIBUTED_DEBUG=DETAIL. No lost peer makes it say so."""

FROM_OUTSIDE = frozenset({-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT})
"""Exit codes by signals that no bug of a program sends."""

OF_HARDWARE = re.compile(
    r"uncorrectable|\bECC\b|NVLink|GPU is lost|fallen off the bus|hardware|Input/output error"
    r"|unspecified launch failure",
    re.IGNORECASE,
)
"""What Python raises though it is the machine's: a restart elsewhere helps, one here does not."""

ABORTED = f"ended by {signal.SIGABRT.name}"
"""What a library does that lost a peer, and ranks differ: C++ says nothing of it in a page."""

MAY_BE_VICTIM = 1
"""The weight of an exit that may be of another one's making."""

LEFT = "left by exit code 0"

LEFT_SURENESS = 0.8
"""How sure it is that the others failed because a rank was through before them: they say that they
lost one, and none but this one is known to be gone."""

MISSED_WITHIN_STEPS = 2
"""Who was needed is missed in the next collective, and steps are counted a little apart: the others
come so much further at most. Whom they made more steps without was not needed."""


@dataclass(frozen=True)
class Blame:
    """The rank that most likely began it. `confidence` is 0 to 1."""

    node: str
    rank: int
    exit: Exit
    confidence: float


def find_culprit(exits: Iterable[tuple[str, Exit]]) -> Blame | None:
    """The likely first cause among (node, exit) pairs; None when nobody ended by itself."""
    known = [(node, exit_) for node, exit_ in exits if not exit_.forced]
    own = [(node, exit_) for node, exit_ in known if exit_.exit_code != 0]
    if not own:
        return None
    ranked = sorted(own, key=lambda pair: (*_exit_order(pair[1]), pair[1].at_unix_s, pair[1].rank))
    node, first = ranked[0]
    if weight(first) == MAY_BE_VICTIM and not speaks_of_mismatch(first):
        furthest = max(exit_.step for _, exit_ in own)
        if (leaver := _who_left(known, furthest)) is not None:
            return leaver
    rivals = sum(_exit_order(exit_) == _exit_order(first) for _, exit_ in ranked)
    return Blame(node, first.rank, first, _confidence(weight(first), rivals))


def _exit_order(exit_: Exit) -> tuple[int, bool]:
    """How exits are ordered. Of those that may be victims, who says that it lost a peer comes last:
    a library that aborts, or words about what came from another, may be what they lost it by."""
    return -weight(exit_), exit_.exit_code != -signal.SIGABRT and not speaks_of_mismatch(exit_)


def _who_left(exits: list[tuple[str, Exit]], furthest: int) -> Blame | None:
    """The rank that ended well before its time: the others lost it, and had come as far at least,
    though not much further.

    Several that left where the others failed may have been through: then that says nothing.
    """
    left = [
        (node, exit_)
        for node, exit_ in exits
        if exit_.exit_code == 0 and exit_.step >= furthest - MISSED_WITHIN_STEPS
    ]
    earliest = min((exit_.step for _, exit_ in left), default=furthest + 1)
    first = sorted(
        (pair for pair in left if pair[1].step == earliest),
        key=lambda pair: (pair[1].at_unix_s, pair[1].rank),
    )
    if earliest > furthest or (earliest == furthest and len(first) > 1):
        return None
    node, leaver = first[0]
    return Blame(node, leaver.rank, leaver, round(LEFT_SURENESS / len(first), 2))


def weight(exit_: Exit) -> int:
    """How much an exit speaks for a cause of its own: 3 killed, 2 own error, 1 may be a victim.

    A victim raises, so a code without an exception (`sys.exit(3)`) was chosen by the script.
    """
    if exit_.exit_code == -signal.SIGABRT:
        return MAY_BE_VICTIM  # C++ terminate after a lost peer looks like this, too
    if speaks_of_mismatch(exit_):
        return MAY_BE_VICTIM  # who notices that ranks differ may be the one that is right
    if exit_.exit_code < 0 and exit_.exit_code != -signal.SIGTERM:
        return 3
    return MAY_BE_VICTIM if speaks_of_peer(exit_.message) else 2


def speaks_of_peer(words: str) -> bool:
    """Whether an exception's words may be those of who lost a peer."""
    return OF_A_PEER.search(words) is not None and OF_THE_CODE.match(words) is None


def speaks_of_mismatch(exit_: Exit) -> bool:
    """Whether its words are that ranks did not do the same in a collective."""
    return OF_A_MISMATCH.search(exit_.message) is not None


def is_of_script(exit_: Exit) -> bool:
    """Whether the script ended it: an exception or a code of its own, and none about hardware."""
    return exit_.exit_code >= 0 and not OF_HARDWARE.search(exit_.message)


def describe(exit_: Exit) -> str:
    """An exit in words: what the exception said, or which signal ended it."""
    if exit_.message:
        return exit_.message
    if exit_.exit_code == 0:
        return f"{LEFT} at step {exit_.step} while others went on"
    if exit_.exit_code >= 0:
        return f"exited with code {exit_.exit_code}"
    return f"ended by {name_signal(-exit_.exit_code)}"


def in_short(blame: Blame) -> str:
    """Who ended how, as a reason."""
    return f"rank {blame.rank}: {describe(blame.exit)}"


def _confidence(top: int, rivals: int) -> float:
    certainty = {3: 0.95, 2: 0.9, 1: 0.5}[top]
    return round(certainty / rivals, 2) if rivals > 1 else certainty


# Who of an attempt's members is gone, and whose exit began it.

WAITING = frozenset({"backward", "communicating"})
"""Phases in which a rank waits for others."""

NO_MAJORITY = "not more than half"
SHOWN = 4
"""Nodes of which it is told that they cannot reach another: what they have in common shows."""


def lost_members(cluster: Cluster, plan: Plan, now_unix_s: float) -> Incident | None:
    """The loss of members, as an incident; None while all are there."""
    gone = gone_members(cluster, plan)
    if not gone:
        return None
    first = gone[0]
    ranks = [rank for member in gone for rank in member.ranks]
    agent = cluster.agents.get(first.node)
    went = agent is not None and agent.state == "left" and agent.incarnation == first.incarnation
    cause = "node_left" if went else "node_lost"
    silent_s = cluster.lost.get(first.node, 0.0)
    return Incident(
        "",
        plan.attempt,
        cause,
        first.node,
        ranks,
        confidence=0.95,
        since_unix_s=modes.of_lost_node(silent_s, now_unix_s),
        evidence=[how_lost(cluster, first.node, silent_s, went)],
    )


def gone_members(cluster: Cluster, plan: Plan) -> list[Member]:
    """Members that are gone and whose ranks had not all ended well: those that had are not
    missed."""
    return [
        member
        for member in plan.members
        if agent_of(cluster, member) is None and not has_succeeded(cluster, plan, member)
    ]


def is_only_silent(cluster: Cluster, member: Member) -> bool:
    """Whether nothing but silence says that this member is gone: nobody saw its launcher end."""
    agent = cluster.agents.get(member.node)
    if agent is None or agent.incarnation != member.incarnation or agent.state == "left":
        return False
    return member.node in cluster.lost and member.node not in cluster.ended


def may_yet_step(
    cluster: Cluster, plan: Plan, gone: Sequence[Member], silent_s: float, settings: SidecarSettings
) -> bool:
    """Whether a step may still show that nodes live of which nothing else is heard.

    Heartbeats and round trips often share a link. Steps use another one, but have to be completed
    and told: a step that began after the silence lies within two of them, and is known a tick and
    a beat later. Where a node is really gone, its peers stop in a collective: once all of them have
    waited there for as long as a whole step takes, none will come. Where no step was ever made with
    these nodes it can't speak, and ranks that are seen may well be at work.
    """
    longest_s = max(settings.unwitnessed_timeout_s, settings.node_timeout_s)
    peers = _peers(cluster, plan)
    if not cluster.stepped_with & {member.node for member in gone}:
        return bool(peers) and silent_s < longest_s
    step_s = max((rank.step_s for rank in peers), default=0.0)
    told_s = settings.tick_s + settings.heartbeat_s
    due_s = 2 * (step_s + told_s) + settings.heartbeat_s
    waited_s = max(min(step_s, longest_s), settings.heartbeat_s)
    return silent_s < due_s and not (peers and _do_wait(peers, waited_s))


def may_be_at_work(cluster: Cluster, plan: Plan, settings: SidecarSettings) -> bool:
    """Whether ranks of the nodes that are heard do anything but wait for others."""
    return not _do_wait(_peers(cluster, plan), settings.unwitnessed_timeout_s)


def _do_wait(ranks: Iterable[RankReport], for_s: float) -> bool:
    """Whether all of them have waited for others so long."""
    return all(rank.phase in WAITING and rank.phase_age_s >= for_s for rank in ranks)


def _peers(cluster: Cluster, plan: Plan) -> list[RankReport]:
    """Living ranks of the members that the store hears of."""
    unheard = cluster.lost.keys() | cluster.cut_off.keys()
    here = {rank for m in plan.members if m.node not in unheard for rank in m.ranks}
    ranks = cluster.ranks(plan).values()
    return [r for r in ranks if r.rank in here and r.alive and not r.has_finished]


def has_succeeded(cluster: Cluster, plan: Plan, member: Member) -> bool:
    """All ranks of this place ended well.

    torchrun's own agent just leaves after a success, and a node may be reclaimed before its
    launcher says anything, so then the ranks' pages say it.
    """
    agent = cluster.agents.get(member.node)
    if agent is None or agent.incarnation != member.incarnation or agent.attempt != plan.attempt:
        return False
    if agent.state == "succeeded":
        return True
    node = cluster.nodes.get(member.node)
    return (
        not cluster.is_alive(member.node)
        and node is not None
        and node.attempt == plan.attempt
        and len(node.ranks) == member.slots
        and all(rank.has_finished for rank in node.ranks)
    )


def how_lost(cluster: Cluster, node: str, silent_s: float, went: bool = False) -> str:
    """What the judgement that a node is gone rests on."""
    if went:
        agent = cluster.agents.get(node)
        by = f", by {agent.left_for}" if agent is not None and agent.left_for else ""
        return f"its launcher was told to end{by}"
    sidecar = cluster.nodes.get(node)
    if node in cluster.ended or (sidecar is not None and not sidecar.launcher_alive):
        return "its sidecar saw the launcher end"
    if cluster.is_alive(node):
        return "its launcher is gone, another one runs there now"
    return f"nothing was heard of it for {silent_s:.1f} s"


def too_few_to_decide(cluster: Cluster, plan: Plan, majority: bool) -> str:
    """Why this side may not decide about missing nodes; empty when it may.

    Behind Sentinel the others may sit with a master of their own, so more than half of the
    attempt's nodes must be here: spares don't count, and a tie waits for a person.
    """
    here = sum(
        cluster.is_alive(member.node) and member.node not in cluster.cut_off
        for member in plan.members
    )
    if not majority or 2 * here > len(plan.members):
        return ""
    return f"{here} of the attempt's {len(plan.members)} nodes are here, {NO_MAJORITY}"


def unreachable_store(cluster: Cluster, plan: Plan) -> Incident | None:
    """Members that cannot reach the attempt's store, once it is known of all how they fared.

    Of two nodes nobody can tell which one is cut off; of more the one that is alone with it is.
    """
    first, *others = sorted(plan.members, key=lambda member: member.node_rank)
    agents = {member.node: agent_of(cluster, member) for member in plan.members}
    away = [m for m in others if (a := agents[m.node]) and a.unreachable_in == plan.attempt]
    there = [m for m in others if (a := agents[m.node]) and a.attempt == plan.attempt]
    if not away or len({m.node for m in (*away, *there)}) < len(others):
        return None
    alone = None
    if len(others) > 1:
        alone = first if not there else away[0] if len(away) == 1 else None
    evidence = [
        f"{member.node} cannot reach the attempt's store at {agent.unreachable} of {first.node}"
        for member in away[:SHOWN]
        if (agent := agents[member.node]) is not None
    ]
    return Incident(
        "",
        plan.attempt,
        "unreachable",
        "" if alone is None else alone.node,
        [] if alone is None else list(alone.ranks),
        confidence=0.5 if alone is None else 0.8,
        evidence=evidence,
        is_of_surroundings=True,  # a firewall or a wrong interface; no script is at work yet
    )


def agent_of(cluster: Cluster, member: Member) -> AgentReport | None:
    """The living agent that holds this place; None when it is gone or is another one by now."""
    agent = cluster.agents.get(member.node)
    if agent is None or agent.incarnation != member.incarnation:
        return None
    return agent if cluster.is_alive(member.node) else None


def part_of_node(cluster: Cluster, node: str) -> str:
    """The machine of a node, by which it is kept outside; empty: nobody is to blame."""
    agent = cluster.agents.get(node)
    return "" if agent is None else part_of(agent, cluster.agents.values())


def blame_exits(cluster: Cluster, plan: Plan) -> Blame | None:
    """The likely first cause among the exits that the members report."""
    return find_culprit(_exits(cluster, plan))


def blame_deaths(cluster: Cluster, plan: Plan) -> Blame | None:
    """The same, with what only sidecars know of so far: deaths that launchers can't reap yet, and
    ranks that have said which exception ends them, and those that left while others went on."""
    reaped = list(_exits(cluster, plan))
    known = {exit_.rank for _, exit_ in reaped}
    seen = [
        *deaths_seen(cluster, plan),
        *_exceptions_said(cluster, plan),
        *_leavers_seen(cluster, plan),
    ]
    return find_culprit([*reaped, *((node, e) for node, e in seen if e.rank not in known)])


def began_to_fail(cluster: Cluster, plan: Plan) -> bool:
    """Whether a sidecar saw a rank die that did not just lose a peer.

    Who lost a peer may be out of the door before the peer is; its launcher will say so, too, and
    by then it is known whose fault it was.
    """
    return any(weight(exit_) > MAY_BE_VICTIM for _, exit_ in deaths_seen(cluster, plan))


def deaths_seen(cluster: Cluster, plan: Plan) -> list[tuple[str, Exit]]:
    """Ranks of a running attempt that died by themselves, as their sidecars saw it.

    Once the attempt is ended the others die by order, which sidecars can't tell apart. So do those
    of a launcher that leaves.
    """
    return [
        (member.node, _as_exit(report, finding.since_unix_s))
        for member in plan.members
        if (node := cluster.nodes.get(member.node)) is not None and node.attempt == plan.attempt
        if not _leaves(cluster, member)
        for finding in node.findings
        if finding.kind is Kind.CRASH and finding.acts
        for report in node.ranks
        if report.rank in finding.ranks and report.exit_code
    ]


def _leaves(cluster: Cluster, member: Member) -> bool:
    agent = cluster.agents.get(member.node)
    return agent is not None and agent.incarnation == member.incarnation and agent.leaves


def _leavers_seen(cluster: Cluster, plan: Plan) -> list[tuple[str, Exit]]:
    return [
        (member.node, _as_exit(report, float("inf")))
        for member in plan.members
        if (node := cluster.nodes.get(member.node)) is not None and node.attempt == plan.attempt
        for report in node.ranks
        if report.has_left
    ]


def _exceptions_said(cluster: Cluster, plan: Plan) -> list[tuple[str, Exit]]:
    return [
        (member.node, _as_exit(dataclasses.replace(report, exit_code=1), float("inf")))
        for member in plan.members
        if (node := cluster.nodes.get(member.node)) is not None and node.attempt == plan.attempt
        for report in node.ranks
        if report.alive and report.exception
    ]


def crash_evidence(cluster: Cluster, plan: Plan, rank: int) -> list[str]:
    """What the sidecar of this rank found about its end."""
    return [
        line
        for member in plan.members
        if (node := cluster.nodes.get(member.node)) is not None and node.attempt == plan.attempt
        for finding in node.findings
        if finding.kind is Kind.CRASH and rank in finding.ranks
        for line in finding.evidence
    ]


def _as_exit(report: RankReport, at_unix_s: float) -> Exit:
    return Exit(
        rank=report.rank,
        local_rank=report.local_rank,
        pid=report.pid,
        exit_code=report.exit_code or 0,
        at_unix_s=at_unix_s,
        order=0,
        message=report.exception,
        step=report.step,
        onset_step=report.onset_step,
        is_gloo_alone=report.is_gloo_alone,
    )


def exits_of(cluster: Cluster, plan: Plan) -> list[Exit]:
    """How the members' ranks of this attempt ended, as far as they have."""
    return [exit_ for _, exit_ in _exits(cluster, plan)]


def _exits(cluster: Cluster, plan: Plan) -> Iterator[tuple[str, Exit]]:
    for member in plan.members:
        agent = cluster.agents.get(member.node)
        if agent is not None and agent.incarnation == member.incarnation:
            yield from ((member.node, e) for e in agent.exits if agent.attempt == plan.attempt)


# Who is named when ranks hang: among findings that act, and against one that names a victim. Pure.
#
# Each node judges its own ranks; here it is seen who of all of them keeps the others waiting.

GUESSED = 0.5
"""Of a rank that may be a victim itself, `blame` is so sure, or less."""

LEAST = 0.3
"""Findings that are less sure than this are of ranks that wait for others."""


def name_culprit(acting: Iterable[Finding], cluster: Cluster, plan: Plan) -> Incident | None:
    """The incident that these findings (there may be none) make of the attempt.

    Whether its culprit may be ended is another question: see `mode_where_it_was`.
    """
    surest = max(acting, key=lambda finding: finding.confidence, default=None)
    if surest is None:
        return None
    arrival = judge_attempt(cluster, plan)
    if arrival is None:
        return _incident(plan, surest, "")
    if arrival.cause is StuckCause.ARRIVED and surest.kind is not Kind.HANG:
        return _of_nobody(arrival, surest, plan)
    if surest.kind is not Kind.HANG and set(surest.ranks) <= set(arrival.waiting):
        named = _of_culprits(arrival, surest, cluster, plan)
        return named or _incident(plan, surest, "")
    is_same = bool(arrival.culprits) and set(surest.ranks) <= set(arrival.culprits)
    signature = _signature(arrival, cluster, plan) if is_same else ""
    return _incident(plan, surest, signature, arrival.evidence if is_same else ())


def name_late(crash: Incident, cluster: Cluster, plan: Plan, now_unix_s: float) -> Incident | None:
    """What a crash is the consequence of: its rank gave up waiting for one that lives and had not
    arrived. None: it is its own, or nobody was found silent, nor said to be busy."""
    gave_up = any(modes.GAVE_UP.search(line) for line in crash.evidence)
    if not gave_up or crash.confidence > GUESSED:
        return None
    living = {rank.rank for rank in cluster.ranks(plan).values() if rank.alive and not rank.ending}
    waiting = set(crash.culprit_ranks) | _waiting(cluster, plan)
    accused = [
        finding
        for member in plan.members
        if (node := cluster.nodes.get(member.node)) is not None and node.attempt == plan.attempt
        for finding in (*node.findings, *_busy(node, now_unix_s))
        if finding.kind in modes.SILENCE and finding.confidence >= LEAST
        if set(finding.ranks) <= living - waiting
    ]
    surest = max(accused, key=lambda finding: finding.confidence, default=None)
    if surest is None:
        return None
    why = "the others waited for it until their process group's own timeout"
    late = _incident(plan, surest, "", [why, *crash.evidence])
    return dataclasses.replace(late, cause=Kind.STALL.value)


def _waiting(cluster: Cluster, plan: Plan) -> set[int]:
    """Ranks that are known to wait for others themselves."""
    arrival = judge_attempt(cluster, plan)
    return set() if arrival is None else set(arrival.waiting)


def _busy(node: NodeReport, now_unix_s: float) -> Iterator[Finding]:
    """Ranks whose script said that they were busy, of which nothing is found."""
    for rank in node.ranks:
        if rank.busy and rank.alive:
            told = f"rank {rank.rank} was busy with {rank.busy!r} for {rank.phase_age_s:.0f} s"
            since_unix_s = now_unix_s - rank.phase_age_s
            yield Finding(Kind.STALL, node.node, since_unix_s, LEAST, [rank.rank], [told])


def mode_where_it_was(incident: Incident, cluster: Cluster) -> str:
    """What may be done about it, as the culprit's own node has it; who is named nowhere needs no
    leave but that of who was found."""
    node = cluster.nodes.get(incident.culprit_node)
    return "act" if node is None else mode_on(node, incident.cause)


def judge_attempt(cluster: Cluster, plan: Plan) -> Arrival | None:
    """Who keeps the others waiting, by what all ranks of the attempt told. What a node told before
    it was cut off from the store is old."""
    traces = {
        trace.rank: trace
        for member in plan.members
        if (node := cluster.nodes.get(member.node)) is not None and node.attempt == plan.attempt
        if member.node not in cluster.cut_off
        for trace in node.traces
    }
    ranks = cluster.ranks(plan).values()
    ended = {rank.rank for rank in ranks if rank.has_finished or rank.has_left}
    return judge_late(traces, ended, plan.world_size)


def _of_culprits(
    arrival: Arrival, surest: Finding, cluster: Cluster, plan: Plan
) -> Incident | None:
    """The victim's silence is acted on, and whoever it waits for is named."""
    member = next((m for m in plan.members if arrival.culprits[0] in m.ranks), None)
    node = None if member is None else cluster.nodes.get(member.node)
    if member is None or node is None:
        return None
    culprits = [rank for rank in arrival.culprits if rank in member.ranks]
    victim = f"{surest.evidence[0]}; it waits for others" if surest.evidence else ""
    return Incident(
        "",
        plan.attempt,
        surest.kind.value,
        member.node,
        culprits,
        arrival.confidence,
        since_unix_s=modes.of_hang(culprits, node.findings, surest.since_unix_s),
        evidence=[*arrival.evidence, *filter(None, [victim])],
        signature=_signature(arrival, cluster, plan),
    )


def _of_nobody(arrival: Arrival, surest: Finding, plan: Plan) -> Incident:
    """All came and nothing comes of it: whoever was silent longest is no more to blame for it."""
    evidence = [*arrival.evidence, "so no rank is to blame, but what connects them"]
    return Incident(
        "",
        plan.attempt,
        surest.kind.value,
        since_unix_s=surest.since_unix_s,
        evidence=[*evidence, *surest.evidence],
    )


def _signature(arrival: Arrival, cluster: Cluster, plan: Plan) -> str:
    """What makes two such hangs the same: the same calls part at the same step."""
    rank = cluster.ranks(plan).get(arrival.culprits[0])
    if not arrival.signature or rank is None:
        return ""
    return f"{arrival.signature} at step {rank.step}"


def _incident(
    plan: Plan, finding: Finding, signature: str, reasons: Iterable[str] = ()
) -> Incident:
    more = [reason for reason in reasons if reason not in finding.evidence]
    return Incident(
        "",
        plan.attempt,
        finding.kind.value,
        finding.node,
        list(finding.ranks),
        finding.confidence,
        since_unix_s=finding.since_unix_s,
        evidence=[*finding.evidence, *more],
        signature=signature,
    )
