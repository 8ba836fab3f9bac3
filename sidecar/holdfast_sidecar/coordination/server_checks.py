"""Whether a server can be trusted with coordination: one line for each thing to mend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import redis
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    NoPermissionError,
    RedisError,
    ResponseError,
)
from redis.sentinel import MasterNotFoundError

from holdfast_sidecar.coordination.account_turn import Turn
from holdfast_sidecar.coordination.keys import Keys, Section
from holdfast_sidecar.coordination.redis_store import RedisStore
from holdfast_sidecar.coordination.store import StoreUnavailable

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
