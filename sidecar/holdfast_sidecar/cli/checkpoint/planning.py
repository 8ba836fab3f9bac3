"""`holdfast checkpoint plan`: how often checkpoints come, why, and what a failure would cost."""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import asdict

import click

from holdfast_sidecar.cli import store_away
from holdfast_sidecar.cli.checkpoint.options import dir_option, job_option, json_option
from holdfast_sidecar.cli.checkpoint.plan_page import page
from holdfast_sidecar.cli.checkpoint.shelf import look
from holdfast_sidecar.cli.finding_the_job import NoSuchJob, find_job
from holdfast_sidecar.cli.recollection import remember_incidents
from holdfast_sidecar.cli.settings_options import settings_options
from holdfast_sidecar.config.loading import Effective, read_seconds
from holdfast_sidecar.config.settings import BadInput, CheckpointSettings
from holdfast_sidecar.policy.checkpoint_schedule import (
    Cost,
    FailureRate,
    Schedule,
    choose,
    look_ahead,
    what_if,
    work_out,
)
from holdfast_sidecar.policy.cluster import Cluster, parse_cluster


@click.command("plan")
@job_option
@dir_option
@click.option("--mtbf", metavar="TIME", help="Suppose one failure per so long (6h, 30m).")
@click.option("--blocked", metavar="TIME", help="Suppose a checkpoint keeps the loop so long.")
@click.option("--write", metavar="TIME", help="Suppose writing one takes so long.")
@json_option
@settings_options
def plan_command(
    effective: Effective,
    job: str | None,
    given: str | None,
    mtbf: str | None,
    blocked: str | None,
    write: str | None,
    as_json: bool,
) -> None:
    """Say how often checkpoints come and why, and what a failure costs on average.

    \b
      holdfast checkpoint plan
      holdfast checkpoint plan --dir /ckpt --mtbf 3h
      holdfast checkpoint plan --mtbf 3h --blocked 500ms --write 40s

    The interval is Young's and Daly's optimum from what checkpoints were measured to cost and how
    often this job fails, within checkpoint.least_every_s and checkpoint.most_every_s.
    """
    supposed = (
        _seconds("--mtbf", mtbf),
        _seconds("--blocked", blocked),
        _seconds("--write", write),
    )
    name, cluster, settings = _look(effective, job, given, is_free=all(supposed))
    measured = work_out(cluster, settings, time.time())
    schedule = _suppose(measured, settings, *supposed)
    prospect = look_ahead(schedule, cluster, settings)
    others = what_if(schedule, settings)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "job": name,
                    "schedule": asdict(schedule),
                    "prospect": asdict(prospect),
                    "what_if": [asdict(one) for one in others],
                },
                indent=2,
            )
        )
    else:
        click.echo(page(name, schedule, prospect, others, settings))


def _look(
    effective: Effective, job: str | None, given: str | None, is_free: bool
) -> tuple[str, Cluster, CheckpointSettings]:
    """Whose plan it is, what is known of it, and under which settings it runs.

    A job that runs is asked; of one that doesn't, storage says what its checkpoints cost.
    """
    settings = effective.settings.checkpoint
    if given is None:
        try:
            found = find_job(effective, job)
        except NoSuchJob:
            if is_free:
                return "", Cluster(), settings
        else:
            cluster = remember_incidents(parse_cluster(store_away.read_view(found)), found.state)
            told = (node.checkpoint for node in cluster.nodes.values())
            return found.job, cluster, next(filter(None, told), settings)
    shelf = look(effective, job, given)
    entries = [kept.entry() for kept in shelf.kept]
    if not entries and not is_free:
        raise BadInput(
            f"no checkpoint in {shelf.root}: nothing was measured yet"
            " (or suppose all of --mtbf, --blocked and --write)"
        )
    settings = settings if settings.dir else dataclasses.replace(settings, dir=shelf.root)
    return job or "", Cluster(ledger={entry.identifier: entry for entry in entries}), settings


def _seconds(option: str, text: str | None) -> float | None:
    if text is None:
        return None
    seconds = read_seconds(option, text)
    if seconds <= 0:
        raise BadInput(f"{option} {text}: has to be more than nothing")
    return seconds


def _suppose(
    schedule: Schedule,
    settings: CheckpointSettings,
    mtbf_s: float | None,
    blocked_s: float | None,
    write_s: float | None,
) -> Schedule:
    """The schedule with what was given in place of what was measured."""
    rate, cost = schedule.rate, schedule.cost
    if mtbf_s is not None:
        rate = FailureRate(mtbf_s, "as supposed")
    if blocked_s is not None or write_s is not None:
        known = cost or Cost(blocked_s or 0.0, write_s or 0.0)
        cost = Cost(
            known.blocked_s if blocked_s is None else blocked_s,
            known.write_s if write_s is None else write_s,
        )
    interval = choose(settings, cost, rate.mtbf_s)
    return dataclasses.replace(schedule, rate=rate, cost=cost, interval=interval)
