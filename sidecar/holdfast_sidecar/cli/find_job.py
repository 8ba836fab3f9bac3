"""Which job a command means, and where that job's store is."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from redis.exceptions import RedisError

from holdfast.contract import page
from holdfast.contract.identity import ProcessIdentity, is_alive
from holdfast_sidecar.config.loading import Effective
from holdfast_sidecar.config.paths import NAME, find, read_own_file, shm_root, state_root
from holdfast_sidecar.config.settings import BadInput, RedisSettings
from holdfast_sidecar.export.status import exists, is_settled
from holdfast_sidecar.policy.cluster import parse_cluster
from holdfast_sidecar.ranks.page import Pages
from holdfast_sidecar.store.connection import connect, describe, open_store
from holdfast_sidecar.store.protocol import Keys, Section, Store, StoreUnavailable, View
from holdfast_sidecar.store.redis_store import RedisStore

RECORD = "server.json"
"""Name of `places.Places.server_record`."""


class NoSuchJob(click.ClickException):
    """There is no such job (any more); exit code 3."""

    exit_code = 3


class NoAnswer(BadInput):
    """The server that was given does not answer; exit code 2, unless what is kept here will do."""


@dataclass(frozen=True)
class FoundJob:
    """A job's name, its server, and its directories on this machine (which need not exist)."""

    job: str
    redis: RedisSettings
    state: Path
    shm: Path
    from_record: bool
    """A launcher of this user on this machine left word of it."""

    def open_store(self, environment: Mapping[str, str] | None = None) -> RedisStore:
        """The job's store; nothing is sent yet. NoSuchJob where the word of it leads nowhere."""
        given = os.environ if environment is None else environment
        try:
            return open_store(self.redis, self.job, given)
        except BadInput as error:
            if not self.from_record:
                raise
            raise NoSuchJob(f"the server of job {self.job!r} can't be asked: {error}") from None

    def server_is_gone(self) -> bool:
        """Whether the launcher that started the job's own server has taken its record away."""
        return self.from_record and not (self.state / RECORD).exists()

    @property
    def where(self) -> str:
        """The server, in a form without secrets."""
        return describe(self.redis.url)


def find_job(effective: Effective, job: str | None) -> FoundJob:
    """The job named, else the only one there is. BadInput, NoAnswer or NoSuchJob says what is
    missing."""
    if job is not None and not NAME.fullmatch(job):
        raise BadInput(f"{job!r} can't be the name of a job: letters, digits and . _ ~ - only")
    settings = effective.settings
    root, shm = state_root(settings.paths), shm_root(settings.paths)
    if settings.redis.url:
        name = job or _only_job_on(settings.redis)
        return FoundJob(name, settings.redis, root / name, shm / name, from_record=False)
    records = read_records(root, settings.redis)
    if job is not None:
        records = {name: redis for name, redis in records.items() if name == job}
    if not records:
        raise NoSuchJob(f"{_nothing_found(job)} (looked in {root}); name its server with --redis")
    if len(records) > 1:
        records = {n: redis for n, redis in records.items() if answers(redis)} or records
    if len(records) > 1:
        raise BadInput(f"several jobs are here, name one with --job: {', '.join(sorted(records))}")
    ((name, redis),) = records.items()
    return FoundJob(name, redis, root / name, shm / name, from_record=True)


def find_names(effective: Effective) -> list[str]:
    """Every job of the server that was given; without one, every job with launchers here."""
    settings = effective.settings
    if settings.redis.url:
        return _jobs_on(settings.redis)
    return sorted(read_records(state_root(settings.paths), settings.redis))


def read_records(root: Path, given: RedisSettings) -> dict[str, RedisSettings]:
    """Job -> its server, for every job whose launchers left a record here. One that another user
    may have written is passed over: the password from the environment would be sent to its server.
    """
    found: dict[str, RedisSettings] = {}
    for path in find(root, f"*/{RECORD}"):
        try:
            text = read_own_file(path)
            record = None if text is None else json.loads(text)
        except (OSError, ValueError):
            continue
        redis = parse_record(record, given)
        if redis is not None:
            found[path.parent.name] = redis
    return found


def parse_record(record: Any, given: RedisSettings) -> RedisSettings | None:
    """The server in a record; None when it is not one."""
    if not isinstance(record, dict) or not isinstance(record.get("url"), str) or not record["url"]:
        return None
    return replace(
        given,
        url=record["url"],
        user=str(record.get("user") or ""),
        password_file=str(record.get("password_file") or ""),
    )


def _nothing_found(job: str | None) -> str:
    return "no job of yours runs here" if job is None else f"no job {job!r} of yours runs here"


def answers(redis: RedisSettings) -> bool:
    """Whether this server can be reached now."""
    try:
        with connect(redis, os.environ) as client:
            return bool(client.ping())
    except (RedisError, OSError, BadInput):
        return False


def _only_job_on(redis: RedisSettings) -> str:
    jobs = _jobs_on(redis)
    if not jobs:
        raise NoSuchJob(f"Redis at {describe(redis.url)} knows no job")
    if len(jobs) > 1:
        raise BadInput(f"several jobs are there, name one with --job: {', '.join(jobs)}")
    return jobs[0]


def _jobs_on(redis: RedisSettings) -> list[str]:
    pattern = Keys("*").section(Section.AGENTS)
    before, after = pattern.split("*")
    try:
        with connect(redis, os.environ) as client:
            keys = [str(key) for key in client.scan_iter(pattern, count=1000)]
    except (RedisError, OSError) as error:
        raise NoAnswer(
            f"Redis at {describe(redis.url)} does not answer: {error}; name the job with --job"
        ) from None
    return sorted({key[len(before) : -len(after)] for key in keys})


# What a command says when a job's store can't be asked: a job that is gone, or one cut off.


@dataclass(frozen=True)
class RankCounts:
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


def meanwhile(ranks: RankCounts) -> str:
    """What is true of a job that nobody can decide about. Where none is alive an attempt was over,
    and how many of its pages are left says nothing."""
    if ranks.dead and not ranks.are_alive:
        return "no rank runs on this machine, nothing is restarted"
    if ranks.dead:
        have = "has" if len(ranks.dead) == 1 else "have"
        who = f"rank{'s' * (len(ranks.dead) != 1)} {', '.join(map(str, ranks.dead))}"
        return f"{who} {have} died, nothing is restarted"
    return f"{'training goes on, ' if ranks.are_alive else ''}nothing is decided"


def read_ranks(shm: Path) -> RankCounts:
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
    return RankCounts(
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


# Two readings of a job's store, since a heartbeat proves life only by moving.


def read_twice(found: FoundJob, patience_s: float) -> tuple[View, View]:
    """`look_twice` at a job that was found; what `store_away` says where nothing is told of it."""
    store = found.open_store()
    try:
        before, after = look_twice(store, patience_s)
    except StoreUnavailable as error:
        raise explanation(found, error) from None
    finally:
        store.close()
    if not exists(after):
        raise unknown(found)
    return before, after


def look_twice(store: Store, patience_s: float) -> tuple[View, View]:
    """Two readings, far enough apart that every living heartbeat has moved between them."""
    before = after = store.read()
    end_s = time.monotonic() + patience_s
    while not is_settled(before, after) and time.monotonic() < end_s:
        store.wait(0.1)
        after = store.read()
    return before, after


# Where a job's sidecars serve their pages: those of this machine, whatever Redis says, else those
# that Redis knows.


def jobs_here(root: Path) -> Mapping[str, Sequence[str]]:
    """Job -> addresses, of every job with a living sidecar on this machine."""
    found: dict[str, Sequence[str]] = {}
    for directory in find(root, "*/"):
        addresses = list(addresses_here(directory))
        if addresses:
            found[directory.name] = addresses
    return found


def addresses_here(state: Path) -> Iterator[str]:
    """Of one job's living sidecars on this machine."""
    for node in living_sidecars(state):
        try:
            record = json.loads((state / node / "sidecar.json").read_text())
        except (OSError, ValueError):
            continue
        address = record.get("metrics_address") if isinstance(record, dict) else None
        if isinstance(address, str) and address:
            yield address


def only_one(here: Mapping[str, Sequence[str]]) -> str | None:
    """The job of this machine; None where there is none. BadInput where there are several."""
    if len(here) > 1:
        raise BadInput(f"several jobs are here, name one with --job: {', '.join(sorted(here))}")
    return next(iter(here), None)


def addresses_known(found: FoundJob) -> list[str]:
    """Those that the job's store knows, the leader's first; raises what `read_view` does."""
    return of_view(read_view(found))


def of_view(view: View) -> list[str]:
    """The same of what the store holds."""
    leader = view.lease.candidate.rpartition("/")[0]
    nodes = parse_cluster(view).nodes
    ordered = sorted(nodes, key=lambda node: (node != leader, node))
    return [nodes[node].metrics_address for node in ordered if nodes[node].metrics_address]
