"""Whatever the ranks do in whatever order, and whenever they die, one snapshot is common to all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from holdfast.snapshots import retention
from holdfast.snapshots.retention import Known, free_slots, undecided


def test_what_is_void_is_settled_once_nothing_before_it_is_open():
    known = Known(sealed=(67, 74, None), existing=67)
    assert retention.settled(known) == 73
    known = retention.is_void(known, 74)
    assert retention.settled(known) == 74
    assert retention.settled(retention.sealed(retention.overwriting(known, 2), 2, 75)) == 74
    assert retention.settled(Known(sealed=(None, None))) is None


def test_an_empty_slot_is_taken_first_then_a_void_one_then_the_oldest():
    known = Known(sealed=(3, None, 5, 1, 7), existing=7, void=frozenset({5}))
    assert free_slots(known) == [1, 2, 3, 0]


def test_what_exists_and_what_may_exist_is_kept():
    assert free_slots(Known(sealed=(1, 2), existing=1)) == []
    assert free_slots(Known(sealed=(1, 2), existing=2)) == [0]
    assert free_slots(Known(sealed=(1, 2))) == []
    assert free_slots(Known(sealed=(1, 2), existing=1, void=frozenset({2}))) == [1]


def test_what_an_order_holds_and_what_is_being_written_is_kept():
    assert free_slots(Known(sealed=(1, 2, 9), existing=9, held=frozenset({1}))) == [1]
    assert free_slots(Known(sealed=(1, None, 9), existing=9, busy=1)) == [0]


def test_a_single_slot_is_reused_unless_it_is_held():
    assert free_slots(Known(sealed=(4,), existing=4)) == [0]
    assert free_slots(Known(sealed=(4,), existing=4, held=frozenset({4}))) == []


def test_only_what_may_be_newer_than_the_newest_known_is_asked_about_newest_first():
    assert undecided(Known(sealed=(2, 7, 5, None, 6), existing=3, void=frozenset({6}))) == [7, 5]
    assert undecided(Known(sealed=(2, 1))) == [2, 1]


def test_a_verdict_is_waited_for_in_time_and_in_steps():
    assert not retention.has_waited(retention.PATIENT_SKIPS, retention.PATIENCE_S - 0.1)
    assert not retention.has_waited(retention.PATIENT_SKIPS - 1, 1e9)
    assert retention.has_waited(retention.PATIENT_SKIPS, retention.PATIENCE_S)


def test_what_is_void_is_forgotten_with_its_slot():
    known = retention.overwriting(Known(sealed=(1, 2), existing=1, void=frozenset({2})), 1)
    assert known == Known(sealed=(1, None), existing=1, busy=1)
    assert retention.sealed(known, 1, 3) == Known(sealed=(1, 3), existing=1)
    assert retention.given_up(known) == Known(sealed=(1, None), existing=1)


@dataclass(frozen=True)
class Rank:
    """A rank between two of its actions. `at`: what it does next at boundary `step`."""

    known: Known
    step: int = 1
    at: str = "look"


@dataclass(frozen=True)
class World:
    """All ranks and the attempt's store. A kill leaves the slots as they are at that moment."""

    ranks: tuple[Rank, ...]
    arrived: tuple[int, ...]
    verdicts: tuple[str, ...]

    def of(self, number: int, rank: Rank) -> World:
        ranks = (*self.ranks[:number], rank, *self.ranks[number + 1 :])
        return replace(self, ranks=ranks)

    def decide(self, step: int, verdict: str) -> World:
        if self.verdicts[step]:
            return self
        return replace(self, verdicts=(*self.verdicts[:step], verdict, *self.verdicts[step + 1 :]))

    def arrive(self, step: int) -> World:
        counts = (*self.arrived[:step], self.arrived[step] + 1, *self.arrived[step + 1 :])
        world = replace(self, arrived=counts)
        return world.decide(step, "go") if counts[step] == len(self.ranks) else world

    def is_sound(self) -> bool:
        existing = [step for step, verdict in enumerate(self.verdicts) if verdict == "go"]
        sealed = set.intersection(*({*rank.known.sealed} for rank in self.ranks))
        common = {step for step in sealed if step is not None}
        held_are_there = all(rank.known.held <= {*rank.known.sealed} for rank in self.ranks)
        return held_are_there and (not existing or max(common, default=-1) >= existing[-1])


def ask(known: Known, world: World, steps: list[int]) -> Known:
    for step in steps:
        if world.verdicts[step] == "go":
            return retention.exists(known, step)
        if world.verdicts[step] == "void":
            known = retention.is_void(known, step)
    return known


def next_worlds(world: World, steps: int, free=free_slots, orders=True) -> Iterator[World]:
    """Every way in which one rank may take its next action."""
    for number, rank in enumerate(world.ranks):
        if rank.step > steps:
            continue
        if rank.at == "look":
            yield from looks(world, number, rank, free, orders)
        elif rank.at == "copy":
            assert rank.known.busy is not None
            known = retention.sealed(rank.known, rank.known.busy, rank.step)
            yield world.of(number, replace(rank, known=known, at="arrive"))
        else:
            arrived = world.arrive(rank.step)
            known = rank.known
            if arrived.arrived[rank.step] == len(world.ranks):
                known = ask(known, arrived, [rank.step])
            yield arrived.of(number, Rank(known, rank.step + 1))


def looks(world: World, number: int, rank: Rank, free, orders: bool) -> Iterator[World]:
    yield world.of(number, replace(rank, step=rank.step + 1))  # it has not heard of snapshots yet
    known = ask(rank.known, world, undecided(rank.known))
    waits = undecided(known)
    for impatient in {False, bool(waits)}:
        seen, after = known, world
        if impatient:  # the oldest verdict takes too long, or so it seems
            after = world.decide(waits[-1], "void")
            seen = ask(known, after, [waits[-1]])
        for holding in hold(seen) if orders else [seen]:
            slots = free(holding)
            if slots:
                busy = retention.overwriting(holding, slots[0])
                yield after.of(number, replace(rank, known=busy, at="copy"))
            else:
                yield after.decide(rank.step, "void").of(number, Rank(holding, rank.step + 1))


def hold(known: Known) -> list[Known]:
    """An order comes or goes at any time, and holds what was sealed last."""
    newest = max((step for step in known.sealed if step is not None), default=None)
    wanted = [frozenset[int](), known.held]
    if newest is not None:
        wanted.append(frozenset({newest}))
    return [replace(known, held=held) for held in dict.fromkeys(wanted)]


def reach(
    ranks: int, slots: int, steps: int, free=free_slots, orders=True
) -> tuple[int, int, World | None]:
    """Worlds seen, ends in which something exists, and the first unsound world."""
    start = World((Rank(Known((None,) * slots)),) * ranks, (0,) * (steps + 1), ("",) * (steps + 1))
    seen, open_, existing = {start}, [start], 0
    while open_:
        world = open_.pop()
        if not world.is_sound():
            return len(seen), existing, world
        existing += "go" in world.verdicts
        for following in next_worlds(world, steps, free, orders):
            following = replace(following, ranks=tuple(sorted(following.ranks, key=hash)))
            if following not in seen:
                seen.add(following)
                open_.append(following)
    return len(seen), existing, None


@pytest.mark.parametrize(
    ("ranks", "slots", "steps", "orders"),
    [(2, 2, 4, True), (2, 3, 3, True), (2, 3, 4, False), (3, 2, 3, False)],
)
def test_at_every_moment_all_ranks_hold_one_snapshot_not_older_than_any_that_existed(
    ranks, slots, steps, orders
):
    worlds, existing, unsound = reach(ranks, slots, steps, orders=orders)
    assert unsound is None
    assert worlds > 1000
    assert existing > 100


def without(rule: str):
    """The rule with one part of it left out."""

    def free(known: Known) -> list[int]:
        if rule == "what may exist is kept":
            newest = max((step for step in known.sealed if step is not None), default=None)
            oldest = [
                slot
                for slot, step in enumerate(known.sealed)
                if step is None or (step != newest and step not in known.held)
            ]
            return sorted(oldest, key=lambda slot: known.sealed[slot] or 0)
        if rule == "what exists is kept":
            return [
                slot
                for slot, step in enumerate(known.sealed)
                if step is None or (step == known.existing and step not in known.held)
            ]
        return free_slots(replace(known, held=frozenset()))

    return free


@pytest.mark.parametrize("rule", ["what may exist is kept", "what exists is kept", "held is kept"])
def test_each_part_of_the_rule_is_needed(rule):
    assert reach(2, 2, 4, without(rule))[2] is not None
