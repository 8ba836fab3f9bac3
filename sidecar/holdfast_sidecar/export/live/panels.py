"""Where the run's time went, as a live view shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.export.live.context import SILENT, LiveContext
from holdfast_sidecar.export.live.view import (
    INCIDENTS,
    CheckpointView,
    FindingView,
    IncidentView,
    NodeView,
    SlowView,
)
from holdfast_sidecar.export.status import ills, is_doubt, is_worth_knowing, newest_checkpoint
from holdfast_sidecar.incidents.advice import advise
from holdfast_sidecar.incidents.explain import UNDECIDED, IncidentStory, sum_up, tell, whom
from holdfast_sidecar.performance.goodput.costs import ettr, goodput
from holdfast_sidecar.policy.checkpoint_schedule import target_s, work_out
from holdfast_sidecar.policy.quarantine import is_kept_out
from holdfast_sidecar.records import formatting
from holdfast_sidecar.records.account import MICRO, PENDING, Account
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.formatting import span
from holdfast_sidecar.records.plan import Incident, Plan
from holdfast_sidecar.records.steps import Slowness, SlownessReport


@dataclass(frozen=True)
class AccountView:
    """Empty and None until it is known."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    """Category -> seconds; `pending`: training whose steps have not ended yet."""
    lost_s: float | None = None
    goodput: float | None = None
    ettr: float | None = None


def account_of(account: Account | None) -> AccountView:
    """What stands in the account."""
    if account is None:
        return AccountView()
    told = {**account.micros, PENDING: account.pending_us}
    return AccountView(
        {name: micros / MICRO for name, micros in told.items() if micros > 0},
        account.lost_us / MICRO,
        goodput(account),
        ettr(account),
    )


# What the job could go back to, as a live view shows it.


def checkpoint_of(scene: LiveContext) -> CheckpointView:
    """The newest state on storage and in memory, and what is on its way."""
    durable = None if scene.view is None else newest_checkpoint(scene.view)
    order = scene.cluster.checkpoint
    is_writing = order is not None and order.state in ("armed", "writing") and not scene.is_over
    return CheckpointView(
        durable_step=None if durable is None else durable.step,
        durable_unix_s=None if durable is None else durable.at_unix_s,
        snapshot_step=_snapshot_step(scene),
        interval_s=_interval_s(scene),
        writing_step=order.step if order is not None and is_writing else None,
        writing_share=_share(scene, order.identifier) if order is not None and is_writing else None,
    )


def _snapshot_step(scene: LiveContext) -> int | None:
    """The newest that any node's ranks know to exist on all ranks."""
    plan = scene.plan
    newest = [
        report.snapshot.newest
        for report in scene.cluster.nodes.values()
        if report.snapshot is not None
        and plan is not None
        and report.snapshot.attempt == plan.attempt
    ]
    known = max(newest, default=-1)
    return known if known >= 0 else None


def _interval_s(scene: LiveContext) -> float | None:
    settings = _settings(scene)
    if settings is None or not settings.dir or scene.is_over:
        return None
    return target_s(work_out(scene.cluster, settings, scene.now_unix_s), settings)


def _settings(scene: LiveContext) -> CheckpointSettings | None:
    """The leader's, as far as it is heard; the node's own may be others."""
    if scene.leader is not None and scene.leader.checkpoint is not None:
        return scene.leader.checkpoint
    return None if scene.picture is None else scene.picture.checkpoint_settings


def _share(scene: LiveContext, identifier: str) -> float | None:
    """Of all files those that are written, as far as the nodes tell."""
    parts = [report.saved for report in scene.cluster.nodes.values()]
    told = [part for part in parts if part is not None and part.identifier == identifier]
    total = sum(part.total_bytes for part in told)
    return sum(part.done_bytes for part in told) / total if total else None


# What was found, as a live view shows it.

FINDINGS_SHOWN = 200
"""What has more to say than this has one trouble, not two hundred."""

LONGEST = 300
"""Characters: a stack belongs to `holdfast explain`."""


def findings_of(findings: Iterable[Finding]) -> list[FindingView]:
    """What is acted on first; then the oldest."""
    ordered = sorted(findings, key=lambda one: (not one.acts, one.since_unix_s, one.key))
    return [_finding_view(finding) for finding in ordered[:FINDINGS_SHOWN]]


def _finding_view(finding: Finding) -> FindingView:
    evidence = " ".join(("; ".join(finding.evidence) or finding.what).split())
    told = f": {evidence}" if evidence else ""
    return FindingView(
        kind=finding.kind.value,
        node=finding.node,
        rank=finding.ranks[0] if len(finding.ranks) == 1 else None,
        since_unix_s=finding.since_unix_s,
        acts=finding.acts,
        words=f"{whom(finding.node, finding.ranks)}{told}"[:LONGEST],
    )


# Incidents as a live view shows them: the verdict, and the story in lines.

REASONS, EVIDENCE = 6, 300
"""Reasons that are told, and characters of each: a traceback belongs to `holdfast explain`."""


def incidents_of(incidents: Iterable[Incident]) -> list[IncidentView]:
    """The newest, the newest first."""
    newest = sorted(incidents, key=lambda one: (one.detected_unix_s, one.identifier), reverse=True)
    return [_incident_view(incident, tell(incident)) for incident in newest[:INCIDENTS]]


def _incident_view(incident: Incident, story: IncidentStory) -> IncidentView:
    return IncidentView(
        incident.identifier,
        incident.cause,
        node=incident.culprit_node,
        ranks=list(incident.culprit_ranks),
        since_unix_s=story.chapters[0].at_unix_s,
        detected_unix_s=incident.detected_unix_s,
        recovered_unix_s=incident.recovered_unix_s,
        decided=incident.decided,
        title=sum_up(story),
        story=list(_story_lines(story)),
        is_over=story.is_over,
        lost_s=story.lost_s,
        lost_steps=story.lost_steps,
    )


def _story_lines(story: IncidentStory) -> Iterator[str]:
    for chapter in story.chapters:
        yield f"+{span(chapter.after_s)}: {chapter.what}"
    reasons = story.reasons or [story.signature]
    for reason in [reason for reason in reasons if reason][:REASONS]:
        yield f"because {_shortened(reason)}"
    for step in advise(story):
        yield f"next: {_shortened(step)}"


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= EVIDENCE else f"{line[: EVIDENCE - 1]}…"


# Nodes as a live view shows them: those that have a place, and those that would take one.

GONE = {Kind.NODE_LOST: "lost", Kind.SIDECAR_LOST: "unattended"}
"""What the leader finds of nodes that are not heard any more -> the state of such a node."""


def nodes_of(scene: LiveContext) -> list[NodeView]:
    """Members first, by their place; then the others by name."""
    cluster, plan = scene.cluster, scene.plan
    places = {} if plan is None else {one.node: one.node_rank for one in plan.members}
    names = {*places, *cluster.agents, *cluster.nodes}
    found = Counter(finding.node for finding in scene.findings)
    gone = {finding.node: GONE[finding.kind] for finding in scene.findings if finding.kind in GONE}
    return [
        NodeView(
            node=name,
            is_leader=name == scene.leader_node,
            heartbeat_unix_s=_heard_unix_s(scene, name),
            state=gone.get(name) or _state(scene, name),
            ranks=_ranks(scene, name),
            findings=found[name],
        )
        for name in sorted(names, key=lambda name: (places.get(name, len(names)), name))
    ]


def _heard_unix_s(scene: LiveContext, name: str) -> float | None:
    """Who tells is heard by itself, though its beats come back by way of Redis alone."""
    is_own = name == scene.node and not scene.store_up
    return scene.now_unix_s if is_own else scene.heartbeats.get(name)


def _state(scene: LiveContext, name: str) -> str:
    plan, agent = scene.plan, scene.cluster.agents.get(name)
    is_member = plan is not None and any(one.node == name for one in plan.members)
    if agent is None:
        return "attached" if is_member else ""
    if agent.state == "left":
        return "left"
    if is_member and name in scene.silences and scene.silences[name].kind == SILENT:
        return SILENT
    if is_member:
        return "member"
    outside = [] if plan is None else plan.outside
    return "outside" if is_kept_out(agent, outside) else "spare"


def _ranks(scene: LiveContext, name: str) -> list[int]:
    """By the plan; of a job that somebody else launched, those that the node tells of."""
    plan, report = scene.plan, scene.cluster.nodes.get(name)
    if scene.cluster.plan is None:
        return [] if report is None else sorted(rank.rank for rank in report.ranks)
    members = [] if plan is None else plan.members
    return next((list(one.ranks) for one in members if one.node == name), [])


# Who is slow, as a live view shows it: a line for each rank.

SLOW_SHOWN = 64
"""A switch or a rack slows dozens; who is slow beyond that, `holdfast explain --slow` tells."""


def slow_of(standing: SlownessReport | None) -> list[SlowView]:
    """The dearest first."""
    slow = [] if standing is None else sorted(standing.slow, key=lambda one: -one.gain)
    return [view for one in slow for view in _views(one)][:SLOW_SHOWN]


def _views(one: Slowness) -> Iterator[SlowView]:
    """A node without ranks has a line of its own."""
    for rank in one.ranks or [-1]:
        yield SlowView(
            rank=rank,
            node=one.node,
            percent=round(one.slowdown * 100, 1),
            since_step=one.since_step,
            cause=one.cause.value,
            why=formatting.why(one),
            confidence=one.confidence,
            advice=one.advice,
            gain=one.gain,
        )


# How a job stands, as a traffic light and in one sentence; what else is wrong, in one each.

GREEN, YELLOW, RED, GREY = "green", "yellow", "red", "grey"

WORST_FIRST = (RED, YELLOW, GREY, GREEN)

Line = tuple[str, str]
"""A light, and what it stands for."""

TOLD_BY_JUDGE = frozenset({Kind.STRAGGLER, Kind.STORE_AWAY, Kind.NODE_LOST})
"""Findings that are told here in words of their own."""


def judge(scene: LiveContext, incidents: list[IncidentView]) -> list[Line]:
    """The worst first; never empty."""
    lines = list(_headlines(scene, incidents))
    return sorted(lines, key=lambda line: WORST_FIRST.index(line[0])) or [_well(scene)]


def _headlines(scene: LiveContext, incidents: list[IncidentView]) -> Iterator[Line]:
    if not scene.store_up:
        yield YELLOW, _away(scene)
    plan = scene.plan
    if plan is not None and scene.is_over:
        yield _ended(plan)
        return
    open_incident = incidents[0] if incidents and not incidents[0].is_over else None
    is_down = plan is not None and plan.state in ("evidence", "ended")
    if open_incident is not None and is_down and scene.waiting:
        yield RED, f"it waits: {scene.waiting}; {_without_undecided(open_incident)}"
    else:
        if open_incident is not None:
            yield (RED if is_down else YELLOW), open_incident.title
        if scene.waiting:
            yield YELLOW, f"it waits: {scene.waiting}"
    if scene.view is not None and scene.store_up and not scene.lease.candidate:
        yield YELLOW, "nobody leads"
    yield from _found([one for one in scene.findings if not _is_told_only(one, scene.now_unix_s)])
    if plan is not None and plan.pause is not None:
        reason = f": {plan.pause.reason}" if plan.pause.reason else ""
        yield YELLOW, f"paused by {plan.pause.by}{reason}"
    yield from _slow(scene)


def _without_undecided(incident: IncidentView) -> str:
    """What happened: that nothing is decided is not so where it is known what is waited for."""
    return incident.title.removesuffix(f"; {UNDECIDED}.")


def _away(scene: LiveContext) -> str:
    since = scene.store_away_since_unix_s
    how_long = "" if since is None else f" for {span(max(0.0, scene.now_unix_s - since))}"
    return (
        f"Redis has been away{how_long}: only {scene.node} is seen, all else is as last heard;"
        " nothing is decided for the whole job"
    )


def _ended(plan: Plan) -> Line:
    if plan.state == "done":
        return GREEN, "every rank ended well"
    why = plan.message or plan.cause
    if plan.exit_code:
        return RED, f"stopped with exit code {plan.exit_code}" + (f": {why}" if why else "")
    return GREY, f"stopped: {why}" if why else "stopped"


def _is_told_only(finding: Finding, now_unix_s: float) -> bool:
    """Whether it is in the table and leaves the light as it is."""
    return is_worth_knowing(finding) or is_doubt(finding, now_unix_s - finding.since_unix_s)


def _found(findings: list[Finding]) -> Iterator[Line]:
    # First of all: that others crash when a node is lost follows from it.
    for one in findings:
        if one.kind is Kind.NODE_LOST:
            yield RED, f"node {one.node} is lost"
    told = [one for one in findings if one.kind not in TOLD_BY_JUDGE]
    for line in ills([one for one in told if one.acts]):
        yield RED, line
    for line in ills([one for one in told if not one.acts]):
        yield YELLOW, line


def _slow(scene: LiveContext) -> Iterator[Line]:
    """Who may be quick again in a moment is in the table, and no trouble."""
    standing = scene.standing
    lasting = [] if standing is None else [one for one in standing.slow if one.is_persistent]
    for one in sorted(lasting, key=lambda one: -one.gain):
        yield YELLOW, formatting.brief(one)


def _well(scene: LiveContext) -> Line:
    if scene.plan is None:
        return GREY, "no attempt has been formed yet"
    return GREEN, "running, and nothing is wrong"
