"""Options that the commands about nodes share, and finding what they are about."""

from __future__ import annotations

import time

import click

from holdfast import environment
from holdfast_sidecar.cli.finding_the_job import FoundJob, find_job
from holdfast_sidecar.cli.looking_twice import read_twice
from holdfast_sidecar.config.loading import Effective
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.node_lines import NodeLine, node_lines

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
