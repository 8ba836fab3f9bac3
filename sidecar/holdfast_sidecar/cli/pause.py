"""`holdfast pause`: for a while nothing is done about a job's faults, and everybody is told."""

from __future__ import annotations

import time

import click

from holdfast import environment
from holdfast_sidecar.cli.asking import ask, confirm_job, look_up, yes_option
from holdfast_sidecar.cli.finding_the_job import find_job
from holdfast_sidecar.cli.settings_options import settings_options
from holdfast_sidecar.cli.wishes import LOST, Settled, follow, refuse, running_plan, take_back
from holdfast_sidecar.config.loading import Effective, read_seconds
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.formatting import span

PATIENCE_S = 30.0
"""A leader answers within a heartbeat, and another one is found within a few seconds."""


@click.command()
@click.option("--job", envvar=environment.JOB, metavar="NAME", help="Else you are asked.")
@click.option("--for", "duration", default="1h", show_default=True, help="It ends by itself then.")
@click.option("--reason", default="", help="For those who wonder.")
@yes_option
@settings_options
def pause(effective: Effective, job: str | None, duration: str, reason: str, yes: bool) -> None:
    """Have nothing done about faults for a while: no rank is ended, no attempt is opened.

    For work on what the job stands on: a switch, the storage, a debugger on a rank. Training goes
    on, and so do checkpoints, metrics and findings; what would have been done is recorded. A job
    that breaks meanwhile waits for the end of the pause. A scheduler's deadline and `holdfast stop`
    are minded all the same. Pausing again replaces the end and the reason.

    \b
      holdfast pause --job chargpt --for 30m --reason "new switch in rack 4"
      holdfast resume

    \b
    Exit code: 0 it is paused
               1 it is not, or has ended
               2 something you gave is wrong
               3 there is no such job
    """
    for_s = read_seconds("--for", duration)
    if for_s <= 0:
        raise BadInput(f"--for {duration!r}: a pause must have a length")
    found = find_job(effective, job)
    store = found.open_store()
    try:
        running_plan(found, store)
        confirm_job(found, look_up(found, store), is_named=yes or job is not None, what="pause")
        request = ask(found, store, "pause", reason=reason, for_s=for_s)
        settled = follow(store, found, lambda cluster: look(cluster, request), PATIENCE_S)
        if not settled.is_so:
            take_back(store, found, request)
    finally:
        store.close()
    if not settled.is_so:
        refuse(found, "paused", settled.words)
    until = time.strftime("%H:%M:%S", time.localtime(time.time() + for_s))
    click.echo(f"job {found.job} is paused for {span(for_s)}, until {until} (holdfast resume)")


def look(cluster: Cluster, request: str) -> Settled | str:
    """Whether the leader has put the pause into the plan."""
    if request in cluster.requests:
        return "waiting for the leader"
    is_paused = cluster.plan is not None and cluster.plan.pause is not None
    return Settled(is_paused, "paused" if is_paused else LOST)
