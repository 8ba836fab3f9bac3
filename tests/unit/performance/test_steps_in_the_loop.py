"""Ticks of the loop over pages: what ranks' steps were like is told, and who is slow is found."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from tests.unit.pretend_pages import publish, write_page
from tests.unit.ranks.scene import record
from tests.unit.records.slow_job import slow
from tests.unit.test_loop import HOST, Coordination, Fixed, loop  # noqa: F401 - a fixture
from tests.unit.test_slowness_attention import Twin, standing

from holdfast_sidecar.components.host.readings import Pressure
from holdfast_sidecar.linux.probe_runner import ProbeRunner
from holdfast_sidecar.loop import Loop
from holdfast_sidecar.performance.slowness import LayoutsProbe
from holdfast_sidecar.records.findings import Kind
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.records.reports import NodeReport
from holdfast_sidecar.records.steps import FIELDS, StepLine, parse, spell
from holdfast_sidecar.store.orders import LocalState, Orders
from holdfast_sidecar.store.protocol import Lease

LINE = StepLine._make([0] * FIELDS)._replace(rank=3, step=8, stride=1, steps=1)
LEADER = Orders(is_leader=True, store_up=True, nodes={}, lease=Lease(1, "a/i"))


def training_rank(directory: Path, steps: int) -> None:
    path = write_page(directory, claimed_ns=0)
    for index in range(steps):
        publish(path, index, record(step=index + 1, forward=400))
    path.with_suffix(".layout").write_text(
        json.dumps({"dims": ["dp"], "shape": [2], "coordinate": [1]})
    )


def told(loop: Loop) -> LocalState:  # noqa: F811
    assert isinstance(loop.coordination, Coordination)
    return loop.coordination.told[-1]


def test_what_its_ranks_steps_were_like_is_told(loop: Loop, tmp_path: Path) -> None:  # noqa: F811
    training_rank(tmp_path, 10)
    host = replace(HOST, pressure={"io": Pressure(9.0, 0.0, 0.2, 0.0)})
    loop.machine = replace(
        loop.machine,
        host=ProbeRunner(Fixed(host), 5.0),
        layouts=ProbeRunner(LayoutsProbe(loop.deeds.pages.held), 1.0),
    )
    loop.tick(6.0, 1006.0)
    lines = [line for text in told(loop).steps if (line := parse(text))]
    assert [line.step for line in lines] == [4, 5, 6, 7, 8, 9, 10]
    assert {(line.forward, line.storage_permille) for line in lines} == {(400000, 200)}
    loop.tick(7.0, 1007.0)
    assert told(loop).ranks[0].layout == "dp=1/2"


def test_who_is_slow_is_told_by_who_leads(loop: Loop, tmp_path: Path) -> None:  # noqa: F811
    training_rank(tmp_path, 10)
    assert isinstance(loop.coordination, Coordination)
    loop.coordination.agreed = LEADER
    loop.slowness.make_judge = Twin([standing(slow(3))]).make
    loop.tick(6.0, 1006.0)
    assert [(f.kind, f.ranks, f.node) for f in told(loop).findings] == [(Kind.STRAGGLER, [3], "b")]
    assert told(loop).slow == standing(slow(3))


def test_a_judge_that_fails_is_a_probe_that_does(loop: Loop, tmp_path: Path) -> None:  # noqa: F811
    training_rank(tmp_path, 10)
    assert isinstance(loop.coordination, Coordination)
    loop.coordination.agreed = LEADER
    loop.slowness.make_judge = Twin([ZeroDivisionError("planted")]).make
    loop.tick(6.0, 1006.0)
    probes = loop.teller.pictures[-1].probes  # type: ignore[attr-defined]
    assert [(one.name, one.is_up) for one in probes][-1] == ("slowness", False)
    assert loop.cost.failed_ticks == 0


def test_who_leads_judges_though_it_has_no_rank_in_the_attempt(loop: Loop) -> None:  # noqa: F811
    training_rank_of_b = NodeReport("b", "i", 1, 0, 0, 2, True, steps=[spell(LINE)])
    assert isinstance(loop.coordination, Coordination)
    loop.coordination.agreed = replace(
        LEADER, plan=Plan(2, 1, "running"), nodes={"b": training_rank_of_b}
    )
    twin = Twin([standing(slow(3), attempt=2)])
    loop.slowness.make_judge = twin.make
    loop.tick(6.0, 1006.0)
    assert (twin.attempts, twin.given) == ([2], [[(3, 8)]])
    assert [f.ranks for f in told(loop).findings if f.kind is Kind.STRAGGLER] == [[3]]
    loop.coordination.agreed = replace(loop.coordination.agreed, plan=Plan(2, 1, "ended"))
    loop.tick(7.0, 1007.0)
    assert Kind.STRAGGLER not in {finding.kind for finding in told(loop).findings}
