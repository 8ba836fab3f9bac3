"""All checkpoints of one directory as the commands look at them: which, in what order, why not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from holdfast_sidecar.checkpoint.directory import absolute_root, is_folder, read_key
from holdfast_sidecar.checkpoint.ledger import (
    Kept,
    candidates,
    lineage,
    read_ledger,
    reasons_against,
    torn_folders,
    untouched,
)
from holdfast_sidecar.cli import find_job as store_away
from holdfast_sidecar.cli.find_job import FoundJob, NoAnswer, NoSuchJob, find_job
from holdfast_sidecar.cli.tables import BAD, DOUBTFUL, GOOD, paint
from holdfast_sidecar.config.loading import Effective
from holdfast_sidecar.config.paths import state_root
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.export.job_record import read_record
from holdfast_sidecar.policy.cluster import parse_cluster
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


def read_kept(root: str, effective: Effective) -> list[Kept]:
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
class Shelf:
    """What lies under `root`. Several jobs may save there; each has a line of its own."""

    root: str
    kept: list[Kept]
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

    def of(self, job: str) -> list[Kept]:
        """One job's, newest first."""
        return [one for one in self.kept if one.manifest.job == job]

    @property
    def nothing(self) -> str:
        """What to say when there is no checkpoint."""
        others = ", ".join(sorted(set(self.foreign.values())))
        return f"no checkpoint in {self.root}" + (f" but those of job {others}" if others else "")

    def why_not(self, kept: Kept) -> str:
        """Why a restart would not try it; empty when it would."""
        return "" if kept.identifier in self.resume else self.against.get(kept.folder.name, "")

    @property
    def unbelieved(self) -> dict[str, str]:
        """Directory -> why its manifest is not believed."""
        believed = {one.folder.name for one in self.kept}
        return {name: why for name, why in self.against.items() if name not in believed}


def look(effective: Effective, job: str | None, given: str | None) -> Shelf:
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
    return Shelf(root, kept, against, torn, foreign, resume, living, left_alone)


# What the checkpoint commands call things, painted.


def standing(kept: Kept, shelf: Shelf) -> str:
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
