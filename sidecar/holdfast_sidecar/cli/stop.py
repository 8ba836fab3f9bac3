"""`holdfast stop`: a checkpoint if wanted, then the request, then watching until the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NoReturn

import click

from holdfast import environment
from holdfast_sidecar.cli.asking import ask, confirm_job, look_up, yes_option
from holdfast_sidecar.cli.checkpoint.following import follow
from holdfast_sidecar.cli.finding_the_job import FoundJob, find_job
from holdfast_sidecar.cli.looking_twice import look_twice
from holdfast_sidecar.cli.progress import ProgressLine
from holdfast_sidecar.cli.settings_options import settings_options
from holdfast_sidecar.config.loading import Effective, read_seconds
from holdfast_sidecar.export.status import has_ended
from holdfast_sidecar.policy.cluster import Cluster, Heartbeats, beats, parse_cluster
from holdfast_sidecar.records.formatting import span
from holdfast_sidecar.records.plan import TERMINAL
from holdfast_sidecar.store.protocol import Store, StoreUnavailable, View

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
        saved = follow(store, found, ask(found, store, "checkpoint"), patience_s, progress)
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
            progress = look(cluster, view.lease.candidate, staying)
            how = progress.how
        except StoreUnavailable as error:
            if found.server_is_gone():
                own = f": {how}" if how else ", and its own Redis with it"
                return f"job {found.job} has ended{own}"
            # The last launcher of a job takes the job's own server along.
            is_expected = found.from_record and how
            away = f"waiting for Redis at {found.where} ({error})"
            progress = Progress(told if is_expected else away)
        if progress.has_ended:
            return f"job {found.job} has ended: {progress.how}"
        if progress.what != told:
            told = progress.what
            say(f"{told} …")
        if time.monotonic() >= end_s:
            return None
        store.wait(min(LOOK_S, max(end_s - time.monotonic(), 0.0)))


@dataclass(frozen=True)
class Progress:
    """How far the job is on its way to its end."""

    what: str
    has_ended: bool = False
    how: str = ""
    """How it ends, once that is decided."""


def look(cluster: Cluster, leader: str, staying: Collection[str]) -> Progress:
    """The progress that the store shows; `staying`: nodes whose launchers have still to leave."""
    plan = cluster.plan
    is_over = plan is not None and plan.state in TERMINAL
    if plan is not None and is_over and not staying:
        return Progress("ended", has_ended=True, how=plan.message or plan.state)
    if cluster.asked_to_stop() and not leader:
        return Progress("nobody leads yet; the request waits for a leader")
    if plan is None:
        return Progress("stopping before the first attempt")
    if is_over and cluster.asked_to_stop():
        return Progress("stopping")  # that plan may be an earlier run's, or be of this very request
    if is_over:
        what = f"waiting for the launchers of {', '.join(staying)} to leave"
        return Progress(what, how=plan.message or plan.state)
    return Progress(f"stopping attempt {plan.attempt}, {plan.world_size} ranks")
