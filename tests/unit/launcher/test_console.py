"""What the agent says on the console about an attempt's start and a rank's bad end."""

from __future__ import annotations

import dataclasses
import logging
import signal
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from holdfast_sidecar.launcher.agent import HoldfastAgent  # noqa: E402
from holdfast_sidecar.launcher.join import announce  # noqa: E402
from holdfast_sidecar.launcher.plan_state import AttemptState, ExitBarrier  # noqa: E402
from holdfast_sidecar.launcher.rank_state import (  # noqa: E402
    Course,
    RankEnd,
)
from holdfast_sidecar.launcher.rendezvous import Assignment, Unled  # noqa: E402
from holdfast_sidecar.records.plan import Candidate, Member, Plan  # noqa: E402

MEMBER = Member("a", "a-1", 0, 0, 2)


def test_a_restart_is_announced_with_its_cause() -> None:
    plan = Plan(
        1,
        2,
        "running",
        members=[MEMBER],
        world_size=2,
        resume=[Candidate("c", "/c", 40)],
        message="crash on node a: rank 1 ended by SIGKILL (95% sure); holdfast explain 8a4a4178",
    )
    assert announce(Assignment(plan, MEMBER), "j") == [
        "restarted after: crash on node a: rank 1 ended by SIGKILL (95% sure); "
        "holdfast explain 8a4a4178",
        "job j, attempt 1: node rank 0 of 1, ranks 0-1 of 2, resuming from step 40",
    ]


@pytest.mark.parametrize(
    ("step", "fetches", "source"),
    [
        (-1, {}, "the newest snapshot"),
        (55, {}, "the newest snapshot (step 55 or later)"),
        (55, {"1": "b"}, "the snapshots of step 55"),
    ],
)
def test_a_snapshot_is_announced_as_one(step: int, fetches: dict[str, str], source: str) -> None:
    candidate = Candidate("snapshot", "", step, tier="snapshot", fetches=fetches)
    plan = Plan(1, 2, "running", members=[MEMBER], world_size=2, resume=[candidate])
    (line,) = announce(Assignment(plan, MEMBER), "j")
    assert line == f"job j, attempt 1: node rank 0 of 1, ranks 0-1 of 2, resuming from {source}"


def test_a_first_attempt_has_no_cause() -> None:
    plan = Plan(0, 1, "running", members=[MEMBER], world_size=2)
    assert announce(Assignment(plan, MEMBER), "j") == [
        "job j, attempt 0: node rank 0 of 1, ranks 0-1 of 2"
    ]


@pytest.mark.parametrize(
    ("attempt", "state", "told"),
    [(1, "running", [{"leaves": True}]), (1, "ended", []), (2, "running", [])],
    ids=["nobody ended the attempt", "the leader ended it", "and opened the next one"],
)
def test_a_launcher_that_ends_ranks_unasked_says_that_it_leaves(
    attempt: int, state: str, told: list[dict[str, object]]
) -> None:
    agent: Any = HoldfastAgent.__new__(HoldfastAgent)
    agent._course = Course(1, {0: 2})
    said: list[dict[str, object]] = []
    agent._rendezvous_handler = SimpleNamespace(
        watch=SimpleNamespace(plan=Plan(attempt, 2, state)),
        reporter=SimpleNamespace(say=lambda **changes: said.append(changes)),
    )
    agent._tell_leaving(None)
    assert said == told
    agent._tell_leaving(signal.SIGINT)
    assert {"left_for": "SIGINT"} in said


def test_only_the_first_bad_end_of_an_attempt_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    agent: Any = HoldfastAgent.__new__(HoldfastAgent)
    agent._course = Course(0, {0: 2, 1: 3, 2: 4})
    agent._pcontext = SimpleNamespace(error_files={0: "", 1: "", 2: ""}, stdouts={}, stderrs={})
    agent._rendezvous_handler = SimpleNamespace(
        reporter=SimpleNamespace(say=lambda **changes: None),
        watch=SimpleNamespace(plan=Plan(0, 1, "running")),
    )
    looks = iter(
        [
            [RankEnd(0, 10, 0, 1.0)],
            [RankEnd(1, 11, -9, 2.0)],
            [RankEnd(2, 12, 1, 3.0)],
        ]
    )
    monkeypatch.setattr(agent, "_new_ends", lambda: next(looks))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            agent._look()
    assert [record.getMessage() for record in caplog.records] == ["rank 3 was ended by SIGKILL"]


@pytest.mark.parametrize(
    ("codes", "ends"), [((1, -9), True), ((1, None), False)], ids=["all ended", "one lives"]
)
def test_who_has_no_rank_left_does_not_wait_for_ever_for_a_leader(
    codes: tuple[int | None, ...], ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent: Any = HoldfastAgent.__new__(HoldfastAgent)
    ended = [RankEnd(n, 10 + n, code, 1.0) for n, code in enumerate(codes) if code is not None]
    agent._course = Course(0, {0: 0, 1: 1}, ended)
    agent._barrier, agent._backing = ExitBarrier(), None
    looks = iter(range(3))
    agent._rendezvous_handler = SimpleNamespace(leave_if_unled=leave)
    for name in ("_look", "_mind_preemption", "_tell_news"):
        monkeypatch.setattr(agent, name, lambda: None)
    monkeypatch.setattr(agent, "_standing", lambda: AttemptState.WAIT)
    monkeypatch.setattr(agent, "_sleep_until_news", lambda: next(looks))
    with pytest.raises(Unled if ends else StopIteration):
        agent._oversee()


def leave(barrier: ExitBarrier) -> None:
    raise Unled


@dataclasses.dataclass
class Waiting:
    """Ranks that all run on; notes how long they were waited for."""

    hears_ends: bool = True
    waited_s: list[float] = dataclasses.field(default_factory=list)

    def wait(self, running: object, news_fd: int, timeout_s: float) -> None:
        self.waited_s.append(timeout_s)


@pytest.mark.parametrize(
    ("given_s", "hears_ends", "ended", "asked", "waited_s"),
    [
        (0.1, True, [], None, 0.5),
        (2.0, True, [], None, 2.0),
        (0.1, False, [], None, 0.1),
        (0.1, True, [RankEnd(0, 10, 0, 1.0)], None, 0.1),
        (0.1, True, [], signal.SIGTERM, 0.1),
    ],
    ids=["nothing happens", "told to look seldom", "functions", "one has ended", "asked to go"],
)
def test_a_launcher_that_is_told_of_all_that_happens_looks_seldom_by_itself(
    given_s: float,
    hears_ends: bool,
    ended: list[RankEnd],
    asked: signal.Signals | None,
    waited_s: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent: Any = HoldfastAgent.__new__(HoldfastAgent)
    ranks = Waiting(hears_ends)
    monkeypatch.setattr(HoldfastAgent, "_local_ranks", ranks)
    agent._course, agent._preemption = Course(0, {0: 0, 1: 1}, ended), SimpleNamespace(asked=asked)
    agent._worker_group = SimpleNamespace(spec=SimpleNamespace(monitor_interval=given_s))
    watch = SimpleNamespace(news_fd=-1, drain=lambda: None)
    agent._rendezvous_handler = SimpleNamespace(watch=watch)
    agent._sleep_until_news()
    assert ranks.waited_s == [waited_s]
