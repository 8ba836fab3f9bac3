"""Whole runs whose steps nobody sees: a restart of theirs ends, and so does its time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.controller.simulated_job import SimulatedNode
from tests.unit.policy.pretend_job import ToldJob

from holdfast_sidecar.performance.goodput import accounting
from holdfast_sidecar.policy import requeue
from holdfast_sidecar.records.account import Category
from holdfast_sidecar.store.orders import LocalState

WAIT_S = 8.0


class UnseenJob(ToldJob):
    """Its ranks work, and no step of theirs is counted."""

    has_hooks = True

    def add(self, name: str) -> SimulatedNode:
        node = super().add(name)
        if not self.has_hooks:
            node.local_state = without_pages(node.local_state)  # type: ignore[method-assign,assignment]
        return node

    def _step(self, node: SimulatedNode) -> None:
        pass

    def works(self, attempt: int) -> bool:
        """Whether all ranks of this attempt were started."""
        return all(n.state == "running" and n.attempt == attempt for n in self.nodes.values())


class HooklessJob(UnseenJob):
    """Its ranks have no page either."""

    has_hooks = False


def without_pages(told: Callable[[float], LocalState]) -> Callable[[float], LocalState]:
    return lambda now: replace(told(now), ranks=[])


@pytest.mark.parametrize("kind", [UnseenJob, HooklessJob])
def test_a_restart_ends_and_what_comes_then_is_no_restart(
    kind: type[UnseenJob], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ToldJob looks whether the sum stays the wall clock."""
    monkeypatch.setattr(requeue, "wait_s", lambda settings: WAIT_S)
    monkeypatch.setattr(accounting, "SETUP_S", 6.0)
    job = kind(tmp_path)
    job.run_until(lambda: job.works(0))
    job.run(2)
    job.nodes["n0"].crash(0, -9, job.now)
    job.run_until(lambda: job.works(1))
    job.run(WAIT_S - 2)
    (incident,) = job.incidents()
    assert not incident.recovered_unix_s
    assert job.seen is not None
    assert job.seen.open == Category.RESTART
    job.run(3)
    (incident,) = job.incidents()
    assert incident.recovered_unix_s - incident.reopened_unix_s == pytest.approx(WAIT_S, abs=0.5)
    spent, cost = job.seconds(Category.RESTART), job.seen.costs[incident.identifier]
    assert (cost.lost_us, cost.lost_steps, job.seen.marks) == (0, 0, ())
    assert cost.down_us / 1e6 == pytest.approx(
        incident.recovered_unix_s - incident.since_unix_s, abs=0.5
    )
    job.run(8)
    assert job.seconds(Category.RESTART) == spent
    assert job.seen.open == Category.UNOBSERVED
