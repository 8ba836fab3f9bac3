"""`holdfast pause`: for a while nothing is done about a job's faults, and everybody is told."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NoReturn

import click

from holdfast.contract import environment
from holdfast_sidecar.cli.checkpoint import follow_checkpoint
from holdfast_sidecar.cli.find_job import FoundJob, find_job, look_twice
from holdfast_sidecar.cli.options import settings_options
from holdfast_sidecar.cli.requests import (
    LOST,
    Settled,
    ask,
    confirm_job,
    follow,
    look_up,
    refuse,
    running_plan,
    take_back,
    yes_option,
)
from holdfast_sidecar.cli.tables import ProgressLine
from holdfast_sidecar.config.loading import Effective, read_seconds
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.export.status import has_ended, newest_checkpoint
from holdfast_sidecar.incidents.explain import lost_s
from holdfast_sidecar.policy.cluster import Cluster, Heartbeats, beats, parse_cluster
from holdfast_sidecar.policy.requests import goes_on_from
from holdfast_sidecar.records.formatting import span
from holdfast_sidecar.records.plan import TERMINAL
from holdfast_sidecar.store.protocol import Store, StoreUnavailable, View

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
        settled = follow(store, found, lambda cluster: look_at_pause(cluster, request), PATIENCE_S)
        if not settled.is_so:
            take_back(store, found, request)
    finally:
        store.close()
    if not settled.is_so:
        refuse(found, "paused", settled.words)
    until = time.strftime("%H:%M:%S", time.localtime(time.time() + for_s))
    click.echo(f"job {found.job} is paused for {span(for_s)}, until {until} (holdfast resume)")


def look_at_pause(cluster: Cluster, request: str) -> Settled | str:
    """Whether the leader has put the pause into the plan."""
    if request in cluster.requests:
        return "waiting for the leader"
    is_paused = cluster.plan is not None and cluster.plan.pause is not None
    return Settled(is_paused, "paused" if is_paused else LOST)


# `holdfast resume`: ends a pause, or lets a node in again that is kept outside.


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
        settled = follow(
            store, found, lambda cluster: look_at_resume(cluster, request, node), PATIENCE_S
        )
        if not settled.is_so:
            take_back(store, found, request)
    finally:
        store.close()
    if not settled.is_so:
        refuse(found, "resumed", settled.words)
    click.echo(f"job {found.job}: {settled.words}")


def look_at_resume(cluster: Cluster, request: str, node: str) -> Settled | str:
    """Whether the leader has taken it out of the plan."""
    plan = cluster.plan
    if request in cluster.requests or plan is None:
        return "waiting for the leader"
    if node:
        is_in = all(one.node != node for one in plan.outside)
        return Settled(is_in, f"node {node} may come in again" if is_in else LOST)
    is_over = plan.pause is None
    return Settled(is_over, "nothing is paused any more" if is_over else LOST)


# `holdfast restart`: a checkpoint, then a new attempt, then watching until it steps.


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
            store,
            found,
            lambda cluster: look_at_restart(cluster, request, plan.attempt),
            patience_s,
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


def look_at_restart(cluster: Cluster, request: str, before: int) -> Settled | str:
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


# `holdfast stop`: a checkpoint if wanted, then the request, then watching until the end.

LOOK_S = 0.25
"""People notice nothing shorter; a write wakes us sooner anyway."""


@click.command()
@click.option("--job", envvar=environment.JOB, metavar="NAME", help="Else you are asked.")
@click.option("--save", is_flag=True, help="Make a checkpoint first (needs the three lines).")
@click.option("--timeout", default="5m", show_default=True, help="How long to wait for the end.")
@yes_option
@settings_options
def stop(effective: Effective, job: str | None, save: bool, timeout: str, yes: bool) -> None:
    """Stop a job on all its nodes, and wait until it has ended.

    \b
      holdfast stop --job chargpt
      holdfast stop --save                            asks whether the only job here is meant

    \b
    Exit code: 0 the job has ended
               1 it has not within the time, or (with --save) there is no checkpoint, or the job
                 had ended before
               2 something you gave is wrong
               3 there is no such job
    """
    patience_s = read_seconds("--timeout", timeout)
    silence_s = effective.settings.sidecar.node_timeout_s
    found = find_job(effective, job)
    store = found.open_store()
    try:
        view = look_up(found, store)
        if _has_ended(view, store, silence_s):
            _say_what_was(found, view, save)
            return
        confirm_job(found, view, is_named=yes or job is not None, what="stop")
        if save:
            _save(store, found, view, patience_s)
        asked = parse_cluster(look_up(found, store))
        ask(found, store, "stop")
        ended = watch(store, found, Leaving(asked, silence_s), patience_s, click.echo)
    finally:
        store.close()
    if ended is None:
        click.echo(f"holdfast: job {found.job} has not ended within {span(patience_s)}", err=True)
        sys.exit(1)
    click.echo(ended)


def _has_ended(view: View, store: Store, silence_s: float) -> bool:
    """Whether there is nothing to stop: launchers may wait to begin the next run."""
    plan = parse_cluster(view).plan
    if plan is None or plan.state not in TERMINAL:
        return False
    try:
        return has_ended(*look_twice(store, silence_s))
    except StoreUnavailable:
        # A server of the job's own, gone with its last launcher.
        return True


def _say_what_was(found: FoundJob, view: View, save: bool) -> None:
    """Of a job that has ended. Whoever asked for a checkpoint must not believe there is a new
    one."""
    plan = parse_cluster(view).plan
    how = (plan.message or plan.state) if plan else ""
    if save:
        click.echo(
            f"holdfast: nothing was saved: job {found.job} had ended before: {how} "
            "(holdfast checkpoint list shows what there is)",
            err=True,
        )
        sys.exit(1)
    click.echo(f"job {found.job} has ended: {how}")


def _save(store: Store, found: FoundJob, view: View, patience_s: float) -> None:
    """A checkpoint first; without one the job goes on, as nothing can be undone afterwards."""
    plan = parse_cluster(view).plan
    if plan is not None and plan.state in TERMINAL:
        _refuse(found, "its next run has not begun")
    progress = ProgressLine(sys.stderr)
    try:
        saved = follow_checkpoint(
            store, found, ask(found, store, "checkpoint"), patience_s, progress
        )
    finally:
        progress.close()
    if not saved.is_complete:
        _refuse(found, saved.reason)
    click.echo(f"saved at step {saved.step}: {saved.path}")


def _refuse(found: FoundJob, why: str) -> NoReturn:
    click.echo(
        f"holdfast: job {found.job} was not stopped, as there is no checkpoint: {why} "
        "(without --save it is stopped all the same)",
        err=True,
    )
    sys.exit(1)


class Leaving:
    """Which launchers of those that were there when the stop was asked for have still to leave."""

    def __init__(self, asked: Cluster, silence_s: float) -> None:
        self._asked = {agent.incarnation for agent in asked.agents.values()}
        self._silence_s = silence_s
        self._heartbeats = Heartbeats(silence_s, silence_s)

    def nodes(self, cluster: Cluster, server: str, now: float) -> list[str]:
        """Their nodes; `now` is monotonic seconds. Who falls silent is gone too."""
        self._heartbeats.observe(beats(cluster), server, now, now)
        return sorted(
            agent.node
            for agent in cluster.agents.values()
            if agent.incarnation in self._asked
            and agent.state != "left"
            and self._heartbeats.still_for(f"agent/{agent.node}", now) < self._silence_s
        )


def watch(
    store: Store,
    found: FoundJob,
    leaving: Leaving,
    patience_s: float,
    say: Callable[[str], object],
) -> str | None:
    """Tell what changes until the job has ended; how it did, or None when time is over."""
    end_s = time.monotonic() + patience_s
    told = how = ""
    while True:
        try:
            view = store.read()
            cluster = parse_cluster(view)
            staying = leaving.nodes(cluster, view.server, time.monotonic())
            progress = look_at_stop(cluster, view.lease.candidate, staying)
            how = progress.how
        except StoreUnavailable as error:
            if found.server_is_gone():
                own = f": {how}" if how else ", and its own Redis with it"
                return f"job {found.job} has ended{own}"
            # The last launcher of a job takes the job's own server along.
            is_expected = found.from_record and how
            away = f"waiting for Redis at {found.where} ({error})"
            progress = StopProgress(told if is_expected else away)
        if progress.has_ended:
            return f"job {found.job} has ended: {progress.how}"
        if progress.what != told:
            told = progress.what
            say(f"{told} …")
        if time.monotonic() >= end_s:
            return None
        store.wait(min(LOOK_S, max(end_s - time.monotonic(), 0.0)))


@dataclass(frozen=True)
class StopProgress:
    """How far the job is on its way to its end."""

    what: str
    has_ended: bool = False
    how: str = ""
    """How it ends, once that is decided."""


def look_at_stop(cluster: Cluster, leader: str, staying: Collection[str]) -> StopProgress:
    """The progress that the store shows; `staying`: nodes whose launchers have still to leave."""
    plan = cluster.plan
    is_over = plan is not None and plan.state in TERMINAL
    if plan is not None and is_over and not staying:
        return StopProgress("ended", has_ended=True, how=plan.message or plan.state)
    if cluster.asked_to_stop() and not leader:
        return StopProgress("nobody leads yet; the request waits for a leader")
    if plan is None:
        return StopProgress("stopping before the first attempt")
    if is_over and cluster.asked_to_stop():
        return StopProgress(
            "stopping"
        )  # that plan may be an earlier run's, or be of this very request
    if is_over:
        what = f"waiting for the launchers of {', '.join(staying)} to leave"
        return StopProgress(what, how=plan.message or plan.state)
    return StopProgress(f"stopping attempt {plan.attempt}, {plan.world_size} ranks")
