"""What a command says when a job's store can't be asked: a job that is gone, or one cut off."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from holdfast import page
from holdfast.identity import ProcessIdentity, is_alive
from holdfast_sidecar.cli.finding_the_job import FoundJob, NoAnswer, NoSuchJob
from holdfast_sidecar.coordination.store import StoreUnavailable, View
from holdfast_sidecar.listing import find
from holdfast_sidecar.pages import Pages


@dataclass(frozen=True)
class Ranks:
    """The ranks on this machine; one that ended well is neither alive nor dead."""

    are_alive: bool
    dead: Sequence[int]


class CutOff(click.ClickException):
    """The job lives, its Redis does not answer; exit code 1."""

    exit_code = 1


def explanation(found: FoundJob, reason: Exception) -> Exception:
    """The exception to raise: CutOff, NoSuchJob, or NoAnswer for a server that was given."""
    nodes = living_sidecars(found.state)
    if nodes:
        return CutOff(
            f"Redis at {found.where} does not answer, but the sidecar of {', '.join(nodes)} is "
            f"alive: {_meanwhile(read_ranks(found.shm))} until Redis is back ({reason})"
        )
    if found.from_record:
        return NoSuchJob(f"job {found.job!r} is over: its Redis at {found.where} is gone")
    return NoAnswer(f"Redis at {found.where} does not answer: {reason}")


def _meanwhile(ranks: Ranks) -> str:
    """What is true of a job that nobody can decide about."""
    if ranks.dead:
        have = "has" if len(ranks.dead) == 1 else "have"
        who = f"rank{'s' * (len(ranks.dead) != 1)} {', '.join(map(str, ranks.dead))}"
        return f"{who} {have} died, nothing is restarted"
    return f"{'training goes on, ' if ranks.are_alive else ''}nothing is decided"


def read_ranks(shm: Path) -> Ranks:
    """What the pages of a job's nodes on this machine say of its newest attempt."""
    found: list[tuple[page.Identity, bool, bool]] = []
    for directory in find(shm, "*/"):
        pages = Pages(directory)
        for held in pages.refresh():
            ending = page.parse_words(held.read())[page.Word.ENDING]
            found.append((held.identity, held.is_gone(), ending == page.Ending.FINISHED))
        pages.close()
    newest = max(found, key=lambda rank: rank[0].claimed_ns, default=None)
    of_it = [rank for rank in found if newest is not None and rank[0].attempt == newest[0].attempt]
    return Ranks(
        are_alive=any(not is_gone for _, is_gone, _ in of_it),
        dead=sorted(who.rank for who, is_gone, is_over in of_it if is_gone and not is_over),
    )


def unknown(found: FoundJob) -> NoSuchJob:
    """The server answers, but holds nothing of this job."""
    return NoSuchJob(f"Redis at {found.where} knows no job {found.job!r}")


def living_sidecars(state: Path) -> list[str]:
    """Nodes of a job on this machine whose sidecar runs."""
    return [path.parent.name for path in find(state, "*/sidecar.json") if _is_running(path)]


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
