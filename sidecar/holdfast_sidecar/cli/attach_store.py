"""Where the nodes of an attached job agree: a server given, one of our own, or none.

What is kept on disk does not depend on it; `holdfast status` and several nodes do.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import click

from holdfast.owned import owned_file
from holdfast.removing import rmdir, unlink
from holdfast_sidecar.cli.finding_the_job import answers, read_records
from holdfast_sidecar.config.paths import Places
from holdfast_sidecar.config.settings import BadInput, RedisSettings
from holdfast_sidecar.store.connection import open_store
from holdfast_sidecar.store.embedded import KeptServer, start_server
from holdfast_sidecar.store.memory_store import MemoryServer, MemoryStore
from holdfast_sidecar.store.protocol import Store


@dataclass
class AttachedStore:
    """A store, and what has to be undone once it is closed."""

    store: Store
    undo: list[Callable[[], object]] = field(default_factory=list)

    def close(self) -> None:
        """Let go of it, and of a server of our own."""
        for step in self.undo:
            step()


def open_attached_store(settings: RedisSettings, job: str, where: Places) -> AttachedStore:
    """The store of this job. Call it from the main thread: a server of our own dies with that."""
    if settings.url:
        return AttachedStore(open_store(settings, job, os.environ))
    known = read_records(where.state.parent.parent, settings).get(job)
    if known is not None and answers(known):
        # Another node of this job on this machine was first.
        return AttachedStore(open_store(known, job, {}))
    try:
        server = KeptServer(start_server(where.server), _tell)
    except BadInput as error:
        _tell(f"{error}; `holdfast status` can't see this job")
        return AttachedStore(MemoryStore(MemoryServer(), job))
    server.start()
    _write_record(where, server)
    own = replace(settings, url=server.url, user="", password_file=str(server.password_file))
    store = open_store(own, job, {})

    def forget() -> None:
        unlink(owned_file(where.server_record), missing_ok=True)
        server.stop()
        with contextlib.suppress(OSError):
            rmdir(owned_file(server.directory))

    return AttachedStore(store, [forget])


def _tell(line: str) -> None:
    with contextlib.suppress(OSError):  # who keeps the server outlives a terminal that was closed
        click.echo(f"holdfast: {line}", err=True)


def _write_record(where: Places, server: KeptServer) -> None:
    """Leave word for the other commands. Holds no secret, only where it lies."""
    record = {"url": server.url, "user": "", "password_file": str(server.password_file)}
    temporary = where.server_record.with_suffix(f".{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(temporary, flags, 0o600), "w") as file:
        json.dump(record, file)
    temporary.replace(where.server_record)
