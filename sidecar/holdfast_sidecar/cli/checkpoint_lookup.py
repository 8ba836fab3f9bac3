"""All checkpoints of one directory as the commands look at them: which, in what order, why not."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

import click

from holdfast_sidecar.checkpoint.directory import absolute_root, is_folder, read_key
from holdfast_sidecar.checkpoint.ledger import (
    StoredCheckpoint,
    candidates,
    lineage,
    read_ledger,
    reasons_against,
    torn_folders,
    untouched,
)
from holdfast_sidecar.cli import find_job as store_away
from holdfast_sidecar.cli.find_job import FoundJob, NoAnswer, NoSuchJob, find_job
from holdfast_sidecar.cli.options import dir_option, job_option, json_option, settings_options
from holdfast_sidecar.cli.recall import remember_incidents
from holdfast_sidecar.cli.tables import BAD, DOUBTFUL, GOOD, paint, table
from holdfast_sidecar.config.loading import Effective, read_seconds
from holdfast_sidecar.config.paths import state_root
from holdfast_sidecar.config.settings import BadInput, CheckpointSettings
from holdfast_sidecar.export.job_record import read_record
from holdfast_sidecar.policy.checkpoint_schedule import (
    WRITE_FACTOR,
    CheckpointCost,
    FailureRate,
    Prospect,
    Schedule,
    ScheduleWhatIf,
    choose,
    look_ahead,
    what_if,
    work_out,
)
from holdfast_sidecar.policy.cluster import Cluster, parse_cluster
from holdfast_sidecar.records.formatting import span
from holdfast_sidecar.startup import key_problem

# Where a job's checkpoints lie, and what the job itself would believe of them.


def find_root(effective: Effective, job: str | None, given: str | None) -> str:
    """Path or URL under which the checkpoints lie. BadInput or NoSuchJob when there is none."""
    configured = given or effective.settings.checkpoint.dir
    root = absolute_root(configured) if configured else _where_it_saves(effective, job)
    with reading(root):
        is_there = is_folder(root)
    if not is_there:
        raise BadInput(f"{root} is no directory")
    return root


def read_kept(root: str, effective: Effective) -> list[StoredCheckpoint]:
    """What a job itself would believe, of all jobs."""
    key = read_secret(effective)
    with reading(root):
        return read_ledger(root, None, key)


def read_secret(effective: Effective) -> bytes | None:
    """What manifests are sealed with; BadInput when the file with it can't be read."""
    settings = effective.settings.checkpoint
    if problem := key_problem(settings.key_file):
        raise BadInput(problem)
    return read_key(settings)


@contextmanager
def reading(root: str) -> Iterator[None]:
    """Storage that does not answer in here is one clear line."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"the checkpoints in {root} can't be read: {error}") from None


def _where_it_saves(effective: Effective, job: str | None) -> str:
    """Where the running job saves; of one that is gone, where it did."""
    try:
        return _where_it_says(find_job(effective, job))
    except (NoSuchJob, NoAnswer) as unknown:
        record = None if job is None else read_record(state_root(effective.settings.paths) / job)
        if record is not None and record[0].checkpoint_dir:
            return record[0].checkpoint_dir
        if isinstance(unknown, NoAnswer):
            raise
        if job is not None and record is None:
            raise NoSuchJob(
                f"{unknown.message}; its checkpoints' directory can be named with --dir"
            ) from None
        raise BadInput(
            "name the checkpoints' directory with --dir (no job of yours runs)"
        ) from None


def _where_it_says(found: FoundJob) -> str:
    cluster = parse_cluster(store_away.read_view(found))
    told = [n.checkpoint.dir for n in cluster.nodes.values() if n.checkpoint is not None]
    if told and not told[0]:
        raise BadInput(f"job {found.job} saves nowhere: it was started without --checkpoint-dir")
    paths = [entry.path.rpartition("/")[0] for entry in cluster.ledger.values()]
    if not told and not paths:
        raise BadInput(f"job {found.job} has saved nothing yet; name the directory with --dir")
    return absolute_root([*told, *paths][0])


@dataclass(frozen=True)
class CheckpointListing:
    """What lies under `root`. Several jobs may save there; each has a line of its own."""

    root: str
    kept: list[StoredCheckpoint]
    """Sealed ones, newest first."""
    against: Mapping[str, str] = field(default_factory=dict)
    """Directory -> why it is not resumed from, also of those that are not believed."""
    torn: list[str] = field(default_factory=list)
    """Directories that were never sealed, or are being written now."""
    foreign: Mapping[str, str] = field(default_factory=dict)
    """Directory -> the other job whose it is, when one job was asked for."""
    resume: Mapping[str, int] = field(default_factory=dict)
    """Identifier -> place in the order in which its job would try them, from 1."""
    living: frozenset[str] = frozenset()
    """Identifiers of the newest checkpoint of each job and of those that it goes back to."""

    left_alone: list[str] = field(default_factory=list)
    """A line on each kind of folder there that does not bear Holdfast's mark."""

    @property
    def jobs(self) -> list[str]:
        """Whose checkpoints these are."""
        return sorted({one.manifest.job for one in self.kept})

    def of(self, job: str) -> list[StoredCheckpoint]:
        """One job's, newest first."""
        return [one for one in self.kept if one.manifest.job == job]

    @property
    def nothing(self) -> str:
        """What to say when there is no checkpoint."""
        others = ", ".join(sorted(set(self.foreign.values())))
        return f"no checkpoint in {self.root}" + (f" but those of job {others}" if others else "")

    def why_not(self, kept: StoredCheckpoint) -> str:
        """Why a restart would not try it; empty when it would."""
        return "" if kept.identifier in self.resume else self.against.get(kept.folder.name, "")

    @property
    def unbelieved(self) -> dict[str, str]:
        """Directory -> why its manifest is not believed."""
        believed = {one.folder.name for one in self.kept}
        return {name: why for name, why in self.against.items() if name not in believed}


def look(effective: Effective, job: str | None, given: str | None) -> CheckpointListing:
    """Read a directory as the job itself would. BadInput when it can't be read."""
    root = find_root(effective, job, given)
    everyones = read_kept(root, effective)
    kept = [one for one in everyones if job in (None, one.manifest.job)]
    foreign = {one.folder.name: one.manifest.job for one in everyones if one not in kept}
    by_job = [[k for k in kept if k.manifest.job == job] for job in {k.manifest.job for k in kept}]
    resume = {
        candidate.identifier: place
        for its in by_job
        for place, candidate in enumerate(candidates(its), 1)
    }
    living = frozenset(one.identifier for its in by_job for one in lineage(its))
    key = read_secret(effective)
    with reading(root):
        against = reasons_against(root, kept, job, key)
        torn = [folder.name for folder in torn_folders(root)]
        left_alone = untouched(root).describe(root)
    return CheckpointListing(root, kept, against, torn, foreign, resume, living, left_alone)


# What the checkpoint commands call things, painted.


def state_of(kept: StoredCheckpoint, shelf: CheckpointListing) -> str:
    """Its verdict, or why a restart would not try it."""
    if kept.is_poisoned:
        return paint(f"poisoned: {kept.poisoned_for}" if kept.poisoned_for else "poisoned", BAD)
    if not kept.is_whole:
        return paint("damaged: files are missing or cut off", BAD)
    if not kept.manifest.is_finite:
        return paint("its numbers are not finite", BAD)
    if kept.identifier not in shelf.resume:
        return paint(f"{kept.verdict}, on an abandoned branch", DOUBTFUL)
    return paint(kept.verdict, GOOD)


def age(then_unix_s: float, now_unix_s: float) -> str:
    """How long ago, for people; clocks of two machines may differ a little."""
    return f"{span(max(now_unix_s - then_unix_s, 0.0))} ago"


# `holdfast checkpoint plan`: how often checkpoints come, why, and what a failure would cost.

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
    others: Sequence[ScheduleWhatIf],
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


def _what_if(others: Sequence[ScheduleWhatIf]) -> str:
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
        known = cost or CheckpointCost(blocked_s or 0.0, write_s or 0.0)
        cost = CheckpointCost(
            known.blocked_s if blocked_s is None else blocked_s,
            known.write_s if write_s is None else write_s,
        )
    interval = choose(settings, cost, rate.mtbf_s)
    return dataclasses.replace(schedule, rate=rate, cost=cost, interval=interval)
