"""What the garbage collector takes of the thread that trains."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from holdfast.contract import page
from holdfast.contract.page import Phase, Word
from holdfast.guard import Guard
from holdfast.patches import collector
from holdfast.patches.collector import Collections
from holdfast.patches.raised_again import hand_on
from holdfast.recording.recorder import Recorder


class Scene:
    """A recorder, and collections that a test times."""

    def __init__(self) -> None:
        self.now_ns = 1000
        self.memory = bytearray(page.PAGE_SIZE)
        self.recorder = Recorder(self.memory, attempt=0)
        self.recorder.enter(Phase.FORWARD)
        self.collections = Collections(self.recorder, lambda: self.now_ns)

    def collect(self, us: int) -> None:
        self.collections.tell("start")
        self.now_ns += us * 1000
        self.collections.tell("stop")

    def collected_us(self) -> int:
        self.recorder.end_step(1)
        (*_, (_, record)) = page.parse_records(bytes(self.memory), 0)
        return record.collector_us


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def listening(scene: Scene) -> Iterator[Scene]:
    guard = Guard(lambda: scene.recorder.count(Word.HOOK_ERRORS))
    collector.install(None, scene.recorder, guard)
    yield scene
    gc.callbacks.pop()
    sys.unraisablehook = sys.__unraisablehook__


def test_collections_add_up_in_their_step(scene: Scene) -> None:
    scene.collect(30)
    scene.collect(12)
    assert scene.collected_us() == 42
    assert scene.collected_us() == 0


def test_one_while_the_rank_starts_or_restores_is_no_part_of_a_step(scene: Scene) -> None:
    for phase in (Phase.STARTING, Phase.RESTORING):
        scene.recorder.enter(phase)
        scene.collect(30)
    assert scene.collected_us() == 0


def test_one_in_another_thread_or_without_a_start_counts_nothing(scene: Scene) -> None:
    thread = threading.Thread(target=scene.collect, args=(30,))
    thread.start()
    thread.join()
    scene.collections.tell("stop")
    assert scene.collected_us() == 0


def test_the_real_collector_is_heard_but_for_its_youngest_generation(listening: Scene) -> None:
    told: list[str] = []
    tell = Collections.tell
    try:
        Collections.tell = lambda self, moment: told.append(moment)  # type: ignore[method-assign]
        recorder = listening.recorder
        collector.install(None, recorder, Guard(lambda: recorder.count(Word.HOOK_ERRORS)))
        gc.callbacks.pop(-2)
        gc.collect(0)
        assert told == []
        gc.collect(2)
    finally:
        Collections.tell = tell  # type: ignore[method-assign]
    assert told == ["start", "stop"]


def collect_and_go_on() -> None:
    """While a signal comes."""
    signal.setitimer(signal.ITIMER_REAL, 0.002)
    gc.collect()
    for _ in range(1000):
        time.sleep(0.001)


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), SystemExit(143), ValueError("a", "b")])
def test_what_a_signal_handler_raises_during_a_collection_reaches_the_script(
    listening: Scene, raised: BaseException
) -> None:
    def handle(*_: object) -> None:
        raise raised

    # A collection of which takes some ten milliseconds.
    made: list[list[object]] = [[] for _ in range(1_000_000)]
    before = signal.signal(signal.SIGALRM, handle)
    try:
        with pytest.raises(type(raised)) as seen:
            collect_and_go_on()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert made
    assert seen.value.args == raised.args
    assert getattr(seen.value, "code", None) == getattr(raised, "code", None)


def test_it_is_not_raised_before_what_swallows_it_is_over(
    listening: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def starts_and_is_put_aside(thread: threading.Thread) -> None:
        start(thread)
        time.sleep(0.05)

    monkeypatch.setattr(threading.Thread, "start", starts_and_is_put_aside)
    test_what_a_signal_handler_raises_during_a_collection_reaches_the_script(
        listening, KeyboardInterrupt()
    )


def test_what_others_swallow_is_left_to_whoever_heard_of_it_before(
    listening: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Careless:
        def __del__(self) -> None:
            raise ValueError

    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: told.append(unraisable.object))
    hand_on(collector.install)
    Careless()
    assert len(told) == 1


def test_a_full_collection_takes_time_that_is_told(listening: Scene) -> None:
    made: list[list[list[object]]] = [[[] for _ in range(100)] for _ in range(1000)]
    gc.collect()
    assert made
    assert listening.collected_us() > 100
    assert listening.recorder.word(Word.HOOK_ERRORS) == 0
