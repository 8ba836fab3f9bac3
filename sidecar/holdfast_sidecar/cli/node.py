"""`holdfast node`: takes a node out of a job, and lets it in again."""

from __future__ import annotations

import time

import click

from holdfast_sidecar.cli.asking import ask, confirm_job, look_up, yes_option
from holdfast_sidecar.cli.finding_the_job import FoundJob, find_job
from holdfast_sidecar.cli.nodes.options import job_option
from holdfast_sidecar.cli.nodes.words import until
from holdfast_sidecar.cli.pause import PATIENCE_S
from holdfast_sidecar.cli.restart import look as look_at_restart
from holdfast_sidecar.cli.restart import save_first
from holdfast_sidecar.cli.settings_options import settings_options
from holdfast_sidecar.cli.wishes import LOST, Settled, follow, refuse, take_back
from holdfast_sidecar.config.loading import Effective, read_seconds
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.policy.cluster import Cluster, parse_cluster
from holdfast_sidecar.policy.quarantine import DRAIN, RETURN
from holdfast_sidecar.records.plan import TERMINAL
from holdfast_sidecar.store.protocol import Store


@click.group()
def node() -> None:
    """Take a node out of a job, and let it in again. `holdfast nodes` lists them.

    \b
      holdfast node drain node7 --for 24h --reason "its fan is loud"
      holdfast node drain node7 --now                 and restart the job without it
      holdfast node return node7
    """


@node.command()
@click.argument("name", metavar="NODE")
@job_option
@click.option("--for", "duration", default="24h", show_default=True, help="It ends by itself then.")
@click.option("--reason", default="", help="For those who wonder.")
@click.option("--now", is_flag=True, help="Restart without it, after a checkpoint.")
@click.option("--save/--no-save", default=True, help="With --now: that checkpoint (the default).")
@click.option("--force", is_flag=True, help="Although too few nodes are left: the job waits then.")
@click.option("--timeout", default="5m", show_default=True, help="How long to wait, with --now.")
@yes_option
@settings_options
def drain(
    effective: Effective,
    name: str,
    job: str | None,
    duration: str,
    reason: str,
    now: bool,
    save: bool,
    force: bool,
    timeout: str,
    yes: bool,
) -> None:
    """Keep a node outside for a while: no attempt takes it in.

    What runs there now runs on until the next attempt, unless you say --now. A drained node is not
    let in though the job wait for nodes; so a drain that would leave too few is refused, unless you
    say --force. Draining again replaces the end and the reason. It works before the job's first
    attempt, too.

    \b
      holdfast node drain node7
      holdfast node drain node7 --for 3d --reason "waits for a new board" --now

    \b
    Exit code: 0 it is (and with --now the ranks step again without it)
               1 it is not: refused, or nobody answered in time, or the job has ended
               2 something you gave is wrong (an unknown node: those there are are listed)
               3 there is no such job
    """
    for_s, patience_s = read_seconds("--for", duration), read_seconds("--timeout", timeout)
    if for_s <= 0:
        raise BadInput(f"--for {duration!r}: a drain must have a length")
    found = find_job(effective, job)
    store = found.open_store()
    try:
        cluster = _open_job(found, store)
        check_known(found, cluster, name)
        what = f"keep node {name} out of"
        confirm_job(found, look_up(found, store), is_named=yes or job is not None, what=what)
        plan = cluster.plan
        members = [] if plan is None else [member.node for member in plan.members]
        restarts = now and name in members
        if restarts and plan is not None and plan.pause is not None:
            refuse(found, "restarted", "it is paused (holdfast resume)")
        if restarts and save:
            save_first(store, found, patience_s, name)
        request = ask(found, store, DRAIN, reason=reason, for_s=for_s, node=name, is_forced=force)
        _settle(store, found, request, name, is_out=True)
        end = until(time.time() + for_s)
        click.echo(f"job {found.job}: node {name} is kept outside until {end}", nl=False)
        trains = plan is not None and name in members and not restarts
        click.echo(" (it trains on in this attempt; --now restarts without it)" if trains else "")
        if restarts and plan is not None:
            _restart(store, found, plan.attempt, f"without node {name}", patience_s)
    finally:
        store.close()


@node.command("return")
@click.argument("name", metavar="NODE")
@job_option
@settings_options
def return_command(effective: Effective, name: str, job: str | None) -> None:
    """Let a node in again that was drained, or is kept outside because it was blamed.

    The job takes it in when there is room for it: as a spare, in the next attempt, or by growing.
    A node that its own health gate finds unfit stays outside until that is over.

    \b
      holdfast node return node7

    \b
    Exit code: 0 it may come in
               1 it is not kept outside (those that are are listed), or nobody answered in time
               2 something you gave is wrong
               3 there is no such job
    """
    found = find_job(effective, job)
    store = found.open_store()
    try:
        # Of a job that has ended, too: what stands in its plan holds for its next run.
        cluster = parse_cluster(look_up(found, store))
        outside = [one.node for one in cluster.outside()]
        if name not in outside:
            check_known(found, cluster, name)
            named = ", ".join(outside) or "none"
            refuse(found, "changed", f"node {name} is not kept outside (kept outside: {named})")
        for pending in cluster.requests.values():
            if (pending.kind, pending.node) == (DRAIN, name):
                take_back(store, found, pending.identifier)
        if cluster.plan is not None:
            request = ask(found, store, RETURN, node=name)
            if cluster.plan.state not in TERMINAL:
                _settle(store, found, request, name, is_out=False)
        click.echo(f"job {found.job}: node {name} may come in again{_but_unfit(cluster, name)}")
    finally:
        store.close()


def check_known(found: FoundJob, cluster: Cluster, name: str) -> None:
    """BadInput for a node that nobody knows."""
    if name not in cluster.agents:
        known = ", ".join(sorted(cluster.agents)) or "none yet"
        raise BadInput(f"job {found.job} has no node {name} (there are: {known})")


def look(cluster: Cluster, request: str, name: str, is_out: bool) -> Settled | str:
    """Whether the leader has put it into the plan; without a plan the request itself stands."""
    wish, plan = cluster.requests.get(request), cluster.plan
    if wish is not None and wish.refused:
        return Settled(False, wish.refused)
    if plan is None and is_out:
        return Settled(wish is not None, "" if wish is not None else LOST)
    if wish is not None or plan is None:
        return "waiting for the leader"
    is_so = any(one.node == name for one in plan.outside) == is_out
    return Settled(is_so, "" if is_so else LOST)


def _open_job(found: FoundJob, store: Store) -> Cluster:
    """The job as it is; ClickException when it has ended."""
    cluster = parse_cluster(look_up(found, store))
    plan = cluster.plan
    if plan is not None and plan.state in TERMINAL:
        raise click.ClickException(f"job {found.job} has ended: {plan.message or plan.state}")
    return cluster


def _settle(store: Store, found: FoundJob, request: str, name: str, is_out: bool) -> None:
    settled = follow(store, found, lambda cluster: look(cluster, request, name, is_out), PATIENCE_S)
    if not settled.is_so:
        take_back(store, found, request)
        refuse(found, "changed", settled.words)


def _restart(store: Store, found: FoundJob, attempt: int, reason: str, patience_s: float) -> None:
    request = ask(found, store, "restart", reason=reason)
    settled = follow(
        store, found, lambda cluster: look_at_restart(cluster, request, attempt), patience_s
    )
    if not settled.is_so:
        take_back(store, found, request)
        refuse(found, "restarted", settled.words)
    click.echo(f"job {found.job}: {settled.words}")


def _but_unfit(cluster: Cluster, name: str) -> str:
    report = cluster.nodes.get(name)
    if report is None or report.gate is None or report.gate.state != "unfit":
        return ""
    return f", once it is fit: {'; '.join(report.gate.reasons)}"
