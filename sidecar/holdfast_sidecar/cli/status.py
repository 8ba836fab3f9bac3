"""`holdfast status`: reads the store twice, judges, prints."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NoReturn

import click

from holdfast.contract import environment
from holdfast_sidecar.cli import find_job as store_away
from holdfast_sidecar.cli.find_job import addresses_here, find_job, read_twice
from holdfast_sidecar.cli.options import settings_options
from holdfast_sidecar.cli.recall import AWAY, RememberedJob, remember
from holdfast_sidecar.cli.tables import BAD, DOUBTFUL, GOOD, folded, paint, size, table
from holdfast_sidecar.config.loading import Effective
from holdfast_sidecar.config.paths import state_root
from holdfast_sidecar.export.job_record import read_record
from holdfast_sidecar.export.status import JobStatus, NodeStatus, SnapshotStatus, judge
from holdfast_sidecar.incidents.explain import lost_s, whom
from holdfast_sidecar.performance.slowness import is_fresh
from holdfast_sidecar.policy.quarantine import ends_with
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.formatting import brief, changed, span, who
from holdfast_sidecar.records.plan import (
    DONE,
    TERMINAL,
    WITHHELD,
    HookRun,
    Incident,
    PauseWindow,
    Quarantine,
)
from holdfast_sidecar.records.reports import RankReport

# A job's standing as a page for people. Pure, except that paint looks at the terminal.

HEADING, FINDING = 12, 2
"""Columns at which what is folded goes on."""

SLOW_SHOWN = 3
"""Of those who are slow; a switch or a rack may slow dozens."""


def page(standing: JobStatus, now_unix_s: float) -> str:
    """Everything `status` prints."""
    parts = [
        "\n".join(folded(line, HEADING) for line in _heading(standing, now_unix_s)),
        _nodes(standing) if standing.nodes else "",
        _ranks(standing, now_unix_s) if any(node.ranks for node in standing.nodes) else "",
        "\n".join(folded(_finding(one, now_unix_s), FINDING) for one in standing.findings),
    ]
    return "\n\n".join(part for part in parts if part)


def remembered_page(
    remembered: RememberedJob, now_unix_s: float, addresses: Sequence[str] = ()
) -> str:
    """What `status` prints of a job that is gone, or can't be asked about.

    addresses: of its sidecars on this machine that live.
    """
    job, record, trouble = remembered.job, remembered.record, remembered.trouble
    verdict = paint("in trouble", BAD) if trouble else paint("healthy", GOOD)
    ago = span(max(now_unix_s - remembered.at_unix_s, 0.0))
    how = f"{_last_known(remembered)}, attempt {record.attempt}, {ago} ago"
    lines = [f"job {job}: {how}, {verdict}"]
    if trouble:
        lines.append(f"  {paint('!', BAD)} {trouble}")
    if record.waits:
        lines.append(f"held up     {record.waits}")
    if record.message:
        lines.append(f"said        {record.message}")
    lines += [
        f"page        {page_url(address)} (as its node sees the job)" for address in addresses
    ]
    lines.append(f"came to     step {record.step}")
    if record.checkpoint_dir:
        lines.append(f"saved in    {record.checkpoint_dir} (holdfast checkpoint list --job {job})")
    return "\n".join(lines)


def _last_known(remembered: RememberedJob) -> str:
    record = remembered.record
    if not remembered.is_over:
        return f"last known: {record.state}"
    if record.was_interrupted:
        return "ended: interrupted"
    return f"ended: {record.state if record.state in TERMINAL else 'broken off'}"


def _heading(standing: JobStatus, now_unix_s: float) -> Iterator[str]:
    verdict = paint("healthy", GOOD) if standing.is_healthy else paint("in trouble", BAD)
    attempt = "" if standing.attempt is None else f", attempt {standing.attempt}"
    restarts = f" after {_count(standing.restarts, 'restart')}" if standing.restarts else ""
    ranks = f", {_count(standing.world_size, 'rank')}" if standing.world_size else ""
    yield f"job {standing.job}: {standing.state}{attempt}{restarts}{ranks}, {verdict}"
    for line in standing.trouble:
        yield f"  {paint('!', BAD)} {line}"
    if standing.message:
        yield f"said        {standing.message}"
    if not standing.has_ended:
        leads = f"{standing.leader} (epoch {standing.epoch})" if standing.leader else "nobody"
        yield f"leader      {leads}"
        yield from _page_address(standing)
        yield from _unserved(standing)
        if standing.waiting and standing.state != "waiting":
            yield f"held up     {standing.waiting}"
    if standing.stepless_since_unix_s:
        yield f"starting    no rank has made a step yet, for {_since(standing, now_unix_s)}"
    yield from _arranged(standing, now_unix_s)
    yield from _slow(standing, now_unix_s)
    yield from _changed(standing)
    if standing.order is not None:
        yield f"saving      at step {standing.order.step}"
    if standing.snapshots is not None:
        yield f"snapshots   {_snapshots(standing.snapshots)}"
    if standing.checkpoint is not None:
        saved = standing.checkpoint
        ago = span(now_unix_s - saved.at_unix_s)
        facts = f"{saved.verdict}, {ago} ago, {size(saved.size_bytes)}"
        yield f"checkpoint  step {saved.step}, {facts}, {saved.path}"
    if standing.incident is not None:
        yield f"incident    {_incident(standing.incident, now_unix_s)}"


def _slow(standing: JobStatus, now_unix_s: float) -> Iterator[str]:
    """Who slows the others, those first without whom most would be gained."""
    if standing.slow is None:
        return
    known = standing.slow.slow
    for one in sorted(known, key=lambda one: -one.gain)[:SLOW_SHOWN]:
        passing = "" if one.is_persistent else " (it may pass)"
        if not is_fresh(standing.slow, now_unix_s):
            ago = span(now_unix_s - standing.slow.at_unix_s)
            passing = f" (as of {ago} ago: no step was judged since)"
        yield f"slow        {paint(brief(one), DOUBTFUL)}{passing}"
        if stays := standing.staying.get(who(one)):
            yield f"            not replaced: {stays}"
    if known:
        more = f"{len(known) - SLOW_SHOWN} more; " if len(known) > SLOW_SHOWN else ""
        yield f"            {more}why: holdfast explain --slow {standing.job}"


def _changed(standing: JobStatus) -> Iterator[str]:
    """That all of them take longer than they did: no trouble, and nobody's fault."""
    change = None if standing.slow is None else standing.slow.change
    if change is not None:
        yield f"changed     {changed(change)}"


def _unserved(standing: JobStatus) -> Iterator[str]:
    """Nodes that nobody can watch from outside: no trouble of the job, and no alert tells of it."""
    for node in standing.nodes:
        if node.sidecar and node.unserved:
            lacks = paint("its sidecar serves neither metrics nor a page", DOUBTFUL)
            yield f"unserved    {node.node}: {lacks}: {node.unserved}"


def _page_address(standing: JobStatus) -> Iterator[str]:
    """Where a browser sees the job: its leader's sidecar has all of it, and the past."""
    leader = standing.leader.rpartition("/")[0]
    for node in standing.nodes:
        if node.node == leader and node.sidecar and node.metrics_address:
            yield f"page        {page_url(node.metrics_address)}"


def page_url(address: str) -> str:
    """Where a browser finds what a sidecar at this address shows."""
    return f"{address if '://' in address else f'http://{address}'}/"


def _since(standing: JobStatus, now_unix_s: float) -> str:
    return span(max(now_unix_s - standing.stepless_since_unix_s, 0.0))


def _arranged(standing: JobStatus, now_unix_s: float) -> Iterator[str]:
    """What was arranged about faults, and what is left to people."""
    if standing.pause is not None:
        yield f"paused      {_pause(standing.pause, now_unix_s)}"
    if standing.suggestion:
        yield f"suggested   {paint(standing.suggestion, DOUBTFUL)}"
    for one in standing.outside:
        yield f"kept out    {_outside(one, now_unix_s)}"
    for node in standing.nodes:
        if node.waits_unfit and node.gate is not None:
            why = "; ".join(node.gate.reasons[:1])
            yield f"unfit       {node.node}, not taken in: {why} (holdfast nodes show {node.node})"
    for run in standing.hooks:
        yield f"hook        {_hook(run)}"


def _pause(pause: PauseWindow, now_unix_s: float) -> str:
    why = f": {pause.reason}" if pause.reason else ""
    left = span(max(pause.until_unix_s - now_unix_s, 0.0))
    return f"by {pause.by}, for another {left}{why} (holdfast resume)"


def _outside(one: Quarantine, now_unix_s: float) -> str:
    left = span(max(one.until_unix_s - now_unix_s, 0.0))
    why, mended = "; ".join(one.evidence[:1]), ends_with(one, now_unix_s)
    how_long = f"until {mended}, at most for another {left}" if mended else f"for another {left}"
    return f"{one.node}, {how_long}: {why} (holdfast node return {one.node})"


def _hook(run: HookRun) -> str:
    outcome = run.outcome or f"run by {run.by}"
    shown = paint(outcome, DOUBTFUL) if run.outcome not in ("", DONE) else outcome
    return f"on_{run.event} for {run.node}: {shown}"


def _snapshots(found: SnapshotStatus) -> str:
    if found.every_steps == 0:
        return f"none: {found.reason}"
    often = "step" if found.every_steps == 1 else f"{found.every_steps} steps"
    newest = f"the newest of step {found.newest_step}" if found.newest_step >= 0 else "none yet"
    return f"every {often}, {newest}, {size(found.size_bytes)} of memory"


def _incident(incident: Incident, now_unix_s: float) -> str:
    ago = span(now_unix_s - incident.detected_unix_s)
    recovered = "left alone so far" if incident.decided in WITHHELD else "not recovered"
    if (cost := lost_s(incident)) is not None:
        how = "over by itself after" if incident.decided in WITHHELD else "recovered in"
        recovered = f"{how} {span(cost)}"
    culprit = whom(incident.culprit_node, incident.culprit_ranks, incident.cause)
    return f"{incident.cause}, {culprit}, {ago} ago, {recovered} (holdfast explain)"


def _nodes(standing: JobStatus) -> str:
    spare = "-" if standing.attempt is None else "spare"
    gone = [] if standing.has_ended else [node for node in standing.nodes if node.is_lost]
    kept_out = {node.node: paint("lost", BAD) for node in gone}
    kept_out |= {node.node: "unfit" for node in standing.nodes if node.waits_unfit}
    kept_out |= {one.node: "kept out" for one in standing.outside}
    rows = [
        [
            node.node,
            str(node.node_rank) if node.node_rank is not None else kept_out.get(node.node, spare),
            _life(node.launcher, node.state, "left" if standing.has_ended else ""),
            _life(node.sidecar, "alive", "ended" if standing.has_ended else ""),
            node.mode,
            node.metrics_address,
        ]
        for node in standing.nodes
    ]
    return table(["node", "node rank", "launcher", "sidecar", "mode", "metrics"], rows)


def _life(is_alive: bool | None, state: str, at_the_end: str) -> str:
    """`at_the_end`: what silence means once the job has ended."""
    if is_alive is None:
        return "-"
    if at_the_end and not is_alive:
        return at_the_end
    return state if is_alive or state == "left" else paint("silent", BAD)


def _ranks(standing: JobStatus, now_unix_s: float) -> str:
    rows = [
        _unheard(node, rank, standing, now_unix_s)
        if node.sidecar is False and not standing.has_ended and not rank.has_finished
        else _rank(node.node, rank)
        for node in standing.nodes
        for rank in node.ranks
    ]
    rows.sort(key=lambda row: int(row[0]))
    return table(["rank", "node", "pid", "step", "phase", "for", "step time", "loss"], rows)


def _rank(node: str, rank: RankReport) -> list[str]:
    phase = rank.doing if rank.alive or rank.has_finished else paint("gone", BAD)
    return [
        str(rank.rank),
        node,
        str(rank.pid),
        str(rank.step),
        phase,
        span(rank.phase_age_s),
        span(rank.step_s) if rank.step_s else "-",
        _loss(rank),
    ]


def _unheard(
    node: NodeStatus, rank: RankReport, standing: JobStatus, now_unix_s: float
) -> list[str]:
    """Nobody tells of it any more: how fast it is, and since when in its phase, nobody knows."""
    found = {one.kind: one for one in standing.findings if one.node == node.node}
    gone = found.get(Kind.NODE_LOST) or found.get(Kind.SIDECAR_LOST)
    is_lost = Kind.NODE_LOST in found or node.launcher is False
    phase = paint("lost", BAD) if is_lost else f"{rank.doing} {paint('(last heard)', DOUBTFUL)}"
    silent = "-" if gone is None else span(max(now_unix_s - gone.since_unix_s, 0.0))
    told = [str(rank.rank), node.node, str(rank.pid), str(rank.step)]
    return [*told, phase, silent, "-", "-"]


def _loss(rank: RankReport) -> str:
    if not rank.is_loss_finite:
        return paint("not finite", BAD)
    return "-" if rank.loss is None else f"{rank.loss:.4g}"


def _finding(finding: Finding, now_unix_s: float) -> str:
    since = span(now_unix_s - finding.since_unix_s)
    evidence = f": {'; '.join(finding.evidence)}" if finding.evidence else ""
    return (
        f"{paint(finding.kind.value, DOUBTFUL)}  {whom(finding.node, finding.ranks)}, for {since}, "
        f"{finding.confidence:.0%} sure{evidence}"
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


@click.command()
@click.option("--job", envvar=environment.JOB, metavar="NAME", help="Default: the only one here.")
@click.option("--json", "as_json", is_flag=True, help="For scripts: one JSON object.")
@settings_options
def status(effective: Effective, job: str | None, as_json: bool) -> None:
    """Show how a job stands.

    What is found and needs nothing to be done is shown at the end, and is no trouble.

    Takes a second or two where something is dead: a heartbeat proves life only by moving. With
    --job, a job that is gone, or whose Redis does not answer, is told from what this machine kept;
    where its sidecar is alive here, with the address of the page that shows what that one sees.

    \b
      holdfast status
      holdfast status --job chargpt --redis rediss://redis.example:6379
      holdfast status --json | jq .trouble

    \b
    Exit code: 0 the job is healthy (running, or ended well)
               1 it is in trouble (the reasons are printed)
               2 something you gave is wrong
               3 there is no such job
    """
    try:
        standing = _job_status(effective, job)
    except AWAY as error:
        name = error.job if isinstance(error, store_away.CutOff) else job
        state = None if name is None else state_root(effective.settings.paths) / name
        kept = None if state is None else read_record(state)
        if name is None or state is None or kept is None:
            raise
        _tell_remembered(remember(name, kept, error), list(addresses_here(state)), as_json)
    if as_json:
        healthy = {"is_healthy": standing.is_healthy}
        click.echo(json.dumps(dataclasses.asdict(standing) | healthy, indent=2, allow_nan=False))
    else:
        click.echo(page(standing, time.time()))
    sys.exit(0 if standing.is_healthy else 1)


def _job_status(effective: Effective, job: str | None) -> JobStatus:
    """How the job stands; raises one of AWAY when no store holds it, or none can be asked."""
    found = find_job(effective, job)
    before, after = read_twice(found, effective.settings.sidecar.node_timeout_s)
    return judge(found.job, before, after)


def _tell_remembered(
    remembered: RememberedJob, addresses: Sequence[str], as_json: bool
) -> NoReturn:
    """addresses: of the sidecars here that live, and show what they see by themselves."""
    if remembered.remark:
        click.echo(f"holdfast: {remembered.remark}", err=True)
    trouble = [remembered.trouble] if remembered.trouble else []
    if as_json:
        more = {"job": remembered.job, "at_unix_s": remembered.at_unix_s, "trouble": trouble}
        more |= {"pages": [page_url(one) for one in addresses], "is_healthy": not trouble}
        told = dataclasses.asdict(remembered.record) | more
        click.echo(json.dumps(told, indent=2))
    else:
        click.echo(remembered_page(remembered, time.time(), addresses))
    sys.exit(1 if trouble else 0)
