"""A timed call: what it records, and that it stays the call it was."""

from __future__ import annotations

import pytest

from holdfast.contract import page
from holdfast.contract.page import Phase, Word
from holdfast.guard import Guard
from holdfast.patches.timed import entering, leaving, timed
from holdfast.recording.recorder import Recorder


class Scene:
    """A recorder, and a collective that tells which phase it ran in."""

    def __init__(self) -> None:
        self.recorder = Recorder(bytearray(page.PAGE_SIZE), attempt=0)
        self.recorder.enter(Phase.BACKWARD)
        self.is_compiling = False
        self.all_reduce = timed(
            self.plain_all_reduce,
            lambda: self.is_compiling,
            Guard(lambda: self.recorder.count(Word.HOOK_ERRORS)),
            entering(self.recorder, Phase.COMMUNICATING, Word.COLLECTIVES_ENTERED),
            leaving(self.recorder, Word.COLLECTIVES_LEFT),
        )

    def plain_all_reduce(self, answer: object = None, *, inner: object = None) -> object:
        """Sum."""
        if callable(inner):
            return inner()
        if isinstance(answer, Exception):
            raise answer
        return answer or self.recorder.phase

    def counts(self) -> tuple[int, int]:
        words = (Word.COLLECTIVES_ENTERED, Word.COLLECTIVES_LEFT)
        return (self.recorder.word(words[0]), self.recorder.word(words[1]))


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_it_runs_in_its_phase_and_returns_to_the_one_before(scene: Scene) -> None:
    assert scene.all_reduce() is Phase.COMMUNICATING
    assert scene.recorder.phase is Phase.BACKWARD
    assert scene.counts() == (1, 1)


def test_answers_errors_and_names_stay_its_own(scene: Scene) -> None:
    assert scene.all_reduce(5) == 5
    assert (scene.all_reduce.__name__, scene.all_reduce.__doc__) == ("plain_all_reduce", "Sum.")
    with pytest.raises(ValueError, match="planted"):
        scene.all_reduce(ValueError("planted"))
    assert scene.recorder.phase is Phase.BACKWARD
    assert scene.counts() == (2, 2)


def test_one_inside_another_counts_once(scene: Scene) -> None:
    assert scene.all_reduce(inner=scene.all_reduce) is Phase.COMMUNICATING
    assert scene.counts() == (1, 1)


def test_a_call_from_a_thread_that_does_not_train_is_left_alone(scene: Scene) -> None:
    scene.recorder.thread = -1
    assert scene.all_reduce() is Phase.BACKWARD
    assert scene.counts() == (0, 0)


def test_inside_a_graph_that_is_traced_it_is_the_plain_call(scene: Scene) -> None:
    scene.is_compiling = True
    assert scene.all_reduce() is Phase.BACKWARD
    assert scene.counts() == (0, 0)


def test_when_our_part_fails_the_call_goes_through(scene: Scene) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("planted")

    guard = Guard(lambda: scene.recorder.count(Word.HOOK_ERRORS))
    call = timed(lambda: 7, lambda: False, guard, broken, broken)
    assert [call() for _ in range(3)] == [7, 7, 7]
    assert scene.recorder.word(Word.HOOK_ERRORS) == 3
