"""`holdfast nodes`: the table."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import click

from holdfast.contract import environment
from holdfast_sidecar.cli.find_job import FoundJob, find_job, read_twice
from holdfast_sidecar.cli.options import settings_options
from holdfast_sidecar.cli.tables import BAD, DOUBTFUL, GOOD, paint, table
from holdfast_sidecar.components.health_check import checks
from holdfast_sidecar.components.health_check.checks import SLOW_RATIO, Compared, compare
from holdfast_sidecar.config.loading import Effective
from holdfast_sidecar.config.settings import BadInput, PolicySettings
from holdfast_sidecar.export.status import NodeStatus, judge
from holdfast_sidecar.policy.budget import RepeatOffender, find_lemons
from holdfast_sidecar.policy.cluster import parse_cluster
from holdfast_sidecar.policy.quarantine import ends_with, find
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.findings import Finding
from holdfast_sidecar.records.formatting import span
from holdfast_sidecar.records.plan import Quarantine
from holdfast_sidecar.records.reports import AgentReport, Exertion, GateVerdict, NodeReport
from holdfast_sidecar.store.protocol import Section, View

# A job's nodes as `holdfast nodes` tells of them. Pure, out of two readings of the store.

AWAY, LEFT, OUTSIDE, SPARE, UNFIT, WAITING = "away", "left", "outside", "spare", "unfit", "waiting"
"""Places of nodes that are not in the attempt."""


@dataclass(frozen=True)
class NodeLine:
    """One node."""

    node: str
    place: str
    """`in attempt` with its node rank, or one of the words above."""
    node_rank: int | None = None
    launcher: bool | None = None
    """Whether it is alive; None: there is none."""
    sidecar: bool | None = None
    ranks: list[int] = field(default_factory=list)
    gate: GateVerdict | None = None
    """None: its sidecar says nothing (any more)."""
    quarantine: Quarantine | None = None
    exertion: Exertion | None = None
    compared: list[Compared] = field(default_factory=list)
    """Its figures beside those of the other nodes."""
    findings: list[Finding] = field(default_factory=list)
    lemon: RepeatOffender | None = None
    """What is held against its machine; None: it was never blamed."""
    has_job_ended: bool = False


def node_lines(
    job: str, before: View, after: View, policy: PolicySettings, now_unix_s: float
) -> list[NodeLine]:
    """Members first, by rank; then the others, by name."""
    standing = judge(job, before, after)
    lines = [*_present(standing.nodes, after), *_away(standing.nodes, after)]
    found = find_lemons(parse_cluster(after).incidents.values(), policy, now_unix_s)
    lemons = {lemon.node: lemon for lemon in found}
    is_over = standing.has_ended
    told = (_as_left(line) if is_over and line.launcher is False else line for line in lines)
    return [
        dataclasses.replace(line, lemon=lemons.get(line.node), has_job_ended=is_over)
        for line in told
    ]


def _as_left(line: NodeLine) -> NodeLine:
    """Once the job has ended, whose launcher is silent has gone with it."""
    return dataclasses.replace(line, place=LEFT) if line.node_rank is not None else line


def _present(nodes: list[NodeStatus], view: View) -> Iterator[NodeLine]:
    cluster = parse_cluster(view)
    outside, has_attempt = cluster.outside(), cluster.plan is not None
    reports = {name: decode(NodeReport, text) for name, text in view.section(Section.NODES).items()}
    tested = {
        name: report.exertion
        for name, report in reports.items()
        if report is not None and report.exertion is not None
    }
    for node in nodes:
        agent = decode(AgentReport, view.section(Section.AGENTS).get(node.node, ""))
        report = reports.get(node.node) if node.sidecar else None
        kept_out = None if agent is None else find(agent, outside)
        verdict = None if report is None else report.gate
        exertion = tested.get(node.node)
        others = [one for name, one in tested.items() if name != node.node]
        yield NodeLine(
            node.node,
            _place(node, kept_out, verdict, has_attempt),
            node.node_rank,
            node.launcher,
            node.sidecar,
            [rank.rank for rank in node.ranks],
            verdict,
            kept_out,
            exertion,
            [] if exertion is None else compare(exertion, others),
            [] if report is None else report.findings,
        )


def _place(
    node: NodeStatus,
    kept_out: Quarantine | None,
    verdict: GateVerdict | None,
    has_attempt: bool,
) -> str:
    if node.node_rank is not None:
        return f"node rank {node.node_rank}"
    if node.state == LEFT:
        return LEFT
    if kept_out is not None:
        return OUTSIDE
    if verdict is not None and verdict.state == "unfit":
        return UNFIT
    if node.launcher is None or node.is_lost:
        return AWAY
    return SPARE if has_attempt else WAITING


def _away(nodes: list[NodeStatus], view: View) -> Iterator[NodeLine]:
    """Those that are kept outside and have gone."""
    here = {node.node for node in nodes}
    for one in parse_cluster(view).outside():
        if one.node not in here:
            yield NodeLine(one.node, AWAY, quarantine=one)


# Short words for what is known of a node.

COLOURS = {"fit": GOOD, "unfit": BAD}


def gpus(verdict: GateVerdict | None) -> str:
    """How many are well, of how many there should be."""
    if verdict is None or not verdict.gpus_all:
        return "-"
    if verdict.gpus is None:
        return paint(f"?/{verdict.gpus_all}", DOUBTFUL)
    told = f"{verdict.gpus}/{verdict.gpus_all}"
    return told if verdict.gpus >= verdict.gpus_all else paint(told, BAD)


def well(verdict: GateVerdict) -> str:
    """The same in a sentence."""
    if verdict.gpus is None:
        return f"{verdict.gpus_all}, how they are is not known: the driver says nothing"
    return f"{verdict.gpus} of {verdict.gpus_all} are well"


def state(verdict: GateVerdict | None) -> str:
    """The verdict in a word."""
    if verdict is None:
        return "-"
    if verdict.state == "fit" and verdict.blind:
        return paint("fit (blind)", DOUBTFUL)
    return paint(verdict.state, COLOURS.get(verdict.state, DOUBTFUL))


def blamed(lemon: RepeatOffender | None) -> str:
    """What still counts against its machine, of how many failures in all; nothing for most nodes.

    What it is kept outside for until it is replaced, or a person's word, is answered by that: then
    nothing counts of what it was blamed for.
    """
    return "-" if lemon is None else f"{lemon.score:.1f} of {sum(lemon.blamed.values())}"


def why(line: NodeLine, now_unix_s: float) -> str:
    """The one thing that a person should hear first."""
    if line.quarantine is not None:
        left = span(max(line.quarantine.until_unix_s - now_unix_s, 0.0))
        mended = ends_with(line.quarantine, now_unix_s)
        most = f"until {mended}, at most for another {left}" if mended else f"for another {left}"
        return f"outside {most}: {'; '.join(line.quarantine.evidence[:1])}"
    if line.gate is not None and line.gate.reasons:
        return line.gate.reasons[0]
    if line.gate is not None and line.gate.blind:
        return line.gate.blind[0]
    if line.has_job_ended and not (line.launcher or line.sidecar):
        return "the job has ended"
    if line.launcher is False:
        return "its launcher is silent"
    return "its sidecar is silent" if line.sidecar is False else ""


def until(unix_s: float) -> str:
    """A day and a time of this machine."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix_s))


def figure(name: str, value: float) -> str:
    """What was measured, as a data sheet has it."""
    if "flops" in name:
        return f"{value / 1e12:.1f} TFLOP/s" if value >= 1e12 else f"{value / 1e9:.1f} GFLOP/s"
    return f"{value / 1e9:.1f} GB/s"


# Options that the commands about nodes share, and finding what they are about.

job_option = click.option(
    "--job", envvar=environment.JOB, metavar="NAME", help="Default: the only one here."
)
json_option = click.option("--json", "as_json", is_flag=True, help="For scripts.")


def read_lines(effective: Effective, job: str | None) -> tuple[FoundJob, list[NodeLine]]:
    """A job and its nodes; what `store_away` says where its server does not answer."""
    found = find_job(effective, job)
    before, after = read_twice(found, effective.settings.sidecar.node_timeout_s)
    policy = effective.settings.policy
    return found, node_lines(found.job, before, after, policy, time.time())


def pick(lines: list[NodeLine], job: str, node: str) -> NodeLine:
    """The node of this name; BadInput lists those there are."""
    for line in lines:
        if line.node == node:
            return line
    known = ", ".join(line.node for line in lines) or "none"
    raise BadInput(f"job {job} has no node {node} (there are: {known})")


HEADINGS = ("node", "place", "ranks", "GPUs", "verdict", "blamed", "why")


def print_list(effective: Effective, job: str | None, as_json: bool) -> None:
    """The nodes of a job, for people or for scripts."""
    _, lines = read_lines(effective, job)
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(line) for line in lines], indent=2))
    else:
        click.echo(list_page(lines, time.time()))


def list_page(lines: list[NodeLine], now_unix_s: float) -> str:
    """One row a node."""
    if not lines:
        return "no node has joined yet"
    return table(HEADINGS, [_row(line, now_unix_s) for line in lines])


def _row(line: NodeLine, now_unix_s: float) -> list[str]:
    return [
        line.node,
        line.place,
        ", ".join(map(str, line.ranks)) or "-",
        gpus(line.gate),
        state(line.gate),
        blamed(line.lemon),
        why(line, now_unix_s),
    ]


# A node's test as a page for people.


def exertion_lines(
    exertion: Exertion, compared: Sequence[Compared], now_unix_s: float
) -> Iterator[str]:
    """What the newest test came to."""
    if not exertion.is_over:
        yield f"test        under way: {exertion.reason}"
        return
    if exertion.state != "done":
        yield f"test        not made: {exertion.reason}"
        return
    ago = span(max(now_unix_s - exertion.ended_unix_s, 0.0))
    yield f"test        {exertion.devices} x {exertion.device}, {span(exertion.took_s)}, {ago} ago"
    for wrong in exertion.wrong:
        yield f"            {paint('wrong', BAD)}: {wrong}"
    for one in compared:
        name = checks.words(one.name)
        yield f"            {name:<11} {figure(one.name, one.value)}{_beside(one)}"


def _beside(one: Compared) -> str:
    if one.ratio is None:
        return " (no other node like it was tested)"
    told = f"{one.ratio:.0%} of the others' median"
    return f" ({paint(told, DOUBTFUL) + ', slow' if one.ratio < SLOW_RATIO else told})"


# `holdfast nodes show`: all that is known of one node.


@click.command("show")
@click.argument("node")
@job_option
@json_option
@settings_options
def show_command(effective: Effective, node: str, job: str | None, as_json: bool) -> None:
    """Show all that is known of one node.

    Its place in the job, the verdict of its health gate with every reason and what the gate can't
    see, why and until when it is kept outside, its newest test beside those of the other nodes, and
    what is found wrong on it now.

    \b
      holdfast nodes show node7
    """
    found, lines = read_lines(effective, job)
    line = pick(lines, found.job, node)
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(line), indent=2))
    else:
        click.echo("\n".join(node_page(line, time.time())))


def node_page(line: NodeLine, now_unix_s: float) -> Iterator[str]:
    """Line by line."""
    ranks = f", ranks {', '.join(map(str, line.ranks))}" if line.ranks else ""
    yield f"node {line.node}: {line.place}{ranks}"
    if line.gate is None:
        yield "verdict     none: no sidecar says anything of it"
    else:
        ago = span(max(now_unix_s - line.gate.checked_unix_s, 0.0))
        yield f"verdict     {state(line.gate)}, {ago} ago"
        for reason in line.gate.reasons:
            yield f"unfit for   {reason}"
        for why in line.gate.blind:
            yield f"not seen    {why}"
        if line.gate.gpus_all:
            yield f"GPUs        {well(line.gate)}"
    yield from _quarantine(line)
    if line.lemon is not None:
        often = ", ".join(f"{count} {cause}" for cause, count in line.lemon.blamed.items())
        yield f"blamed for  {often}; {line.lemon.score:.1f} still counts against it"
    if line.exertion is not None:
        yield from exertion_lines(line.exertion, line.compared, now_unix_s)
    for finding in line.findings:
        yield f"found       {finding.kind.value}: {'; '.join(finding.evidence)}"


def _quarantine(line: NodeLine) -> Iterator[str]:
    one = line.quarantine
    if one is None:
        return
    yield f"outside     from {until(one.since_unix_s)} until {until(one.until_unix_s)}"
    for evidence in one.evidence:
        yield f"            {evidence}"
    needs = f" of GPU {one.gpu}" if one.gpu else ""
    if one.remedy:
        yield f"            it needs: {one.remedy.replace('_', ' ')}{needs}"
    yield f"            (holdfast node return {one.node})"
