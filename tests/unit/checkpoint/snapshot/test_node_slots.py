from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.unit.checkpoint.snapshot.slots import SIZE, filled, seal
from tests.unit.pretend_pages import set_word, write_page

from holdfast.contract.page import Flag, Order, OrderKind, Word
from holdfast.contract.snapshot_file import COPIES_DIRECTORY, OWN_DIRECTORY
from holdfast_sidecar.checkpoint.snapshot.slots import (
    MARGIN_EVERY_S,
    PRESSED_S,
    Allocation,
    NodeSlots,
)
from holdfast_sidecar.config.settings import SnapshotSettings
from holdfast_sidecar.policy.replication import Margin, SnapshotSpace
from holdfast_sidecar.ranks.ending import ActionRunner
from holdfast_sidecar.ranks.page import Pages
from holdfast_sidecar.ranks.probe import RanksProbe
from holdfast_sidecar.records.checkpoint import SnapshotOrder, SnapshotReport
from holdfast_sidecar.records.plan import Member, Plan
from holdfast_sidecar.store.orders import Orders

PLAN = Plan(2, 5, "running", members=[Member("a", "x", 0, 0, 2)], world_size=2)
ORDER = SnapshotOrder(2, 5, every_steps=1)


@dataclass
class Free:
    """A machine with this much room."""

    bytes_free: int = 10**9
    left_to_the_job: int = 100
    """Percent."""
    looks: int = 0

    def read(self, held_bytes: int) -> SnapshotSpace:
        return SnapshotSpace(self.bytes_free + held_bytes, 10**12)

    def read_margin(self) -> Margin | None:
        self.looks += 1
        if self.left_to_the_job < 0:
            raise OSError("no /proc")
        return Margin(self.left_to_the_job, 100)


class Node:
    """A node with two ranks, ticked by hand."""

    def __init__(self, shm: Path, settings: SnapshotSettings | None = None) -> None:
        self.shm = shm
        self.pages = Pages(shm)
        self.free = Free()
        self.orders = Orders(plan=PLAN, store_up=True)
        self.now_s = 0.0
        self.slots = NodeSlots(
            settings or SnapshotSettings(memory_share=1.0),
            self.pages,
            ActionRunner(),
            Allocation(shm, self.free),
        )
        self._probe = RanksProbe(self.pages)
        self.start(2)

    def start(self, attempt: int) -> None:
        self.paths = [write_page(self.shm, attempt, local, epoch=5) for local in (0, 1)]

    def say(self, word: Word, *values: int) -> None:
        for path, value in zip(self.paths, values, strict=True):
            set_word(path, word, value)

    def tick(self, after_s: float = 0.1) -> SnapshotReport:
        self.now_s += after_s
        return self.slots.follow(self.orders, self._probe.read(self.now_s), self.now_s)

    def ready(self) -> SnapshotReport:
        """The report once the slots that were asked for are made."""
        self.tick()
        self.slots.allocation.wait()
        return self.tick()

    def ordered(self) -> list[Order | None]:
        return [page.read_order(OrderKind.SNAPSHOT) for page in self.pages.held()]

    def seal(self, rank: int, slot: int, step: int) -> None:
        seal(self.shm / OWN_DIRECTORY / f"rank-{rank}-slot-{slot}", step)

    def close(self) -> None:
        self.slots.checking.stop()
        self.pages.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.close()


def every(node: Node) -> list[tuple[int, int] | None]:
    return [None if one is None else (one.every, one.slots) for one in node.ordered()]


def test_slots_are_made_once_all_ranks_have_said_what_they_need(node: Node) -> None:
    node.say(Word.SNAPSHOT_WANTED, SIZE, 0)
    waiting = node.ready()
    assert (waiting.attempt, waiting.wants, waiting.slots) == (2, True, 0)
    assert waiting.slot_bytes == 0
    node.say(Word.SNAPSHOT_WANTED, SIZE, 2 * SIZE)
    made = node.ready()
    assert (made.slots, made.slot_bytes, made.obstacle) == (3, 9 * SIZE, "")


def test_a_rank_whose_page_is_missing_is_waited_for(node: Node) -> None:
    node.orders = replace(
        node.orders, plan=replace(PLAN, members=[Member("a", "x", 0, 0, 3)], world_size=3)
    )
    node.say(Word.SNAPSHOT_WANTED, SIZE, SIZE)
    assert node.ready().slots == 0


@pytest.mark.parametrize(
    "plan", [None, replace(PLAN, attempt=1), replace(PLAN, attempt=3)], ids=["none", "old", "new"]
)
def test_nothing_is_made_for_ranks_of_another_plan(node: Node, plan: Plan | None) -> None:
    node.orders = replace(node.orders, plan=plan)
    node.say(Word.SNAPSHOT_WANTED, SIZE, SIZE)
    assert node.ready().slot_bytes == 0


def test_slots_are_handed_out_once_the_leader_has_said_how_often(node: Node) -> None:
    node.say(Word.SNAPSHOT_WANTED, SIZE, SIZE)
    node.ready()
    assert every(node) == [None, None]
    node.orders = replace(node.orders, snapshot=ORDER)
    node.tick()
    assert every(node) == [(1, 3), (1, 3)]
    order = node.ordered()[0]
    assert order is not None
    assert not order.is_withdrawn


def test_an_order_of_another_attempt_is_not_handed_out(node: Node) -> None:
    node.orders = replace(node.orders, snapshot=replace(ORDER, attempt=1))
    node.say(Word.SNAPSHOT_WANTED, SIZE, SIZE)
    node.ready()
    assert every(node) == [None, None]


def test_a_new_rhythm_reaches_the_ranks_and_the_same_one_does_not_again(node: Node) -> None:
    node.orders = replace(node.orders, snapshot=ORDER)
    node.say(Word.SNAPSHOT_WANTED, SIZE, SIZE)
    node.ready()
    first = node.ordered()
    node.tick()
    node.orders = replace(node.orders, snapshot=replace(ORDER, epoch=6))
    node.tick()
    assert node.ordered() == first  # another leader, the same rhythm: nothing to look at
    node.orders = replace(node.orders, snapshot=replace(ORDER, every_steps=20))
    node.tick()
    assert every(node) == [(20, 3), (20, 3)]


def test_with_one_slot_ranks_take_none_by_themselves(node: Node) -> None:
    node.free.bytes_free = 2 * SIZE
    node.orders = replace(node.orders, snapshot=ORDER)
    node.say(Word.SNAPSHOT_WANTED, SIZE, SIZE)
    report = node.ready()
    assert (report.slots, report.short_of) == (1, "shared_memory")
    assert report.obstacle.startswith("snapshots: 2 ranks x 1 slot")
    assert every(node) == [(0, 1), (0, 1)]


def test_no_room_is_told_and_the_ranks_are_told_too(node: Node) -> None:
    node.free.bytes_free = 100
    node.orders = replace(node.orders, snapshot=ORDER)
    node.say(Word.SNAPSHOT_WANTED, SIZE, SIZE)
    report = node.ready()
    assert (report.slots, report.short_of, report.wants) == (0, "shared_memory", True)
    assert every(node) == [(0, 0), (0, 0)]


def test_a_larger_layout_gets_larger_slots_and_a_new_name(node: Node) -> None:
    node.orders = replace(node.orders, snapshot=ORDER)
    node.say(Word.SNAPSHOT_WANTED, SIZE, SIZE)
    node.ready()
    before = node.ordered()[0]
    node.seal(0, 1, step=8)
    node.say(Word.SNAPSHOT_WANTED, SIZE, 2 * SIZE)
    assert node.tick().slots == 0
    report = node.ready()
    assert (report.slots, report.slot_bytes) == (3, 9 * SIZE)
    assert report.held == {"0": [8]}
    after = node.ordered()[0]
    assert before is not None
    assert after is not None
    assert before.identifier != after.identifier


def test_a_job_that_grows_takes_slot_after_slot_and_is_told_why(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    node.orders = replace(node.orders, snapshot=ORDER)
    node.say(Word.SNAPSHOT_WANTED, SIZE, SIZE)
    node.ready()
    node.free.left_to_the_job = 9
    seen = []
    for _ in range(4):
        node.tick(MARGIN_EVERY_S)
        node.slots.allocation.wait()
        report = node.tick()
        seen.append((report.slots, report.short_of, report.slot_bytes))
    sizes = [4 * SIZE, 2 * SIZE, 0, 0]
    assert seen == [(n, "memory", size) for n, size in zip((2, 1, 0, 0), sizes, strict=True)]
    assert "less than 10% of its memory was left to the job" in report.obstacle
    assert every(node) == [(0, 0), (0, 0)]
    assert len([line for line in caplog.messages if "left to the job" in line]) == 3


def test_what_the_job_took_it_keeps_until_the_next_attempt(node: Node) -> None:
    node.say(Word.SNAPSHOT_WANTED, SIZE, SIZE)
    node.ready()
    node.free.left_to_the_job = 9
    node.tick(MARGIN_EVERY_S)
    assert node.ready().slots == 2
    node.free.left_to_the_job = 90
    for _ in range(3):
        node.tick(MARGIN_EVERY_S)
        assert node.ready().slots == 2
    node.start(3)
    node.orders = replace(node.orders, plan=replace(PLAN, attempt=3))
    node.say(Word.SNAPSHOT_WANTED, SIZE, SIZE)
    assert node.ready().slots == 3


def test_what_is_left_to_the_job_is_looked_at_every_five_seconds(node: Node) -> None:
    node.say(Word.SNAPSHOT_WANTED, SIZE, SIZE)
    node.ready()
    before = node.free.looks
    for _ in range(111):
        node.tick(0.1)
    assert node.free.looks - before == 2
    node.free.left_to_the_job = -1
    assert node.tick(MARGIN_EVERY_S).slots == 3


def test_copies_of_other_nodes_snapshots_are_given_back_first(tmp_path: Path) -> None:
    node = Node(tmp_path)
    members = [Member("a", "x", 0, 0, 2), Member("b", "y", 1, 2, 2)]
    node.orders = replace(node.orders, plan=replace(PLAN, members=members, world_size=4))
    node.say(Word.SNAPSHOT_WANTED, SIZE, SIZE)
    node.ready()
    copies = tmp_path / COPIES_DIRECTORY
    copies.mkdir()
    filled(copies, 2, 0, step=8)
    node.free.left_to_the_job = 9
    node.tick(MARGIN_EVERY_S)
    report = node.ready()
    assert (report.slots, report.copies_fit, report.short_of) == (3, False, "memory")
    assert list(copies.iterdir()) == []
    filled(copies, 2, 0, step=9)  # one that was on its way
    node.free.left_to_the_job = 50
    node.tick(MARGIN_EVERY_S)
    assert node.ready().slots == 3
    assert list(copies.iterdir()) == []
    node.close()


def test_the_next_attempt_finds_what_was_sealed_and_nothing_is_touched_before_it_loaded(
    node: Node,
) -> None:
    node.say(Word.SNAPSHOT_WANTED, SIZE, SIZE)
    node.ready()
    node.seal(0, 1, step=8)
    node.seal(1, 0, step=8)
    node.seal(1, 2, step=9)
    node.start(3)
    node.orders = replace(node.orders, plan=replace(PLAN, attempt=3))
    node.free.bytes_free = 0
    restoring = node.ready()
    assert (restoring.attempt, restoring.slots, restoring.wants) == (3, 3, False)
    assert restoring.held == {"0": [8], "1": [9, 8]}
    node.say(Word.SNAPSHOT_WANTED, SIZE, SIZE)
    going_on = node.ready()
    assert (going_on.slots, going_on.held) == (3, restoring.held)


def test_the_next_attempts_ranks_are_told_before_they_ask(node: Node) -> None:
    node.say(Word.SNAPSHOT_WANTED, SIZE, SIZE)
    node.ready()
    node.start(3)
    node.orders = replace(
        node.orders, plan=replace(PLAN, attempt=3), snapshot=replace(ORDER, attempt=3)
    )
    node.tick()
    assert every(node) == [(1, 3), (1, 3)]
    node.say(Word.SNAPSHOT_WANTED, SIZE, 2 * SIZE)
    assert node.tick().slots == 0  # one of them needs more than its predecessor
    assert node.ready().slots == 3


def test_slots_are_not_rearranged_while_ranks_may_still_load_them(node: Node) -> None:
    node.say(Word.SNAPSHOT_WANTED, SIZE, SIZE)
    node.ready()
    node.seal(0, 1, step=8)
    node.start(3)
    members = [Member("a", "x", 0, 0, 2), Member("b", "y", 1, 2, 1)]
    node.orders = replace(node.orders, plan=replace(PLAN, attempt=3, members=members))
    restoring = node.ready()
    assert (restoring.slots, restoring.slot_bytes) == (0, 6 * SIZE)
    node.say(Word.SNAPSHOT_WANTED, SIZE, SIZE)
    assert node.ready().slots == 4  # there is a peer now


def test_ranks_that_were_not_here_before_are_waited_for(node: Node) -> None:
    node.say(Word.SNAPSHOT_WANTED, SIZE, SIZE)
    node.ready()
    members = [Member("b", "y", 0, 0, 1), Member("a", "x", 1, 1, 2)]
    node.paths = [write_page(node.shm, 3, local, epoch=5, rank=local + 1) for local in (0, 1)]
    node.orders = replace(node.orders, plan=replace(PLAN, attempt=3, members=members))
    assert node.ready().slots == 0
    node.say(Word.SNAPSHOT_WANTED, SIZE, SIZE)
    assert node.ready().slots == 4
    assert sorted(path.name for path in node.slots.directory.iterdir()) == [
        f"rank-{rank}-slot-{slot}" for rank in (1, 2) for slot in range(4)
    ]


def test_a_sidecar_that_was_restarted_picks_up_what_is_there(node: Node, tmp_path: Path) -> None:
    node.orders = replace(node.orders, snapshot=ORDER)
    node.say(Word.SNAPSHOT_WANTED, SIZE, SIZE)
    node.ready()
    node.seal(0, 1, step=8)
    before = node.ordered()
    again = NodeSlots(
        SnapshotSettings(memory_share=1.0), node.pages, ActionRunner(), Allocation(tmp_path, Free())
    )
    node.slots.checking.stop()
    node.slots = again
    report = node.ready()
    assert (report.slots, report.held) == (3, {"0": [8]})
    assert node.ordered() == before


def test_peers_need_one_slot_more_and_room_for_copies(tmp_path: Path) -> None:
    node = Node(tmp_path)
    members = [Member("a", "x", 0, 0, 2), Member("b", "y", 1, 2, 2)]
    node.orders = replace(node.orders, plan=replace(PLAN, members=members, world_size=4))
    node.say(Word.SNAPSHOT_WANTED, SIZE, SIZE)
    report = node.ready()
    assert (report.slots, report.copies_fit) == (4, True)
    node.close()


def test_a_rank_that_can_not_copy_its_state_is_named(node: Node) -> None:
    node.say(Word.FLAGS, Flag.STATE_REGISTERED, Flag.STATE_REGISTERED)
    node.say(Word.SNAPSHOT_WANTED, SIZE, 0)
    node.say(Word.STEP, 2, 2)
    assert node.tick().short_of == ""
    node.say(Word.STEP, 3, 3)
    report = node.tick()
    assert report.short_of == "state"
    assert "[1]" in report.obstacle


@pytest.mark.parametrize(
    ("wanted", "ranks"), [((SIZE, 0), [1]), ((0, 0), [0, 1])], ids=["one of them", "all of them"]
)
def test_ranks_that_had_slots_and_can_not_copy_their_state_any_more_are_named(
    node: Node, wanted: tuple[int, int], ranks: list[int]
) -> None:
    node.say(Word.FLAGS, Flag.STATE_REGISTERED, Flag.STATE_REGISTERED)
    node.say(Word.SNAPSHOT_WANTED, SIZE, SIZE)
    assert node.ready().slots == 3
    node.say(Word.SNAPSHOT_WANTED, *wanted)
    report = node.tick()
    assert (report.wants, report.slots, report.short_of) == (True, 0, "state")
    assert f"ranks {ranks} can't say" in report.obstacle
    node.orders = replace(node.orders, snapshot=replace(ORDER, every_steps=0))
    node.tick()
    assert every(node) == [(0, 3), (0, 3)]  # the others need not go on


def test_a_script_that_takes_no_snapshots_is_left_alone(node: Node) -> None:
    node.say(Word.FLAGS, Flag.STATE_REGISTERED, Flag.STATE_REGISTERED)
    node.say(Word.STEP, 30, 30)
    report = node.tick()
    assert (report.wants, report.short_of, report.obstacle) == (False, "", "")
    assert not node.slots.is_pressed


def test_the_loop_looks_more_often_until_there_are_slots(node: Node) -> None:
    node.tick()
    assert not node.slots.is_pressed
    node.say(Word.SNAPSHOT_WANTED, SIZE, 0)
    node.tick()
    assert node.slots.is_pressed
    node.tick(after_s=PRESSED_S)
    assert not node.slots.is_pressed  # a rank that never asks is not waited for like that
    node.say(Word.SNAPSHOT_WANTED, SIZE, SIZE)
    node.ready()
    assert node.orders.snapshot is None
    assert not node.slots.is_pressed  # the leader's order wakes it, however long steps are


def test_nobody_waits_for_a_leader_while_the_store_is_away(node: Node) -> None:
    node.orders = replace(node.orders, store_up=False)
    node.say(Word.SNAPSHOT_WANTED, SIZE, SIZE)
    node.ready()
    assert not node.slots.is_pressed


def test_what_a_snapshot_costs_is_the_median_of_the_slowest_rank(node: Node) -> None:
    for taken, (first, second) in enumerate([(500, 500), (10, 20), (11, 200), (9, 21)], start=1):
        node.say(Word.SNAPSHOTS_TAKEN, taken, taken)
        node.say(Word.SNAPSHOT_LAST_NS, first * 10**6, second * 10**6)
        report = node.tick()
    assert report.blocked_s == pytest.approx(0.021)  # the first one is not counted
    assert report.taken == 4
    node.start(3)
    assert node.tick().blocked_s == 0.0


def test_the_newest_step_is_what_some_rank_knows_to_exist(node: Node) -> None:
    assert node.tick().newest == -1
    node.say(Word.SNAPSHOT_EXISTING, 8, 9)
    assert node.tick().newest == 8


def test_a_node_without_ranks_has_nothing_to_say(tmp_path: Path) -> None:
    slots = NodeSlots(
        SnapshotSettings(), Pages(tmp_path), ActionRunner(), Allocation(tmp_path, Free())
    )
    assert slots.follow(Orders(), [], 0.0) == SnapshotReport()
