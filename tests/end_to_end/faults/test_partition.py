"""The network between two nodes is cut, Redis on one side: both sides, and the healing.

Node b leads when it is cut off, which is the worst case: it still thinks that it does.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests import servers
from tests.end_to_end.faults.job import BRISK, TRAINING, Job, Rank, new_job
from tests.end_to_end.launcher import Launcher
from tests.two_networks import INTERFACE, TwoNetworks, two_networks

from holdfast.contract.page import Word, parse_words
from holdfast_sidecar.config.paths import find
from holdfast_sidecar.controller.fence import read_fence
from holdfast_sidecar.ranks.page import open_page
from holdfast_sidecar.records.plan import Incident

pytestmark = [pytest.mark.torch, pytest.mark.root, pytest.mark.timeout(240)]

PORT = 6379


@dataclass
class SplitJob(Job):
    """Node a runs in network a, node b in network b; we look in by Redis's Unix socket."""

    networks: TwoNetworks | None = None

    def start(self, node: str, options: Sequence[str], life: Sequence[str]) -> Launcher:
        assert self.networks is not None
        command = [
            *self.networks.inside(node),
            *(sys.executable, "-m", "holdfast_sidecar.cli.main", "run"),
            *(f"--job={self.name}", f"--node={node}"),
            f"--redis=redis://{self.networks.address('a')}:{PORT}",
            *(*BRISK, *options, str(TRAINING), *life),
        ]
        environment = self.environment | {"GLOO_SOCKET_IFNAME": INTERFACE}
        self.nodes[node] = Launcher.start(node, command, self.folder, environment)
        return self.nodes[node]

    def rank_of(self, node: str) -> Rank:
        """The newest rank that ran on this node."""
        found = []
        for path in find(self.shm, f"*/{self.name}/{node}/*.page"):
            if (held := open_page(path)) is not None:
                who, words = held.identity, parse_words(held.read())
                found.append(Rank(who.rank, node, who.pid, who.attempt, words[Word.STEP]))
                held.close()
        assert found, self.story()
        return max(found, key=lambda rank: rank.attempt)

    def await_more_steps(self, node: str, steps: int) -> None:
        """Of the very rank that runs there now."""
        before = self.rank_of(node)

        def has_stepped() -> bool:
            now = self.rank_of(node)
            assert now.pid == before.pid, self.story()
            return now.step >= before.step + steps

        self.await_that(has_stepped, f"{steps} more steps on {node}")

    def cut_off(self) -> Incident | None:
        """The loss of node b, once it is known."""
        return next((i for i in self.incidents() if i.culprit_node == "b"), None)


@pytest.fixture
def job() -> Iterator[SplitJob]:
    """Not started; its server listens in network a."""
    folder = Path(tempfile.mkdtemp(prefix="hf-", dir="/tmp"))
    with two_networks() as networks:
        server = servers.plain_on_socket(folder, "--protected-mode", "no")
        address = ["--port", str(PORT), "--bind", networks.address("a")]
        server.command = [*networks.inside("a"), *server.command, *address]
        server.start()
        plain = new_job(server)
        split = SplitJob(plain.name, plain.folder, server, networks=networks)
        yield split
        split.close()
        server.kill()
    shutil.rmtree(folder, ignore_errors=True)


def test_the_side_with_redis_goes_on_the_other_one_harms_nobody_and_they_heal(
    job: SplitJob,
) -> None:
    assert job.networks is not None
    job.start("b", ["--nnodes=1:2"], ["alone"])
    job.await_that(lambda: job.lease().candidate.startswith("b/"), "b leads")
    job.start("a", ["--nnodes=1:2"], ["alone"])
    before = {rank.node: rank for rank in job.await_stepping(2).values()}
    led = job.lease()
    assert led.candidate.startswith("b/")

    job.networks.cut()
    cut_s = time.monotonic()
    job.await_that(lambda: (i := job.cut_off()) is not None and bool(i.decided), "a goes on")
    # Ranks that train alone make no step that could speak for the other node: 30 s.
    assert time.monotonic() - cut_s < 50
    job.await_that(lambda: job.rank_of("a").attempt == 1, "a has another rank")

    # The minority trains on; it sees a hang of its own, and ends nobody.
    assert job.rank_of("b").pid == before["b"].pid
    job.await_more_steps("b", 50)
    os.kill(before["b"].pid, signal.SIGSTOP)
    job.await_that(lambda: "found hang" in job.sidecar_log("b"), "b sees its rank stand still")
    time.sleep(2.0)
    os.kill(before["b"].pid, signal.SIGCONT)
    job.await_more_steps("b", 10)
    assert "the store is away" in job.sidecar_log("b")
    assert "ended rank" not in job.sidecar_log("b")
    assert read_fence(job.folder / "state" / job.name / "b" / "fence.json").attempt == 0
    lease = job.lease()
    assert lease.candidate.startswith("a/")
    assert lease.epoch > led.epoch

    job.networks.mend()
    after = job.await_stepping(2, 2)
    assert {rank.node for rank in after.values()} == {"a", "b"}
    assert {rank.attempt for rank in after.values()} == {2}, job.story()
    plan = job.plan()
    assert plan is not None
    assert plan.epoch == job.lease().epoch == lease.epoch, "b came back as a follower"
    assert {i.attempt: i.cause for i in job.incidents()} == {0: "node_lost", 1: "grow"}
    job.finish()
