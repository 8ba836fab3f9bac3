"""A sidecar stays to write what would go with it, and not for ever."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.desk_twin import MemoryDesk

from holdfast_sidecar.checkpoint.writer.requests import (
    Entered,
    Question,
    Seal,
    WriteParts,
    WrittenPart,
)
from holdfast_sidecar.config.settings import CheckpointSettings, Settings, SidecarSettings
from holdfast_sidecar.lifecycle import TELLING, WRITING, ShutdownBlockers, read_last_word, read_stay
from holdfast_sidecar.records.checkpoint import (
    CheckpointOrder,
    FileFact,
    LedgerEntry,
    SnapshotReport,
)
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import Member, Plan
from holdfast_sidecar.records.reports import RankReport
from holdfast_sidecar.store.orders import Orders
from holdfast_sidecar.store.protocol import Lease, Section, View

SETTINGS = Settings(checkpoint=CheckpointSettings(dir="/ck"))
PLAN = Plan(3, 7, "running", [Member("a", "i", 0, 0, 2)], 2)
HELD = SnapshotReport(attempt=3, slots=2, held={"0": [40, 39], "1": [39, 38]})
WRITING_ORDER = CheckpointOrder(
    "c1", 3, 7, 20, "/ck/x", "writing", 0.0, writers={"0": "a", "1": "a"}
)


def entry(step: int, attempt: int = 3) -> LedgerEntry:
    return LedgerEntry("e", "/ck/e", step, attempt, 7, "", "complete", 1, 2, 0.0)


def orders(plan: Plan = PLAN, saved: int = 0, **fields: Any) -> Orders:
    sections = {Section.LEDGER: {"e": encode(entry(saved))} if saved else {}}
    return Orders(plan=plan, view=View(Lease(7, "a"), "s", sections), **fields)


def rank(number: int, **fields: Any) -> RankReport:
    return RankReport(number, number, 1, 40, "forward", 0.0, 0.1, 0.1, **fields)


RANKS = (rank(0), rank(1))


class Scene:
    def __init__(self, folder: Path, settings: Settings = SETTINGS) -> None:
        self.desk = MemoryDesk(self.answer)
        self.marker = folder / "shipping"
        self.summons = folder / "told-to-end"
        self.parting = ShutdownBlockers(
            "a", "/shm", settings, self.desk, self.marker, self.summons, lambda: "id"
        )

    def answer(self, question: Question[Any]) -> Any:
        if isinstance(question, WriteParts):
            return WrittenPart({"__0_own.pt": FileFact(1, "aa")}, 1.0)
        assert isinstance(question, Seal)
        return Entered(entry(question.order.step))

    def rescue(self, given: Orders | None = None, ranks: Any = RANKS, held: Any = HELD) -> None:
        self.parting.rescue(orders() if given is None else given, held, ranks)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_what_was_before_a_loss_that_was_not_finite_is_written(scene: Scene) -> None:
    held = replace(HELD, held={"0": [40, 39], "1": [40, 39]})
    scene.rescue(ranks=(rank(0), rank(1, onset_step=40)), held=held)
    written = scene.desk.asked[0]
    assert isinstance(written, WriteParts)
    assert written.order.step == 39


def test_the_newest_step_that_all_ranks_hold_is_written_and_sealed(scene: Scene) -> None:
    scene.rescue()
    written, sealed = scene.desk.asked
    assert isinstance(written, WriteParts)
    assert (written.order.step, written.ranks) == (39, [0, 1])
    assert isinstance(sealed, Seal)
    assert (sealed.order.path, sealed.order.trigger) == ("/ck/step-00000039-id", "failure")
    scene.rescue()
    assert len(scene.desk.asked) == 2, "once"
    assert not scene.parting.keeps(orders(), 0.0)


def test_it_stays_while_it_writes_and_its_launcher_can_see_that(scene: Scene) -> None:
    scene.desk.is_open = False
    scene.rescue()
    assert scene.parting.keeps(orders(), 100.0)
    assert read_stay(scene.marker) == WRITING
    scene.desk.is_open = True
    scene.rescue()
    assert not scene.parting.keeps(orders(), 101.0)
    assert not scene.marker.exists()


def test_it_stays_though_it_cant_say_so(scene: Scene) -> None:
    scene.parting.marker = scene.marker / "on a disk that is full"
    scene.desk.is_open = False
    scene.rescue()
    assert scene.parting.keeps(orders(), 100.0)


def test_it_does_not_stay_for_ever(scene: Scene) -> None:
    scene.desk.is_open = False
    scene.rescue()
    assert scene.parting.keeps(orders(), 100.0)
    assert not scene.parting.keeps(orders(), 100.0 + WRITING.most_s)


def test_an_order_that_is_being_written_keeps_it_while_the_store_is_up(scene: Scene) -> None:
    writing = orders(checkpoint=WRITING_ORDER, store_up=True)
    assert scene.parting.keeps(writing, 0.0)
    done = replace(writing, checkpoint=replace(WRITING_ORDER, state="complete"))
    assert not scene.parting.keeps(done, 1.0)
    assert not scene.parting.keeps(replace(writing, store_up=False), 1.0), "nobody would seal it"


def test_what_became_of_a_checkpoint_that_was_waited_for_in_vain_is_its_last_word(
    scene: Scene,
) -> None:
    writing = orders(checkpoint=WRITING_ORDER, store_up=True)
    void = replace(WRITING_ORDER, state="void", reason="No space left on device")
    assert not scene.parting.keeps(replace(writing, checkpoint=void), 0.0)
    assert not read_last_word(scene.marker), "it was told while the job ran"
    assert scene.parting.keeps(writing, 1.0)
    assert not read_last_word(scene.marker)
    for now_s in (2.0, 3.0):
        assert not scene.parting.keeps(replace(writing, checkpoint=void), now_s)
        assert read_last_word(scene.marker) == void.trouble
        assert "No space left" in void.trouble
        assert read_stay(scene.marker) is None


def test_storage_that_fails_ends_it(scene: Scene) -> None:
    def fails(question: Question[Any]) -> Any:
        raise OSError("No space left on device")

    scene.desk._answer = fails
    scene.rescue()
    scene.rescue()
    assert len(scene.desk.asked) == 1
    assert not scene.parting.keeps(orders(), 0.0)


@pytest.mark.parametrize(
    ("given", "ranks"),
    [
        (orders(saved=39), RANKS),
        (orders(replace(PLAN, state="done")), RANKS),
        (orders(replace(PLAN, members=[*PLAN.members, Member("b", "i", 1, 2, 1)])), RANKS),
        (orders(), (rank(0), rank(1, onset_step=30))),
        (orders(replace(PLAN, state="ended", cause="spike")), RANKS),
    ],
    ids=["saved already", "the job is over", "others are left to decide", "bad numbers", "spike"],
)
def test_nothing_is_written_that_should_not_be(
    scene: Scene, given: Orders, ranks: tuple[RankReport, ...]
) -> None:
    scene.rescue(given, ranks)
    assert scene.desk.asked == []
    assert not scene.parting.keeps(given, 0.0)


@pytest.mark.parametrize(
    "settings",
    [Settings(), replace(SETTINGS, sidecar=SidecarSettings(mode="observe"))],
    ids=["no directory", "observing"],
)
def test_a_sidecar_that_may_not_write_does_not(tmp_path: Path, settings: Settings) -> None:
    scene = Scene(tmp_path, settings)
    scene.rescue()
    assert scene.desk.asked == []


def test_ranks_without_a_common_step_leave_nothing_to_write(scene: Scene) -> None:
    scene.rescue(held=SnapshotReport(held={"0": [40], "1": [39]}))
    assert scene.desk.asked == []


DONE = replace(PLAN, state="done")


def leading(plan: Plan = DONE) -> Orders:
    return orders(plan, is_leader=True, store_up=True)


def test_the_leader_stays_until_a_prometheus_has_heard_of_the_end(scene: Scene) -> None:
    scene.parting.is_awaited = lambda now_s: now_s < 107.0
    assert scene.parting.keeps(leading(), 100.0)
    assert read_stay(scene.marker) == TELLING, "its launcher waits"
    assert not scene.parting.keeps(leading(), 107.0)
    assert not scene.marker.exists()


def test_it_waits_for_it_too_where_ill_hardware_ended_the_run(scene: Scene) -> None:
    scene.parting.is_awaited = lambda now_s: True
    assert scene.parting.keeps(
        leading(replace(PLAN, state="stopped", exit_code=75, cause="gpu")), 0.0
    )


def test_it_does_not_wait_long_for_a_prometheus(scene: Scene) -> None:
    scene.parting.is_awaited = lambda now_s: True
    assert scene.parting.keeps(leading(), 100.0)
    assert not scene.parting.keeps(leading(), 100.0 + TELLING.most_s)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(leading(PLAN), id="nobody decides any more"),
        pytest.param(replace(leading(PLAN), is_leader=False), id="another one leads"),
        pytest.param(replace(leading(PLAN), store_up=False), id="Redis went with the launcher"),
    ],
)
def test_a_node_whose_launcher_was_told_to_end_stays_to_say_so(scene: Scene, given: Orders) -> None:
    scene.parting.is_awaited = lambda now_s: now_s < 107.0
    scene.summons.touch()
    assert scene.parting.keeps(given, 100.0)
    assert read_stay(scene.marker) == TELLING
    assert not scene.parting.keeps(given, 107.0)


def test_what_is_to_be_told_gives_way_to_a_hurry_and_what_is_written_does_not(
    scene: Scene,
) -> None:
    scene.parting.is_awaited = lambda now_s: True
    scene.summons.touch()
    assert scene.parting.keeps(leading(), 100.0)
    scene.parting.hurry()
    assert not scene.parting.keeps(leading(), 101.0)
    assert scene.parting.keeps(orders(checkpoint=WRITING_ORDER, store_up=True), 102.0)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(replace(leading(), is_leader=False), id="another one tells of the job"),
        pytest.param(replace(leading(), store_up=False), id="nobody knows what holds"),
        pytest.param(leading(PLAN), id="the job goes on"),
    ],
)
def test_others_do_not_wait_for_a_prometheus(scene: Scene, given: Orders) -> None:
    scene.parting.is_awaited = lambda now_s: True
    assert not scene.parting.keeps(given, 100.0)
