"""Where a job's checkpoints lie, and what the job itself would believe of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast_sidecar.checkpoint.directory import absolute_root, is_folder, read_key
from holdfast_sidecar.checkpoint.ledger import Kept, read_ledger
from holdfast_sidecar.cli import store_away
from holdfast_sidecar.cli.finding_the_job import FoundJob, NoAnswer, NoSuchJob, find_job
from holdfast_sidecar.config.loading import Effective
from holdfast_sidecar.config.paths import state_root
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.export.job_record import read_record
from holdfast_sidecar.policy.cluster import parse_cluster
from holdfast_sidecar.startup import key_problem


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
