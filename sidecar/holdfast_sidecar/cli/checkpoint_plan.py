"""`holdfast checkpoint plan`: how often checkpoints come, why, and what a failure would cost."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import click

from holdfast_sidecar.cli import find_job as store_away
from holdfast_sidecar.cli.checkpoint_lookup import look
from holdfast_sidecar.cli.find_job import NoSuchJob, find_job
from holdfast_sidecar.cli.options import dir_option, job_option, json_option, settings_options
from holdfast_sidecar.cli.recall import remember_incidents
from holdfast_sidecar.cli.tables import table
from holdfast_sidecar.config.loading import Effective, read_seconds
from holdfast_sidecar.config.settings import BadInput, CheckpointSettings
from holdfast_sidecar.policy.checkpoint_schedule import (
    WRITE_FACTOR,
    Cost,
    FailureRate,
    Prospect,
    Schedule,
    WhatIf,
    choose,
    look_ahead,
    what_if,
    work_out,
)
from holdfast_sidecar.policy.cluster import Cluster, parse_cluster
from holdfast_sidecar.records.formatting import span

# The schedule of checkpoints as a page for people.

BOUNDS = {
    "optimum": "Daly's optimum",
    "least_every_s": "no more often than checkpoint.least_every_s allows",
    "most_every_s": "at least as often as checkpoint.most_every_s asks",
    "write": f"{WRITE_FACTOR:g} times what writing one takes: a write must end before the next",
    "every_s": "as checkpoint.every_s says",
    "unmeasured": "the first one soon; then from what it cost",
}


def page(
    job: str,
    schedule: Schedule,
    prospect: Prospect,
    others: Sequence[WhatIf],
    settings: CheckpointSettings,
) -> str:
    """Everything `checkpoint plan` prints."""
    parts = [
        f"job {job}: {_every(schedule, prospect, settings)}" if job else "",
        "\n".join(_reasons(schedule, prospect, settings)),
        _losses(prospect),
        _what_if(others),
    ]
    return "\n\n".join(part for part in parts if part)


def _every(schedule: Schedule, prospect: Prospect, settings: CheckpointSettings) -> str:
    if not settings.dir:
        return "no checkpoints: checkpoint.dir is not set"
    if settings.every_steps > 0:
        about = "" if prospect.interval_s is None else f" (about {span(prospect.interval_s)})"
        return f"a checkpoint every {settings.every_steps} steps{about}"
    return f"a checkpoint every {span(schedule.interval.target_s)}"


def _reasons(schedule: Schedule, prospect: Prospect, settings: CheckpointSettings) -> Iterator[str]:
    cost, interval = schedule.cost, schedule.interval
    yield (
        "measured    nothing yet"
        if cost is None
        else f"measured    a checkpoint keeps the loop {span(cost.blocked_s)}"
        f" and is written in {span(cost.write_s)}"
    )
    yield f"failures    one per {span(schedule.rate.mtbf_s)}: {schedule.rate.basis}"
    if interval.young_s is not None and interval.daly_s is not None:
        yield f"optimum     {span(interval.young_s)} by Young, {span(interval.daly_s)} by Daly"
    yield (
        f"allowed     {span(settings.least_every_s)} to {span(settings.most_every_s)}"
        if settings.every_steps <= 0
        else "allowed     counted in steps: checkpoint.every_steps"
    )
    if settings.every_steps <= 0:
        yield f"taken       {span(interval.target_s)}: {BOUNDS[interval.bound]}"
    if prospect.saving_share is not None and prospect.repeating_share is not None:
        total = prospect.saving_share + prospect.repeating_share
        yield (
            f"waste       {_percent(total)} of the time: {_percent(prospect.saving_share)} saving, "
            f"{_percent(prospect.repeating_share)} doing again after failures"
        )


def _losses(prospect: Prospect) -> str:
    rows = [*_memory_losses(prospect)] if prospect.snapshot_every is not None else []
    rows += [
        ("everything in memory", "the newest checkpoint", _lost(prospect.lost_s)),
        ("sound numbers", "the newest good checkpoint", _lost(prospect.lost_to_numbers_s)),
    ]
    return table(("what is gone", "what is left", "lost, on average"), rows)


def _memory_losses(prospect: Prospect) -> Iterator[tuple[str, str, str]]:
    every, behind = prospect.snapshot_every, prospect.copies_behind
    if every:
        left = f"snapshots of every {every} steps" if every > 1 else "snapshots of every step"
        yield "a rank", left, _lost(prospect.lost_with_snapshots_s)
    else:
        yield "a rank", "no snapshots so far: the newest checkpoint", _lost(prospect.lost_s)
    if behind is None:
        yield "a node", "no copies elsewhere: the newest checkpoint", _lost(prospect.lost_s)
    else:
        yield "a node", f"copies {behind} steps behind", _lost(prospect.lost_with_copies_s)


def _what_if(others: Sequence[WhatIf]) -> str:
    if not others:
        return ""
    rows = [(one.change, span(one.interval_s), _percent(one.waste)) for one in others]
    return table(("what if", "every", "waste"), rows)


def _lost(seconds: float | None) -> str:
    return "not known yet" if seconds is None else span(seconds)


def _percent(share: float) -> str:
    if share < 0.00005:
        return "under 0.01%"
    return f"{share:.2%}" if share < 0.1 else f"{share:.0%}"


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
