"""How a job stands, as a traffic light and in one sentence; what else is wrong, in one each."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.incidents.explain import UNDECIDED
from holdfast_sidecar.live.scene import Scene
from holdfast_sidecar.live.view import IncidentView
from holdfast_sidecar.records import formatting
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.formatting import span
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.standing import ills, is_doubt, is_worth_knowing

GREEN, YELLOW, RED, GREY = "green", "yellow", "red", "grey"

WORST_FIRST = (RED, YELLOW, GREY, GREEN)

Line = tuple[str, str]
"""A light, and what it stands for."""

TOLD_BY_JUDGE = frozenset({Kind.STRAGGLER, Kind.STORE_AWAY, Kind.NODE_LOST})
"""Findings that are told here in words of their own."""


def judge(scene: Scene, incidents: list[IncidentView]) -> list[Line]:
    """The worst first; never empty."""
    lines = list(_lines(scene, incidents))
    return sorted(lines, key=lambda line: WORST_FIRST.index(line[0])) or [_well(scene)]


def _lines(scene: Scene, incidents: list[IncidentView]) -> Iterator[Line]:
    if not scene.store_up:
        yield YELLOW, _away(scene)
    plan = scene.plan
    if plan is not None and scene.is_over:
        yield _ended(plan)
        return
    open_incident = incidents[0] if incidents and not incidents[0].is_over else None
    is_down = plan is not None and plan.state in ("evidence", "ended")
    if open_incident is not None and is_down and scene.waiting:
        yield RED, f"it waits: {scene.waiting}; {_without_outlook(open_incident)}"
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


def _without_outlook(incident: IncidentView) -> str:
    """What happened: that nothing is decided is not so where it is known what is waited for."""
    return incident.title.removesuffix(f"; {UNDECIDED}.")


def _away(scene: Scene) -> str:
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


def _slow(scene: Scene) -> Iterator[Line]:
    """Who may be quick again in a moment is in the table, and no trouble."""
    standing = scene.standing
    lasting = [] if standing is None else [one for one in standing.slow if one.is_persistent]
    for one in sorted(lasting, key=lambda one: -one.gain):
        yield YELLOW, formatting.brief(one)


def _well(scene: Scene) -> Line:
    if scene.plan is None:
        return GREY, "no attempt has been formed yet"
    return GREEN, "running, and nothing is wrong"
