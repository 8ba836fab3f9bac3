"""`holdfast resume`: ends a pause, or lets a node in again that is kept outside."""

from __future__ import annotations

import click

from holdfast import environment
from holdfast_sidecar.cli.asking import ask
from holdfast_sidecar.cli.finding_the_job import find_job
from holdfast_sidecar.cli.pause import PATIENCE_S
from holdfast_sidecar.cli.settings_options import settings_options
from holdfast_sidecar.cli.wishes import LOST, Settled, follow, refuse, running_plan, take_back
from holdfast_sidecar.config.loading import Effective
from holdfast_sidecar.policy.cluster import Cluster


@click.command()
@click.option("--job", envvar=environment.JOB, metavar="NAME", help="Default: the only one here.")
@click.option("--node", default="", metavar="NAME", help="Let this node in again instead.")
@settings_options
def resume(effective: Effective, job: str | None, node: str) -> None:
    """End a pause: what had to wait for it is done now.

    With --node a node is let in again that is kept outside because it was blamed too often, or was
    left out by `holdfast restart --without`; `holdfast status` shows which are.

    \b
      holdfast resume
      holdfast resume --node node7

    \b
    Exit code: 0 it is not paused (any more), or the node may come in
               1 it still is, or has ended; no such node is kept outside
               2 something you gave is wrong
               3 there is no such job
    """
    found = find_job(effective, job)
    store = found.open_store()
    try:
        plan = running_plan(found, store)
        outside = [one.node for one in plan.outside]
        if node and node not in outside:
            named = ", ".join(outside) or "none"
            refuse(found, "changed", f"node {node} is not kept outside (kept outside: {named})")
        request = ask(found, store, "resume", node=node)
        settled = follow(store, found, lambda cluster: look(cluster, request, node), PATIENCE_S)
        if not settled.is_so:
            take_back(store, found, request)
    finally:
        store.close()
    if not settled.is_so:
        refuse(found, "resumed", settled.words)
    click.echo(f"job {found.job}: {settled.words}")


def look(cluster: Cluster, request: str, node: str) -> Settled | str:
    """Whether the leader has taken it out of the plan."""
    plan = cluster.plan
    if request in cluster.requests or plan is None:
        return "waiting for the leader"
    if node:
        is_in = all(one.node != node for one in plan.outside)
        return Settled(is_in, f"node {node} may come in again" if is_in else LOST)
    is_over = plan.pause is None
    return Settled(is_over, "nothing is paused any more" if is_over else LOST)
