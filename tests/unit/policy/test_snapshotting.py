from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast_sidecar.config.settings import Settings, SnapshotSettings
from holdfast_sidecar.controller.snapshots import SnapshotKeeping
from holdfast_sidecar.policy.checkpoint_schedule import decide_rhythm
from holdfast_sidecar.policy.cluster import parse_cluster
from holdfast_sidecar.records.checkpoint import SnapshotOrder, SnapshotReport
from holdfast_sidecar.records.codec import decode, encode
from holdfast_sidecar.records.plan import Member, Plan
from holdfast_sidecar.records.reports import NodeReport, RankReport
from holdfast_sidecar.store.memory_store import MemoryServer, MemoryStore
from holdfast_sidecar.store.protocol import CURRENT, Section

MEMBERS = [Member("a", "x", 0, 0, 1), Member("b", "y", 1, 1, 1)]
PLAN = Plan(3, 7, "running", members=MEMBERS, world_size=2)
AUTOMATIC = SnapshotSettings(most_share=0.02)


def report(slots: int = 3, taken: int = 10, blocked_s: float = 0.02, **more: object) -> NodeReport:
    snapshot = SnapshotReport(3, slots, True, taken=taken, blocked_s=blocked_s, **more)  # type: ignore[arg-type]
    return NodeReport("a", "x", 1, 3, 7, 3, True, snapshot=snapshot)


def nodes(a: NodeReport | None = None, b: NodeReport | None = None) -> dict[str, NodeReport]:
    return {"a": a or report(), "b": b or report()}


def ranks(step_s: float = 1.0) -> list[RankReport]:
    return [RankReport(n, 0, 9, 40, "forward", 0.1, step_s, step_s) for n in (0, 1)]


def standing(every: int) -> SnapshotOrder:
    return SnapshotOrder(3, 7, every)


def rhythm(
    settings: SnapshotSettings = AUTOMATIC,
    found: dict[str, NodeReport] | None = None,
    step_s: float = 1.0,
    before: SnapshotOrder | None = None,
) -> SnapshotOrder | None:
    return decide_rhythm(
        settings, PLAN, nodes() if found is None else found, ranks(step_s), before, 7
    )


def every(*given: object, **more: object) -> int | None:
    order = rhythm(*given, **more)  # type: ignore[arg-type]
    return None if order is None else order.every_steps


@pytest.mark.parametrize(("step_s", "wanted"), [(1.0, 1), (7.0, 1), (0.3, 4), (0.01, 100)])
def test_it_begins_with_one_a_second_or_every_step(step_s: float, wanted: int) -> None:
    """Steps as short as a snapshot would take twice as long until it is known what one costs."""
    young = nodes(report(taken=1), report(taken=1))
    assert rhythm(found=young, step_s=step_s) == SnapshotOrder(3, 7, wanted)
    assert every(found=young, step_s=step_s, before=SnapshotOrder(2, 6, 5000)) == wanted


def test_before_a_step_was_seen_that_of_the_attempt_before_goes_on() -> None:
    assert rhythm(step_s=0.0) is None
    assert rhythm(step_s=0.0, before=SnapshotOrder(2, 6, 50)) == SnapshotOrder(3, 7, 50)
    assert rhythm(step_s=0.0, before=SnapshotOrder(2, 6, 0, "node b: no room")) is None
    assert rhythm(step_s=0.0, before=standing(50)) is None
    assert every(SnapshotSettings(every_steps=25), step_s=0.0) == 25


def test_a_first_step_unlike_the_others_is_not_believed_for_long() -> None:
    """A batch that was passed over took 10 ms; a snapshot every hundred steps of 10 s is none."""
    young = nodes(report(taken=0), report(taken=0))
    assert every(found=young, step_s=10.0, before=standing(100)) == 1
    assert every(found=young, step_s=0.01, before=standing(1)) == 100


def test_a_rhythm_that_is_a_guess_does_not_follow_each_step() -> None:
    young = nodes(report(taken=1), report(taken=1))
    assert every(found=young, step_s=0.07, before=standing(10)) is None


@pytest.mark.parametrize(
    "missing",
    [
        {"a": report()},
        nodes(b=report(slots=0)),
        nodes(b=NodeReport("b", "y", 1, 3, 7, 3, True)),
        nodes(b=NodeReport("b", "y", 1, 3, 7, 2, True, snapshot=SnapshotReport(2, 3, True))),
    ],
    ids=["no node", "no slots yet", "no word", "slots of another attempt"],
)
def test_it_waits_for_every_nodes_slots(missing: dict[str, NodeReport]) -> None:
    assert rhythm(found=missing) is None


def test_the_number_that_was_given_is_taken() -> None:
    assert every(SnapshotSettings(every_steps=25)) == 25
    assert every(SnapshotSettings(every_steps=25), before=standing(25)) is None


@pytest.mark.parametrize("slots", [0, 1])
def test_a_node_without_two_slots_ends_snapshots_for_all_and_says_why(slots: int) -> None:
    short = nodes(b=report(slots=slots, obstacle="snapshots: none, of 0.1 GB free"))
    order = rhythm(found=short, before=standing(1))
    assert order is not None
    assert order.every_steps == 0
    assert order.reason == "node b: snapshots: none, of 0.1 GB free"
    assert rhythm(SnapshotSettings(every_steps=5), short) == order
    assert rhythm(found=short, before=order) is None


def test_snapshots_come_back_with_the_slots() -> None:
    assert every(before=SnapshotOrder(3, 7, 0, "node b: no room")) == 1


@pytest.mark.parametrize(
    ("blocked_s", "step_s", "wanted"),
    [
        (0.02, 1.02, None),  # 2 % exactly, the snapshot itself taken off
        (0.021, 1.02, 2),
        (0.02, 0.0605, 25),  # 20 ms beside 40 ms of its own work: every 25th step makes 2 %
        (0.02, 0.02, 5000),  # nothing but snapshots: bounded, not infinite
        (0.0, 1.0, None),  # not measured yet
        (0.02, 0.0, None),
    ],
)
def test_it_takes_no_more_than_its_share(
    blocked_s: float, step_s: float, wanted: int | None
) -> None:
    found = nodes(a=report(blocked_s=blocked_s / 2), b=report(blocked_s=blocked_s))
    assert every(found=found, step_s=step_s, before=standing(1)) == wanted


def test_it_is_not_doubted_before_some_were_taken() -> None:
    early = nodes(b=report(taken=3, blocked_s=1.0))
    assert rhythm(found=early, before=standing(1)) is None


@pytest.mark.parametrize(
    ("current", "blocked_s", "wanted"),
    [(10, 0.24, None), (10, 0.25, 13), (10, 0.11, None), (10, 0.1, 5), (10, 0.001, 1)],
)
def test_it_gives_way_early_and_comes_more_often_by_a_factor_of_two_or_not_at_all(
    current: int, blocked_s: float, wanted: int | None
) -> None:
    found = nodes(b=report(blocked_s=blocked_s), a=report(blocked_s=0.0))
    assert every(found=found, before=standing(current)) == wanted


def test_what_it_settles_on_stays() -> None:
    found = nodes(a=report(blocked_s=0.02), b=report(blocked_s=0.02))
    first = rhythm(found=found, step_s=0.06, before=standing(1))
    assert first is not None
    assert rhythm(found=found, step_s=0.04, before=first) is None


def test_a_new_leader_writes_nothing_that_stands_already() -> None:
    cheap = nodes(report(blocked_s=0.01), report(blocked_s=0.01))
    assert decide_rhythm(AUTOMATIC, PLAN, cheap, ranks(), standing(1), epoch=9) is None


def test_the_leader_writes_the_order_once() -> None:
    store = MemoryStore(MemoryServer())
    lease = store.campaign("a/x", 10.0, 6)
    store.order(lease, Section.PLAN, CURRENT, encode(PLAN), None)
    young = nodes(report(taken=1), report(taken=1))
    for rank, (name, node) in zip(ranks(), young.items(), strict=True):
        store.report(Section.NODES, name, encode(replace(node, node=name, ranks=[rank])))
    keeping = SnapshotKeeping(store, Settings())
    for _ in range(2):
        keeping.keep(lease, parse_cluster(store.read()), PLAN)
    written = decode(SnapshotOrder, store.read().section(Section.SNAPSHOT)[CURRENT])
    assert written == SnapshotOrder(3, lease.epoch, 1)
