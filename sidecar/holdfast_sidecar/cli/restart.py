"""`holdfast restart`: a checkpoint, then a new attempt, then watching until it steps."""

from __future__ import annotations

import sys

import click

from holdfast import environment
from holdfast_sidecar.cli.asking import ask, confirm_job, look_up, yes_option
from holdfast_sidecar.cli.checkpoint.following import follow as follow_checkpoint
from holdfast_sidecar.cli.finding_the_job import FoundJob, find_job
from holdfast_sidecar.cli.progress import ProgressLine
from holdfast_sidecar.cli.settings_options import settings_options
from holdfast_sidecar.cli.wishes import LOST, Settled, follow, refuse, running_plan, take_back
from holdfast_sidecar.config.loading import Effective, read_seconds
from holdfast_sidecar.export.status import newest_checkpoint
from holdfast_sidecar.incidents.explain import lost_s
from holdfast_sidecar.policy.cluster import Cluster, parse_cluster
from holdfast_sidecar.policy.requests import goes_on_from
from holdfast_sidecar.records.formatting import span
from holdfast_sidecar.store.protocol import Store, View


@click.command()
@click.option("--job", envvar=environment.JOB, metavar="NAME", help="Else you are asked.")
@click.option("--save/--no-save", default=True, help="Make a checkpoint first (the default).")
@click.option("--without", "node", default="", metavar="NODE", help="Keep this node outside.")
@click.option("--reason", default="", help="For those who wonder.")
@click.option("--timeout", default="5m", show_default=True, help="How long to wait for it.")
@yes_option
@settings_options
def restart(
    effective: Effective,
    job: str | None,
    save: bool,
    node: str,
    reason: str,
    timeout: str,
    yes: bool,
) -> None:
    """Restart a job's ranks on purpose, and wait until they step again.

    For a changed script or environment of the ranks, or, with --without, to take a node out of the
    job for a day (`holdfast resume --node` lets it in sooner). It uses up none of the restarts that
    the job may have. Launchers and sidecars stay.

    \b
      holdfast restart --job chargpt
      holdfast restart --job chargpt --without node7 --reason "its fan is loud"

    \b
    Exit code: 0 every rank steps again
               1 not within the time, or it was refused (there is no checkpoint, say), or has ended
               2 something you gave is wrong
               3 there is no such job
    """
    patience_s = read_seconds("--timeout", timeout)
    found = find_job(effective, job)
    store = found.open_store()
    try:
        plan = running_plan(found, store)
        if plan.pause is not None:
            refuse(found, "restarted", "it is paused (holdfast resume)")
        view = look_up(found, store)
        confirm_job(found, view, is_named=yes or job is not None, what="restart")
        if save:
            save_first(store, found, patience_s, node)
        request = ask(found, store, "restart", reason=reason, node=node)
        settled = follow(
            store, found, lambda cluster: look(cluster, request, plan.attempt), patience_s
        )
        if not settled.is_so:
            take_back(store, found, request)
    finally:
        store.close()
    if not settled.is_so:
        refuse(found, "restarted", settled.words)
    click.echo(f"job {found.job}: {settled.words}")


def save_first(store: Store, found: FoundJob, patience_s: float, node: str) -> None:
    """Make a checkpoint before a restart; where there is none, the restart is refused."""
    origin = without_saving(look_up(found, store), node)
    progress = ProgressLine(sys.stderr)
    try:
        request = ask(found, store, "checkpoint")
        saved = follow_checkpoint(store, found, request, patience_s, progress)
    finally:
        progress.close()
    if not saved.is_complete:
        refuse(
            found,
            "restarted",
            f"there is no checkpoint: {saved.reason} "
            f"(with --no-save it is restarted all the same, {origin})",
        )
    click.echo(f"saved at step {saved.step}: {saved.path}")


def without_saving(view: View, node: str) -> str:
    """Where the ranks go on from that are restarted as things are; `node` is to be kept outside."""
    if (snapshot := goes_on_from(parse_cluster(view), node)) is not None:
        return f"from {snapshot.words}"
    saved = newest_checkpoint(view)
    return "from nothing" if saved is None else f"from step {saved.step}"


def look(cluster: Cluster, request: str, before: int) -> Settled | str:
    """How far it is. `before`: the attempt that was to be ended."""
    wish, incident, plan = (
        cluster.requests.get(request),
        cluster.incidents.get(request),
        cluster.plan,
    )
    if wish is not None and wish.refused:
        return Settled(False, wish.refused)
    if plan is None:
        return "waiting for the plan"
    if incident is not None and incident.decided == "stop":
        return Settled(False, plan.message)
    if incident is not None and (down_s := lost_s(incident)) is not None:
        origin = f"from step {incident.step_resumed}" if incident.step_resumed else "from nothing"
        return Settled(True, f"attempt {plan.attempt} runs, {origin}, after {span(down_s)}")
    if incident is None and wish is None:
        is_later = plan.attempt > before
        return Settled(is_later, f"attempt {plan.attempt} has begun" if is_later else LOST)
    if plan.attempt > before:
        return f"attempt {plan.attempt} is starting"
    return f"attempt {plan.attempt} is ending" if incident is not None else "waiting for the leader"
