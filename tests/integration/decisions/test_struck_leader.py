"""Real sidecars on a real server, struck in the middle of a decision about a hang."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests import servers
from tests.integration.decisions.crew import Crew, Node
from tests.servers import Sentinels, Server

from holdfast_sidecar.records.plan import Plan

pytestmark = pytest.mark.timeout(240)

WRITES = {1: "evidence", 2: "its incident", 3: "kept", 4: "ended", 5: "restart", 6: "running"}
"""What a leader writes about a hang, in order."""

POINTS = (1, 4, 5)
"""Every one of them is struck in the simulation and in the soak; here the plan's own, and one
between."""

SEEDS = range(int(os.environ.get("HOLDFAST_SOAK_SEEDS", "20")))


@contextmanager
def started(folder: Path, server: Server | Sentinels) -> Iterator[Crew]:
    """A crew that steps, and ends."""
    folder.mkdir()
    crew = Crew(folder, server.settings)
    crew.start()
    try:
        crew.await_stepping()
        yield crew
    finally:
        crew.close()


@pytest.fixture(scope="module")
def lasting_server() -> Iterator[Server]:
    """One for the tests of this file, restarts included."""
    folder = Path(tempfile.mkdtemp(prefix="hf-", dir="/tmp"))
    server = servers.plain_on_socket(folder).start()
    yield server
    server.kill()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def crew(lasting_server: Server) -> Iterator[Crew]:
    """One for them too: each leaves it stepping."""
    with started(lasting_server.directory / "crew", lasting_server) as made:
        yield made


def survive(crew: Crew, writes: int, what: str, meanwhile: Callable[[], None]) -> Plan:
    """A rank hangs; at this write something happens; all step again, one attempt later."""
    before = crew.await_stepping()
    culprit = before.members[writes % len(before.members)]
    lease = crew.lease()
    crew.strike(writes, what)
    crew.freeze(culprit.node)
    crew.wait_for(crew.has_fallen, f"write {writes}")
    meanwhile()
    after = crew.await_stepping(before.attempt + 1)
    crew.check()
    assert crew.lease().epoch >= lease.epoch
    assert after.attempt == before.attempt + 1, crew.story()
    assert [m.node for m in after.members] == [m.node for m in before.members]
    for incident in crew.incidents(before.attempt):
        assert (incident.culprit_node, incident.cause) == (culprit.node, "hang")
        assert incident.decided == "restart"
    return after


def survive_death(crew: Crew, writes: int) -> None:
    lease = crew.lease()
    after = survive(crew, writes, "die", lambda: None)
    assert crew.lease().epoch > lease.epoch
    assert len(crew.incidents(after.attempt - 1)) == 1


def test_a_leader_killed_at_any_write_leaves_its_decision_to_the_next_one(crew: Crew) -> None:
    for writes in POINTS:
        survive_death(crew, writes)


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS)
def test_a_leader_killed_at_every_write(crew: Crew, seed: int) -> None:
    survive_death(crew, list(WRITES)[seed % len(WRITES)])


def test_a_server_killed_or_paused_in_the_middle_delays_a_decision_and_doubles_none(
    crew: Crew, lasting_server: Server
) -> None:
    def kill() -> None:
        lasting_server.kill()
        crew.go_on()
        crew.is_over.wait(1.0)
        lasting_server.start()

    def pause() -> None:
        lasting_server.pause()
        crew.go_on()
        crew.is_over.wait(1.0)
        lasting_server.resume()

    survive(crew, 1, "wait", kill)
    survive(crew, 4, "wait", pause)


@pytest.mark.redis_server
def test_a_failover_in_the_middle_is_gone_through_under_a_later_epoch_or_the_same_leader(
    short_path: Path, sentinels: Sentinels
) -> None:
    with started(short_path / "crew", sentinels) as crew:

        def fail_over() -> None:
            sentinels.servers[0].kill()
            crew.go_on()

        survive(crew, 1, "wait", fail_over)


def test_two_failures_at_once_and_another_during_the_recovery_are_all_survived(crew: Crew) -> None:
    before = crew.await_stepping()
    hung, killed, other = (crew.nodes[member.node] for member in before.members)
    crew.strike(2, "wait")
    crew.freeze(hung.name)
    killed.kill_rank()
    crew.wait_for(crew.has_fallen, "the first decision is under way")
    assert other.sidecar is not None
    other.sidecar.kill()  # while evidence is kept, or the attempt is ended
    crew.go_on()
    crew.wait_for(lambda: runs_later(other, before), "the next attempt begins")
    other.kill_rank()  # before it has made many steps
    crew.await_stepping(before.attempt + 2)
    crew.check()
    first, *_ = crew.incidents(before.attempt)
    assert first.cause in ("crash", "hang")
    assert {first.culprit_node} <= {hung.name, killed.name}
    assert crew.incidents(before.attempt + 1)[0].culprit_node == other.name


def runs_later(node: Node, before: Plan) -> bool:
    return node.plan is not None and node.plan.attempt > before.attempt and node.rank is not None
