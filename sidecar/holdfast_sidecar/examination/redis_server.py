"""The coordination server: one that was named, or the one we would start ourselves."""

from __future__ import annotations

import time
from collections.abc import Mapping

import redis
from redis.exceptions import RedisError

from holdfast_sidecar.components.host.clock import LEAST_OTHERS, how_far_off
from holdfast_sidecar.config.addresses import describe
from holdfast_sidecar.config.settings import BadInput, RedisSettings
from holdfast_sidecar.examination.check import FAIL, OK, WARN, Check
from holdfast_sidecar.examination.machine import CLOCKS_APART
from holdfast_sidecar.store.connection import check_server, connect, most_nodes
from holdfast_sidecar.store.embedded import find_binary

LARGE_SKEW_S = 1.0
"""Beyond this the order of events in a story can't be trusted. Restarts, some of whose waits go by
the leader's wall clock (see `machine.judge_clock`), would bear more."""


def check_redis(
    settings: RedisSettings, environment: Mapping[str, str], clock_off_s: float, nodes: int = 1
) -> list[Check]:
    """Look at the server these settings lead to. `clock_off_s`: as in the gate's settings. nodes:
    that the job is to have."""
    try:
        if not settings.url:
            return [_check_embedded()]
        with connect(settings, environment) as client:
            return _check_named(client, describe(settings.url), clock_off_s, nodes)
    except BadInput as error:
        return [Check("redis", FAIL, str(error))]


def _check_named(client: redis.Redis, where: str, clock_off_s: float, nodes: int) -> list[Check]:
    if problems := check_server(client):
        return [Check("redis", FAIL, problem.line) for problem in problems]
    found = Check("redis", OK, f"{where} answers, keeps keys, allows all we need")
    return [found, *_check_room(client, nodes), *_check_skew(client, clock_off_s)]


def judge_room(room: int | None, nodes: int) -> list[Check]:
    """Whether the server takes the connections of so many nodes."""
    if room is None:
        return []
    line = f"room for the connections of {room} more nodes"
    if room < nodes:
        line += f", and {nodes} are to come: raise its maxclients (and its limit of open files)"
        return [Check("clients", FAIL, line)]
    return [Check("clients", OK, line)]


def _check_room(client: redis.Redis, nodes: int) -> list[Check]:
    try:
        return judge_room(most_nodes(client.info("clients")), nodes)  # type: ignore[arg-type,unused-ignore]
    except (RedisError, OSError):  # an ACL may forbid it
        return []


def judge_skew(skew_s: float, clock_off_s: float) -> Check:
    """Whether this machine's clock and the server's tell the same time; the gate would judge it by
    those of the other nodes, which are not known here."""
    line = f"{abs(skew_s):.1f} s {'ahead of' if skew_s > 0 else 'behind'} the Redis server's"
    if how_far_off([skew_s] * LEAST_OTHERS, clock_off_s):
        line += ", and where most other nodes go by that, this node would be kept out of a job"
        return Check("clock", WARN, f"{line} (gate.clock_off_s)")
    if abs(skew_s) > LARGE_SKEW_S:
        return Check("clock", WARN, f"{line}: {CLOCKS_APART}")
    return Check("clock", OK, "agrees with the Redis server's")


def _check_embedded() -> Check:
    binary = find_binary()
    line = f"none named: `run` on a single node starts {binary.path}; several nodes need --redis"
    return Check("redis", OK, line)


def _check_skew(client: redis.Redis, clock_off_s: float) -> list[Check]:
    try:
        before = time.time()
        seconds, micros = client.time()  # type: ignore[misc,unused-ignore]
        after = time.time()
    except (RedisError, OSError):  # an ACL may forbid it; nothing rests on it
        return []
    return [judge_skew((before + after) / 2 - (float(seconds) + float(micros) / 1e6), clock_off_s)]
