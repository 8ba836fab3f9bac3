"""Connecting to the coordination server: clients and stores from settings."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    NoPermissionError,
    RedisError,
    ResponseError,
)
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, Sentinel

from holdfast.contract import environment as names
from holdfast_sidecar.config.addresses import ServerAddress, describe, parse_address
from holdfast_sidecar.config.settings import BadInput, RedisSettings
from holdfast_sidecar.store.account import Turn
from holdfast_sidecar.store.protocol import Keys, Section, StoreUnavailable
from holdfast_sidecar.store.redis_store import RedisStore

# Whether a server can be trusted with coordination: one line for each thing to mend.

OLDEST = (7, 0)
"""Redis version whose command set Holdfast is written for; every Valkey has it."""

PROBE_JOB = "~check"
"""No job can be called so (names begin with a letter or digit)."""


@dataclass(frozen=True)
class Problem:
    """Something about the server that must be mended before a job may use it.

    kind: `unreachable`, `untrusted`, `refused`, `rights`, `too_old`, `cluster`, `evicts` or
    `replica`.
    """

    kind: str
    line: str


def check_server(client: redis.Redis) -> list[Problem]:
    """Ask the server about itself, and try the commands Holdfast needs."""
    try:
        info: Mapping[str, Any] = client.info()
    except (RedisError, OSError) as error:
        return [problem_of(error)]
    problems = judge(info)
    return problems or try_commands(client)


def judge(info: Mapping[str, Any]) -> list[Problem]:
    """What the server's own INFO says against it."""
    problems = []
    version = str(info.get("redis_version", "0"))
    # Valkey reports the Redis version it is compatible with, 7.2 or later.
    if parse_version(version) < OLDEST:
        problems.append(
            Problem("too_old", f"Redis {version} is too old: use Redis 7.0 or later, or Valkey")
        )
    # Of one slot it would serve us until that moves, and then refuse every call.
    if info.get("redis_mode") == "cluster" or info.get("server_mode") == "cluster":
        problems.append(
            Problem(
                "cluster",
                "this is a node of a Redis Cluster: use a single server, or one behind Sentinel",
            )
        )
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy != "noeviction":
        problems.append(
            Problem(
                "evicts",
                f"Redis may evict keys (maxmemory-policy {policy}): "
                "run `CONFIG SET maxmemory-policy noeviction`, or use another server",
            )
        )
    if info.get("role", "master") != "master":
        problems.append(
            Problem(
                "replica",
                "Redis is a replica and takes no writes: give its master's address, "
                "or a redis+sentinel:// URL",
            )
        )
    return problems


def try_commands(client: redis.Redis) -> list[Problem]:
    """Use every command and the channels once, under a name no job has; the keys expire at once."""
    store = RedisStore(client, PROBE_JOB)
    try:
        lease = store.campaign("check", 1.0, 0)
        store.order(lease, Section.PLAN, "check", "written", None)
        store.order(lease, Section.PLAN, "check", None, "written")
        store.turn_account(lease, Turn("check"))
        store.turn_account(lease, Turn("check"))  # now there is time to be counted
        store.claim(Section.NODES, "check", "written")
        store.report(Section.NODES, "check", None)
        store.read()
        store.resign("check")
        store.keep(1.0)
        client.eval("return 1", 0)  # the store needs it only where a script is not known yet
        listener = client.pubsub()  # type: ignore[no-untyped-call]
        try:
            listener.subscribe(Keys(PROBE_JOB).orders, Keys(PROBE_JOB).reports)
            listener.get_message(timeout=1.0)
        finally:
            listener.close()
    except StoreUnavailable as error:
        cause = error.__cause__
        return [problem_of(cause if isinstance(cause, Exception) else error)]
    except (RedisError, OSError) as error:
        return [problem_of(error)]
    return []


def problem_of(error: Exception) -> Problem:
    """The problem behind an error of the client. Messages of redis-py hold no secret."""
    text = str(error)
    if isinstance(error, AuthenticationError) or "WRONGPASS" in text or "NOAUTH" in text:
        return Problem(
            "refused",
            "Redis refuses the user or password: check HOLDFAST_REDIS_USER and "
            "HOLDFAST_REDIS_PASSWORD, or --redis-password-file",
        )
    if isinstance(error, NoPermissionError) or "permissions" in text:
        return Problem(
            "rights", f"Redis user lacks rights ({text}): give it those listed in docs/redis.md"
        )
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return Problem(
            "untrusted",
            f"Redis's certificate is not trusted ({text}): "
            "name the authority's file in the URL (?ssl_ca_certs=FILE)",
        )
    if isinstance(error, MasterNotFoundError):
        return Problem(
            "unreachable", f"Sentinel knows no master ({text}): check the service's name"
        )
    if isinstance(error, BusyLoadingError):
        return Problem("unreachable", "Redis is still loading its data: try again shortly")
    if isinstance(error, ResponseError):
        return Problem("rights", f"Redis refuses a command Holdfast needs: {text}")
    return Problem("unreachable", f"Redis cannot be reached ({text}): is it running, and there?")


CLIENTS_PER_NODE = 6
"""Connections that a node keeps: of launcher and sidecar those that ask and that hear orders. Those
of people come on top."""


def most_nodes(info: Mapping[str, Any]) -> int | None:
    """How many nodes more this server takes connections of; None where it does not say."""
    limit, taken = info.get("maxclients"), info.get("connected_clients", 0)
    if not isinstance(limit, int) or not isinstance(taken, int):
        return None
    return max(0, limit - taken) // CLIENTS_PER_NODE


def parse_version(text: str) -> tuple[int, int]:
    """Major and minor of `7.0.15`; what can't be read is old."""
    major, _, rest = text.partition(".")
    minor = rest.partition(".")[0]
    return (int(major), int(minor or 0)) if major.isdecimal() and minor.isdecimal() else (0, 0)


# User and password of the coordination server: where they come from, and that they stay there.
#
# A secret comes from a file or the environment. It is read anew for each connection, so that a
# changed file is a rotated password, and it never becomes part of a client's settings or repr.


class RedisCredentials(CredentialProvider):
    """What a connection authenticates with. `password_file` is preferred to `password`."""

    def __init__(self, user: str, password: str, password_file: Path | None) -> None:
        self._user = user
        self._password = password
        self._password_file = password_file

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """(password,) or (user, password), as AUTH wants them."""
        password = self._password
        if self._password_file is not None:
            password = self._password_file.read_text().rstrip("\r\n")
        return (self._user, password) if self._user else (password,)


def find_credentials(
    settings: RedisSettings, address: ServerAddress, environment: Mapping[str, str]
) -> RedisCredentials | None:
    """Settings first, then the environment, then the URL; None when nothing asks for a password."""
    user = settings.user or environment.get(names.REDIS_USER, "") or address.user
    file_name = settings.password_file
    password = ""
    if not file_name:
        password = environment.get(names.REDIS_PASSWORD, "")
        file_name = "" if password else environment.get(names.REDIS_PASSWORD_FILE, "")
    if file_name:
        return RedisCredentials(user, "", _checked(Path(file_name).expanduser()))
    password = password or address.password
    if not password:
        if user:
            raise BadInput(
                f"user {user!r} but no password for Redis: "
                f"give --redis-password-file or set {names.REDIS_PASSWORD}"
            )
        return None
    return RedisCredentials(user, password, None)


def refuse_visible_password(
    settings: RedisSettings, address: ServerAddress, environment: Mapping[str, str]
) -> None:
    """A password in a URL is accepted from the environment only: `ps` shows everything else."""
    is_from_environment = settings.url in ("", environment.get(names.REDIS_URL))
    if address.password and not is_from_environment:
        raise BadInput(
            f"a password in the Redis URL is visible to everyone ({describe(settings.url)}): "
            f"put it into a file (--redis-password-file) or into {names.REDIS_PASSWORD}"
        )


def _checked(path: Path) -> Path:
    try:
        content = path.read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise BadInput(f"cannot read the Redis password file {path}: {reason}") from None
    if not content:
        raise BadInput(f"the Redis password file {path} is empty: write the password into it")
    return path


__all__ = ["connect", "describe", "open_store"]

KEEPALIVE = {socket.TCP_KEEPIDLE: 5, socket.TCP_KEEPINTVL: 2, socket.TCP_KEEPCNT: 3}
"""A listener never writes, so only keepalive tells it, after some 11 s, that its peer is gone."""


def connect(settings: RedisSettings, environment: Mapping[str, str]) -> redis.Redis:
    """A client of the server that the settings (or, without a URL, the environment) name.

    Nothing is sent yet. BadInput when URL, user or password can't be right.
    """
    url = settings.url or environment.get(names.REDIS_URL, "")
    if not url:
        raise BadInput(f"no Redis server given: use --redis URL or set {names.REDIS_URL}")
    address = parse_address(url)
    refuse_visible_password(settings, address, environment)
    credentials = find_credentials(settings, address, environment)
    options = _options(settings, address)
    if address.uses_sentinel:
        return _behind_sentinel(address, options, credentials)
    where: dict[str, Any]
    if address.path:
        where = {"unix_socket_path": address.path}
    else:
        (host, port), *_ = address.hosts
        where = {"host": host, "port": port}
    return redis.Redis(**where, **options, db=address.db, credential_provider=credentials)


def open_store(
    settings: RedisSettings,
    job: str,
    environment: Mapping[str, str],
    *,
    hears_reports: bool = True,
) -> RedisStore:
    """This job's store on that server; nothing is sent yet."""
    return RedisStore(connect(settings, environment), job, hears_reports=hears_reports)


def _options(settings: RedisSettings, address: ServerAddress) -> dict[str, Any]:
    options: dict[str, Any] = {
        "socket_timeout": settings.timeout_s,
        "socket_connect_timeout": settings.timeout_s,
        # The caller comes again at its next tick; a client that retries would outlast the timeout.
        "retry": Retry(NoBackoff(), 0),
        "decode_responses": True,
        "encoding_errors": "replace",
        "protocol": 2,
    }
    if not address.path:
        options |= {"socket_keepalive": True, "socket_keepalive_options": KEEPALIVE}
    if address.uses_tls:
        options |= {"ssl": True, "ssl_cert_reqs": "required", "ssl_check_hostname": True}
        options |= dict(address.tls_files)
    return options


def _behind_sentinel(
    address: ServerAddress, options: dict[str, Any], credentials: RedisCredentials | None
) -> redis.Redis:
    sentinel_options = options | {
        "credential_provider": credentials if address.sentinel_auth else None
    }
    sentinel = Sentinel(  # type: ignore[no-untyped-call]
        list(address.hosts),
        sentinel_kwargs=sentinel_options,
        **options,
        db=address.db,
        credential_provider=credentials,
    )
    client: redis.Redis = sentinel.master_for(address.service)  # type: ignore[no-untyped-call]
    return client
