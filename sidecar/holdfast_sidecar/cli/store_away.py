"""What a command says when a job's store can't be asked: a job that is gone, or one cut off."""

from __future__ import annotations

import json
from pathlib import Path

import click

from holdfast.identity import ProcessIdentity, is_alive
from holdfast_sidecar.bad_input import BadInput
from holdfast_sidecar.cli.finding_the_job import FoundJob, NoSuchJob
from holdfast_sidecar.coordination.store import StoreUnavailable, View


class CutOff(click.ClickException):
    """The job lives, its Redis does not answer; exit code 1."""

    exit_code = 1


def explanation(found: FoundJob, reason: Exception) -> Exception:
    """The exception to raise: CutOff, NoSuchJob, or BadInput for a server that was given."""
    nodes = living_sidecars(found.state)
    if nodes:
        return CutOff(
            f"Redis at {found.where} does not answer, but the sidecar of {', '.join(nodes)} is "
            f"alive: training goes on, nothing is decided until Redis is back ({reason})"
        )
    if found.from_record:
        return NoSuchJob(f"job {found.job!r} is over: its Redis at {found.where} is gone")
    return BadInput(f"Redis at {found.where} does not answer: {reason}")


def unknown(found: FoundJob) -> NoSuchJob:
    """The server answers, but holds nothing of this job."""
    return NoSuchJob(f"Redis at {found.where} knows no job {found.job!r}")


def living_sidecars(state: Path) -> list[str]:
    """Nodes of a job on this machine whose sidecar runs."""
    return [path.parent.name for path in sorted(state.glob("*/sidecar.json")) if _is_running(path)]


def _is_running(record: Path) -> bool:
    try:
        content = json.loads(record.read_text())
        return is_alive(ProcessIdentity(int(content["pid"]), int(content["start_ticks"])))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def read_view(found: FoundJob) -> View:
    """Everything about a job, by one reading; raises `explanation` when there is no answer."""
    store = found.open_store()
    try:
        return store.read()
    except StoreUnavailable as error:
        raise explanation(found, error) from None
    finally:
        store.close()
