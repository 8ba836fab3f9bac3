"""When a spare's warm interpreters are started, and what they import."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from holdfast_sidecar.config.paths import Paths  # noqa: E402
from holdfast_sidecar.launcher.rank_process import (  # noqa: E402
    Command,
    RankContext,
)
from holdfast_sidecar.launcher.standby import (  # noqa: E402
    Spare,
    Standby,
    expected_commands,
    modules_of,
)
from holdfast_sidecar.records.plan import Plan  # noqa: E402
from holdfast_sidecar.records.reports import AgentReport  # noqa: E402

PLAN = Plan(3, 1, "running")
CONTEXT = RankContext("j", "c", 0, 0, Paths(Path("/s"), Path("/t")), "/hooks")
SPEC = SimpleNamespace(
    entrypoint="python", args=("-u", "train.py", "--rank=${local_rank}"), local_world_size=2
)


def agent(state: str = "running", attempt: int = 3, *modules: str) -> AgentReport:
    return AgentReport(
        "a", "i", state, attempt, 1, 2, "127.0.0.1", 2, 2, warm_modules=list(modules)
    )


class Spy(Standby):
    def __init__(self) -> None:
        super().__init__()
        self.expected: list[Command] = []
        self.warmed: list[tuple[str, ...]] = []

    def expect(self, commands: object) -> None:
        self.expected = list(commands)  # type: ignore[call-overload]

    def warm_up(self, modules: tuple[str, ...] = ("torch",)) -> None:
        self.warmed.append(modules)

    @property
    def waiting(self) -> int:
        return len(self.warmed)


class Agents:
    def __init__(self) -> None:
        self.reports: list[AgentReport] = []
        self.readings = 0

    def read_agents(self) -> list[AgentReport]:
        self.readings += 1
        return self.reports


def test_modules_are_those_of_the_running_attempts_ranks() -> None:
    assert modules_of([agent("joining", 3, "x"), agent("running", 3, "torch")], PLAN) == ("torch",)


@pytest.mark.parametrize(
    "report",
    [agent("running", 2, "torch"), agent("failed", 3, "torch"), agent()],
    ids=["an earlier attempt", "not running", "not known yet, or cold starts"],
)
def test_nothing_is_imported_ahead_while_nobody_can_tell_what(report: AgentReport) -> None:
    assert modules_of([report], PLAN) == ()


def test_a_spare_warms_up_once_the_ranks_of_others_have_stepped() -> None:
    spy, agents = Spy(), Agents()
    spare = Spare(spy, agents, SPEC, CONTEXT)  # type: ignore[arg-type]
    agents.reports = [agent()]
    spare.look(PLAN)
    assert spy.warmed == []
    agents.reports = [agent("running", 3, "torch", "torch._dynamo")]
    for _ in range(3):
        spare.look(PLAN)
    assert spy.warmed == [("torch", "torch._dynamo")]
    assert [command.local_rank for command in spy.expected] == [0, 1]


def test_a_spare_reads_what_all_agents_report_the_seldomer_the_longer_they_take() -> None:
    """A thousand agents, and ranks that compile for ten minutes before their first step."""
    spy, agents, now_s = Spy(), Agents(), 0.0
    spare = Spare(spy, agents, SPEC, CONTEXT, lambda: now_s)  # type: ignore[arg-type]
    at: list[float] = []
    while now_s < 600:
        before = agents.readings
        spare.look(PLAN)
        at += [now_s] * (agents.readings - before)
        now_s += 1.0
    assert at[:4] == [0.0, 1.0, 2.0, 3.0]
    assert len(at) < 40
    assert max(after - before for before, after in itertools.pairwise(at)) <= 31
    agents.reports = [agent("running", 4, "torch")]
    spare.look(dataclasses.replace(PLAN, attempt=4))
    assert spy.warmed == [("torch",)], "another attempt is looked at at once"


def test_the_ranks_of_a_function_have_no_interpreter_of_their_own() -> None:
    spy, agents = Spy(), Agents()
    agents.reports = [agent("running", 3, "torch")]
    spec = SimpleNamespace(entrypoint=print, args=(), local_world_size=1)
    Spare(spy, agents, spec, CONTEXT).look(PLAN)  # type: ignore[arg-type]
    assert spy.warmed == []


def test_expected_arguments_name_the_local_rank() -> None:
    first, second = expected_commands(SPEC, CONTEXT, {})
    assert first.arguments == ("python", "-u", "train.py", "--rank=0")
    assert second.arguments == ("python", "-u", "train.py", "--rank=1")
