from __future__ import annotations

import pytest
from redis import exceptions
from redis.sentinel import MasterNotFoundError

from holdfast_sidecar.cli.doctor import FAIL, OK
from holdfast_sidecar.cli.doctor.job import judge_room
from holdfast_sidecar.store.connection import judge, most_nodes, parse_version, problem_of

GOOD = {"redis_version": "7.0.15", "maxmemory_policy": "noeviction", "role": "master"}


@pytest.mark.parametrize("version", ["7.0.0", "7.2.4", "8.1", "10.0.1"])
def test_a_server_from_seven_on_is_accepted(version: str) -> None:
    assert judge(GOOD | {"redis_version": version}) == []


@pytest.mark.parametrize("version", ["6.2.14", "5.0.7", "unknown", ""])
def test_an_older_server_is_refused_by_name(version: str) -> None:
    (problem,) = judge(GOOD | {"redis_version": version})
    assert problem.kind == "too_old"
    assert f"Redis {version} is too old: use Redis 7.0" in problem.line


def test_every_problem_is_told_at_once() -> None:
    bad = {"redis_version": "6.0.1", "maxmemory_policy": "allkeys-lfu", "role": "slave"}
    assert [problem.kind for problem in judge(bad)] == ["too_old", "evicts", "replica"]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (
            exceptions.ConnectionError("Error 111 connecting to h:1. Connection refused."),
            "unreachable",
        ),
        (exceptions.TimeoutError("Timeout reading from h:1"), "unreachable"),
        (OSError("no such file"), "unreachable"),
        (exceptions.BusyLoadingError("Redis is loading the dataset in memory"), "unreachable"),
        (MasterNotFoundError("No master found for 'x'"), "unreachable"),
        (exceptions.ConnectionError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed"), "untrusted"),
        (exceptions.AuthenticationError("invalid username-password pair"), "refused"),
        (exceptions.ResponseError("WRONGPASS invalid username-password pair"), "refused"),
        (exceptions.NoPermissionError("this user has no permissions to run 'info'"), "rights"),
        (exceptions.ResponseError("unknown command 'EVALSHA'"), "rights"),
    ],
)
def test_every_error_becomes_one_line_that_says_what_to_do(error: Exception, kind: str) -> None:
    problem = problem_of(error)
    assert problem.kind == kind
    assert "\n" not in problem.line
    assert ":" in problem.line


@pytest.mark.parametrize(
    ("text", "version"),
    [("7.0.15", (7, 0)), ("10.2", (10, 2)), ("255.255.255", (255, 255)), ("x", (0, 0))],
)
def test_versions_compare_as_numbers(text: str, version: tuple[int, int]) -> None:
    assert parse_version(text) == version


def test_a_node_of_a_cluster_is_refused() -> None:
    """While the job's slot is on it every call succeeds; once that moved, none does."""
    (problem,) = judge(GOOD | {"redis_mode": "cluster"})
    assert problem.kind == "cluster"
    assert "a single server, or one behind Sentinel" in problem.line


def test_connections_limit_how_many_nodes_a_server_serves() -> None:
    assert most_nodes({"maxclients": 10000, "connected_clients": 400}) == 1600
    assert most_nodes({"maxclients": 10, "connected_clients": 40}) == 0
    assert most_nodes({}) is None
    assert judge_room(None, 5000) == []
    assert [check.verdict for check in judge_room(1600, 512)] == [OK]
    (check,) = judge_room(1600, 2000)
    assert check.verdict == FAIL
    assert "raise its maxclients" in check.line
