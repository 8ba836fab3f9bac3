"""What was started and is awaited later: its group, and the time that it overlapped."""

from __future__ import annotations

import pytest

from holdfast.contract import page
from holdfast.contract.page import Phase, Record
from holdfast.recording.async_work import MOST, Underway
from holdfast.recording.group_slots import NO_SLOT
from holdfast.recording.recorder import Recorder

US = 1000


class Handle:
    """Stands for what an asynchronous call answers."""


class Scene:
    """A rank whose clock is set."""

    def __init__(self) -> None:
        self.now_us = 0
        self.memory = bytearray(page.PAGE_SIZE)
        self.recorder = Recorder(self.memory, 0, lambda: self.now_us * US)
        self.underway = Underway(self.recorder)
        self.recorder.enter(Phase.FORWARD)
        self.recorder.end_step(0)

    def start(self, at_us: int, slot: int = 1) -> Handle:
        self.now_us = at_us
        self.recorder.enter(Phase.FORWARD)
        handle = Handle()
        self.underway.start(id(handle), slot, handle)
        return handle

    def wait(self, handle: Handle, from_us: int, until_us: int) -> int:
        self.now_us = from_us
        self.recorder.enter(Phase.COMMUNICATING)
        slot = self.underway.await_(id(handle), handle)
        self.now_us = until_us
        self.recorder.enter(Phase.FORWARD)
        self.underway.waited_ns += (until_us - from_us) * US
        return slot

    def record(self) -> Record:
        self.recorder.end_step(1)
        *_, (_, record) = page.parse_records(bytes(self.memory), 0)
        return record


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_it_overlaps_from_its_start_until_its_wait(scene: Scene) -> None:
    handle = scene.start(10, slot=2)
    assert scene.wait(handle, 50, 70) == 2
    assert scene.record().overlapped_us == 40


def test_what_was_under_way_together_counts_once_and_waiting_never(scene: Scene) -> None:
    first, second = scene.start(10), scene.start(20)
    scene.wait(first, 30, 60)
    scene.wait(second, 65, 90)
    assert scene.record().overlapped_us == (30 - 10) + (65 - 60)


def test_it_is_awaited_once_and_another_handle_in_its_place_is_not_it(scene: Scene) -> None:
    handle = scene.start(10)
    assert scene.wait(handle, 20, 30) == 1
    assert scene.wait(handle, 40, 50) == NO_SLOT
    key = id(scene.start(60))
    scene.now_us = 70
    assert scene.underway.await_(key, Handle()) == NO_SLOT
    assert scene.record().overlapped_us == 10


def test_what_nobody_awaits_is_forgotten_and_what_is_held_longest_of_all(scene: Scene) -> None:
    held = scene.start(1, slot=3)
    for number in range(5 * MOST):
        scene.start(number)
    assert len(scene.underway._started) <= MOST
    assert scene.wait(held, 6 * MOST, 6 * MOST) == 3


def test_too_many_that_are_held_are_forgotten_too(scene: Scene) -> None:
    held = [scene.start(number) for number in range(2 * MOST)]
    assert len(scene.underway._started) <= MOST
    assert scene.wait(held[0], 9999, 9999) == NO_SLOT
    assert scene.wait(held[-1], 9999, 9999) == 1


def test_a_handle_that_can_not_be_followed_is_of_no_group(scene: Scene) -> None:
    handle = (1, 2)  # a tuple takes no weak references
    scene.underway.start(id(handle), 1, handle)
    assert scene.underway.await_(id(handle), handle) == NO_SLOT
