"""`holdfast nodes show`: all that is known of one node."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator

import click

from holdfast_sidecar.cli.nodes import words
from holdfast_sidecar.cli.nodes.options import job_option, json_option, pick, read_lines
from holdfast_sidecar.cli.nodes.test_page import exertion_lines
from holdfast_sidecar.cli.settings_options import settings_options
from holdfast_sidecar.config.loading import Effective
from holdfast_sidecar.node_lines import NodeLine
from holdfast_sidecar.records.formatting import span


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
        click.echo("\n".join(page(line, time.time())))


def page(line: NodeLine, now_unix_s: float) -> Iterator[str]:
    """Line by line."""
    ranks = f", ranks {', '.join(map(str, line.ranks))}" if line.ranks else ""
    yield f"node {line.node}: {line.place}{ranks}"
    if line.gate is None:
        yield "verdict     none: no sidecar says anything of it"
    else:
        ago = span(max(now_unix_s - line.gate.checked_unix_s, 0.0))
        yield f"verdict     {words.state(line.gate)}, {ago} ago"
        for reason in line.gate.reasons:
            yield f"unfit for   {reason}"
        for why in line.gate.blind:
            yield f"not seen    {why}"
        if line.gate.gpus_all:
            yield f"GPUs        {words.well(line.gate)}"
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
    yield f"outside     from {words.until(one.since_unix_s)} until {words.until(one.until_unix_s)}"
    for evidence in one.evidence:
        yield f"            {evidence}"
    needs = f" of GPU {one.gpu}" if one.gpu else ""
    if one.remedy:
        yield f"            it needs: {one.remedy.replace('_', ' ')}{needs}"
    yield f"            (holdfast node return {one.node})"
