"""Where a job's checkpoints lie, and what the job itself would believe of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast_sidecar.bad_input import BadInput
from holdfast_sidecar.checkpoints.directory import read_key
from holdfast_sidecar.checkpoints.ledger import Kept, read_ledger
from holdfast_sidecar.cli import store_away
from holdfast_sidecar.cli.finding_the_job import FoundJob, NoSuchJob, find_job
from holdfast_sidecar.configuration import Effective
from holdfast_sidecar.coordination.keys import Section
from holdfast_sidecar.coordination.reports import LedgerEntry, decode
from holdfast_sidecar.job_record import read_record
from holdfast_sidecar.places import state_root
from holdfast_sidecar.preflight import key_problem


def find_root(effective: Effective, job: str | None, given: str | None) -> Path:
    """The checkpoints' directory. BadInput or NoSuchJob when there is none."""
    configured = given or effective.settings.checkpoint.dir
    root = Path(configured).expanduser() if configured else _where_it_saves(effective, job)
    with reading(root):
        is_there = root.is_dir()
    if not is_there:
        raise BadInput(f"{root} is no directory")
    return root


def read_kept(root: Path, job: str | None, effective: Effective) -> list[Kept]:
    """What the job itself would believe."""
    settings = effective.settings.checkpoint
    if problem := key_problem(settings.key_file):
        raise BadInput(problem)
    with reading(root):
        return read_ledger(root, job, read_key(settings))


@contextmanager
def reading(root: Path) -> Iterator[None]:
    """Storage that does not answer in here is one clear line."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"the checkpoints in {root} can't be read: {error}") from None


def _where_it_saves(effective: Effective, job: str | None) -> Path:
    """Where the running job has saved, from its ledger; of one that is gone, where it would."""
    try:
        return _where_it_says(find_job(effective, job))
    except NoSuchJob:
        record = None if job is None else read_record(state_root(effective.settings.paths) / job)
        if record is not None and record[0].checkpoint_dir:
            return Path(record[0].checkpoint_dir)
        raise BadInput(
            "name the checkpoints' directory with --dir (no job of yours runs)"
        ) from None


def _where_it_says(found: FoundJob) -> Path:
    view = store_away.read_view(found)
    texts = view.section(Section.LEDGER).values()
    paths = [entry.path for text in texts if (entry := decode(LedgerEntry, text)) is not None]
    if not paths:
        raise BadInput(f"job {found.job} has saved nothing yet; name the directory with --dir")
    return Path(paths[0]).parent
