"""`holdfast nodes test`: asks a node's sidecar for some seconds of work, and waits for it."""

from __future__ import annotations

import dataclasses
import json
import sys
import time

import click

from holdfast_sidecar.cli.asking import ask
from holdfast_sidecar.cli.nodes.options import job_option, json_option, pick, read_lines
from holdfast_sidecar.cli.nodes.test_page import exertion_lines
from holdfast_sidecar.cli.settings_options import settings_options
from holdfast_sidecar.cli.wishes import Settled, follow, take_back
from holdfast_sidecar.components.health_check.checks import compare
from holdfast_sidecar.config.loading import Effective, read_seconds
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.reports import Exertion, NodeReport
from holdfast_sidecar.store.protocol import Section, View

TEST = "test"


@click.command("test")
@click.argument("node")
@job_option
@click.option("--force", is_flag=True, help="Although ranks run there, which slows them down.")
@click.option("--timeout", default="2m", show_default=True, help="How long to wait for it.")
@json_option
@settings_options
def test_command(
    effective: Effective, node: str, job: str | None, force: bool, timeout: str, as_json: bool
) -> None:
    """Put a node to the test: some seconds of products, memory patterns and sums over its ranks.

    On every GPU of the node, or on its CPUs where it has none. Every result is compared with what
    it must be to the last bit, and the speed with the median of those nodes of the job that were
    tested, too. A node with a wrong result is unfit until a test comes out right.

    \b
      holdfast nodes test node7
      for n in node1 node2 node3; do holdfast nodes test $n; done

    \b
    Exit code: 0 nothing was wrong
               1 something was, or it was refused, or not over within the time
               2 something you gave is wrong
               3 there is no such job
    """
    patience_s = read_seconds("--timeout", timeout)
    found, lines = read_lines(effective, job)
    line = pick(lines, found.job, node)
    if not line.sidecar:
        raise click.ClickException(f"node {node} can't be tested: no sidecar of it answers")
    store = found.open_store()
    try:
        request = ask(found, store, TEST, node=node, is_forced=force)
        try:
            settled = follow(store, found, lambda cluster: look(cluster, node, request), patience_s)
        finally:
            take_back(store, found, request)
        view = store.read()
    finally:
        store.close()
    if not settled.is_so:
        click.echo(f"holdfast: node {node} was not tested: {settled.words}", err=True)
        sys.exit(1)
    told = exertions(view)
    own = told.pop(node)
    compared = compare(own, told.values())
    if as_json:
        document = {"node": node, **dataclasses.asdict(own)}
        document["compared"] = [dataclasses.asdict(one) for one in compared]
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo(f"node {node}: {'something is wrong' if own.wrong else 'nothing is wrong'}")
        click.echo("\n".join(exertion_lines(own, compared, time.time())))
    sys.exit(1 if own.wrong else 0)


def look(cluster: Cluster, node: str, request: str) -> Settled | str:
    """How far it is, as the node's sidecar tells."""
    report = cluster.nodes.get(node)
    exertion = None if report is None else report.exertion
    if exertion is None or exertion.asked_by != request:
        return f"waiting for the sidecar of {node}"
    if not exertion.is_over:
        return exertion.reason
    return Settled(exertion.state == "done", exertion.reason)


def exertions(view: View) -> dict[str, Exertion]:
    """The newest test of every node that was tested."""
    reports = ((n, decode(NodeReport, text)) for n, text in view.section(Section.NODES).items())
    return {n: r.exertion for n, r in reports if r is not None and r.exertion is not None}
