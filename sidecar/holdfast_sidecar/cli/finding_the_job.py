"""Which job a command means, and where that job's store is."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from redis.exceptions import RedisError

from holdfast_sidecar.config.loading import Effective
from holdfast_sidecar.config.paths import NAME, find, read_own_file, shm_root, state_root
from holdfast_sidecar.config.settings import BadInput, RedisSettings
from holdfast_sidecar.store.connection import connect, describe, open_store
from holdfast_sidecar.store.protocol import Keys, Section
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
