"""What a command says when a job's store can't be asked: a job that is gone, or one cut off."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from holdfast import page
from holdfast.identity import ProcessIdentity, is_alive
from holdfast_sidecar.cli.finding_the_job import FoundJob, NoAnswer, NoSuchJob, read_records
from holdfast_sidecar.config.paths import find
from holdfast_sidecar.ranks.page import Pages
from holdfast_sidecar.store.connection import describe
from holdfast_sidecar.store.protocol import StoreUnavailable, View


@dataclass(frozen=True)
class Ranks:
    """The ranks on this machine; one that ended well is neither alive nor dead."""

    are_alive: bool
    dead: Sequence[int]


class CutOff(click.ClickException):
    """The job lives, and the Redis that was asked tells nothing of it; exit code 1."""

    exit_code = 1

    def __init__(self, message: str, job: str, in_short: str = "its Redis does not answer") -> None:
        """in_short: why nothing is known of it now."""
        super().__init__(message)
        self.job = job
        self.in_short = in_short


def explanation(found: FoundJob, reason: Exception) -> Exception:
    """The exception to raise: CutOff, NoSuchJob, or NoAnswer for a server that was given."""
    nodes = living_sidecars(found.state)
    if nodes and (elsewhere := _own_server(found)):
        return _asked_elsewhere(found, "does not answer", nodes, elsewhere)
    if nodes:
        return CutOff(
            f"Redis at {found.where} does not answer, but the sidecar of {', '.join(nodes)} is "
            f"alive: {meanwhile(read_ranks(found.shm))} until Redis is back ({reason})",
            found.job,
        )
    if found.from_record:
        return NoSuchJob(f"job {found.job!r} is over: its Redis at {found.where} is gone")
    return NoAnswer(f"Redis at {found.where} does not answer: {reason}")


def meanwhile(ranks: Ranks) -> str:
    """What is true of a job that nobody can decide about. Where none is alive an attempt was over,
    and how many of its pages are left says nothing."""
    if ranks.dead and not ranks.are_alive:
        return "no rank runs on this machine, nothing is restarted"
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


def unknown(found: FoundJob) -> click.ClickException:
    """The server answers, but holds nothing of this job: NoSuchJob, or CutOff where its sidecar
    runs here. That one knows another server, or this one has just been emptied."""
    says = f"knows no job {found.job!r}"
    nodes = living_sidecars(found.state)
    if nodes and (elsewhere := _own_server(found)):
        return _asked_elsewhere(found, says, nodes, elsewhere)
    if nodes:
        return CutOff(
            f"Redis at {found.where} {says}, but the sidecar of {', '.join(nodes)} is alive: it "
            "tells Redis anew where that was emptied; else it uses another one",
            found.job,
            "the Redis that was asked does not know it",
        )
    return NoSuchJob(f"Redis at {found.where} {says}")


def _asked_elsewhere(found: FoundJob, says: str, nodes: Sequence[str], its_own: str) -> CutOff:
    return CutOff(
        f"Redis at {found.where} {says}, but the sidecar of {', '.join(nodes)} is alive, and its "
        f"Redis is {its_own}: leave out --redis and HOLDFAST_REDIS, or name that one",
        found.job,
        "another Redis was asked than its own",
    )


def _own_server(found: FoundJob) -> str:
    """Where the job's launchers on this machine say that its server is, if not where we asked."""
    recorded = read_records(found.state.parent, found.redis).get(found.job)
    if recorded is None or recorded.url == found.redis.url:
        return ""
    return describe(recorded.url)


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
