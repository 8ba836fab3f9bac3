"""`holdfast nodes`: the table."""

from __future__ import annotations

import dataclasses
import json
import time

import click

from holdfast_sidecar.cli.nodes import words
from holdfast_sidecar.cli.nodes.options import read_lines
from holdfast_sidecar.cli.table import table
from holdfast_sidecar.config.loading import Effective
from holdfast_sidecar.node_lines import NodeLine

HEADINGS = ("node", "place", "ranks", "GPUs", "verdict", "blamed", "why")


def print_list(effective: Effective, job: str | None, as_json: bool) -> None:
    """The nodes of a job, for people or for scripts."""
    _, lines = read_lines(effective, job)
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(line) for line in lines], indent=2))
    else:
        click.echo(page(lines, time.time()))


def page(lines: list[NodeLine], now_unix_s: float) -> str:
    """One row a node."""
    if not lines:
        return "no node has joined yet"
    return table(HEADINGS, [_row(line, now_unix_s) for line in lines])


def _row(line: NodeLine, now_unix_s: float) -> list[str]:
    return [
        line.node,
        line.place,
        ", ".join(map(str, line.ranks)) or "-",
        words.gpus(line.gate),
        words.state(line.gate),
        words.blamed(line.lemon),
        words.why(line, now_unix_s),
    ]
