"""`holdfast nodes`: which nodes a job has, whether they are fit, and who is kept outside why."""

from __future__ import annotations

import dataclasses
import json
import sys
import time

import click

from holdfast_sidecar.cli.find_job import FoundJob, find_job
from holdfast_sidecar.cli.job import PATIENCE_S, look_at_restart, save_first
from holdfast_sidecar.cli.nodes import (
    exertion_lines,
    job_option,
    json_option,
    pick,
    print_list,
    read_lines,
    show_command,
    until,
)
from holdfast_sidecar.cli.options import settings_options
from holdfast_sidecar.cli.requests import (
    LOST,
    Settled,
    ask,
    confirm_job,
    follow,
    look_up,
    refuse,
    take_back,
    yes_option,
)
from holdfast_sidecar.components.health_check.checks import compare
from holdfast_sidecar.config.loading import Effective, read_seconds
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.policy.cluster import Cluster, parse_cluster
from holdfast_sidecar.policy.quarantine import DRAIN, RETURN
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.plan import TERMINAL
from holdfast_sidecar.records.reports import Exertion, NodeReport
from holdfast_sidecar.store.protocol import Section, Store, View

# `holdfast node`: takes a node out of a job, and lets it in again.


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


def look_at_node(cluster: Cluster, request: str, name: str, is_out: bool) -> Settled | str:
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
    settled = follow(
        store, found, lambda cluster: look_at_node(cluster, request, name, is_out), PATIENCE_S
    )
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


# `holdfast nodes test`: asks a node's sidecar for some seconds of work, and waits for it.

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
            settled = follow(
                store, found, lambda cluster: look_at_test(cluster, node, request), patience_s
            )
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


def look_at_test(cluster: Cluster, node: str, request: str) -> Settled | str:
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


@click.group(invoke_without_command=True)
@job_option
@json_option
@settings_options
@click.pass_context
def nodes(context: click.Context, effective: Effective, job: str | None, as_json: bool) -> None:
    """List a job's nodes: who trains, who waits, who is fit, who is kept outside and why.

    A node that is unfit waits outside, and a spare is taken in its place; what its health gate
    looks at is in docs/nodes.md. `holdfast node drain` takes a node out by hand.

    \b
      holdfast nodes
      holdfast nodes --json | jq '.[] | select(.gate.state == "unfit") | .node'
      holdfast nodes show node7            all that is known of one
      holdfast nodes test node7            seconds of work, beside the job's other nodes

    \b
    Exit code: 0 listed
               1 the job's server does not answer
               2 something you gave is wrong
               3 there is no such job
    """
    if context.invoked_subcommand is None:
        print_list(effective, job, as_json)
    for name in ("job", "as_json"):
        is_given = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if context.invoked_subcommand is not None and is_given:
            option = "--json" if name == "as_json" else "--job"
            raise click.UsageError(f"write {option} behind {context.invoked_subcommand}")


for command in (show_command, test_command):
    nodes.add_command(command)
