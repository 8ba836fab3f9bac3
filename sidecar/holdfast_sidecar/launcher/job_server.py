"""Which coordination server this launcher uses: the one it was given, or one of its own."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from holdfast import environment as names
from holdfast.owned import owned_file
from holdfast.removing import rmdir, unlink
from holdfast_sidecar.config.addresses import SCHEMES, without_password
from holdfast_sidecar.config.paths import Places
from holdfast_sidecar.config.settings import BadInput, RedisSettings
from holdfast_sidecar.store.connection import check_server, connect, describe
from holdfast_sidecar.store.embedded import KeptServer, NoRoom, start_server

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class JobServer:
    """How to reach the server; `own` when this launcher started it, keeps it and ends it."""

    settings: RedisSettings
    own: KeptServer | None = None

    def write_record(self, where: Places) -> None:
        """Leave word for `holdfast status` and the others. Holds no secret, only where it lies."""
        record = {
            "url": without_password(self.settings.url),
            "user": self.settings.user,
            "password_file": self.settings.password_file,
        }
        path = where.server_record
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            with os.fdopen(os.open(temporary, flags, 0o600), "w") as file:
                json.dump(record, file)
            temporary.rename(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                unlink(owned_file(temporary))
            means = "commands need --redis to" if self.own is None else "no command can"
            logger.warning("%s: %s find this job", error, means)

    def close(self, where: Places) -> None:
        """End a server of our own; its record would lead nowhere then."""
        if self.own is None:
            return
        with contextlib.suppress(OSError):
            unlink(owned_file(where.server_record))
        self.own.stop()
        with contextlib.suppress(OSError):
            rmdir(owned_file(self.own.directory))


def given_url(settings: RedisSettings, rdzv_endpoint: str) -> str:
    """URL from flag, environment or file, else an --rdzv-endpoint that is one; empty: none."""
    is_url = urlsplit(rdzv_endpoint).scheme in SCHEMES
    return settings.url or (rdzv_endpoint if is_url else "")


def reach(settings: RedisSettings) -> JobServer:
    """Check a server that was given. BadInput says in one line what to mend."""
    client = connect(settings, os.environ)
    try:
        problems = check_server(client)
    finally:
        client.close()
    if problems:
        raise BadInput(f"{describe(settings.url)}: {problems[0].line}")
    return JobServer(settings)


def start_own(settings: RedisSettings, where: Places) -> JobServer:
    """Start and keep a server for this job alone. Call it from the main thread: it dies with it.

    Where the state's disk takes nothing, its few files lie in the node's shared memory.
    """
    for name in names.NEVER_FOR_RANKS:
        # The password that waits there is for another server.
        os.environ.pop(name, None)
    try:
        started = start_server(where.server)
    except NoRoom:
        started = start_server(where.local_server)
    server = KeptServer(started)
    server.start()
    own = replace(settings, url=server.url, user="", password_file=str(server.password_file))
    return JobServer(own, server)
