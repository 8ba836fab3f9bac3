"""A call in a process group: what it records of its group, and that it stays the call it was."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.contract import page
from holdfast.contract.page import Phase, Record, Word
from holdfast.guard import Guard
from holdfast.patches.collectives import of_batch
from holdfast.patches.grouped import (
    Arguments,
    Groups,
    beginning,
    bytes_of,
    ending,
    grouped,
    read_arguments,
)
from holdfast.patches.waiting import awaiting, waited
from holdfast.recording.group_slots import NO_SLOT
from holdfast.recording.recorder import Recorder

US = 1000


class Group:
    """Stands for a process group."""


class Work:
    """What an asynchronous call answers."""


def tensor(size: int) -> SimpleNamespace:
    return SimpleNamespace(nbytes=size)


class Scene:
    """Two groups, a clock that is set, and calls that take as long as they are told."""

    def __init__(self) -> None:
        self.now_us = 0
        self.memory = bytearray(page.PAGE_SIZE)
        self.recorder = Recorder(self.memory, 0, lambda: self.now_us * US)
        self.recorder.enter(Phase.FORWARD)
        self.recorder.end_step(0)
        self.task = -1
        c = SimpleNamespace(_current_graph_task_id=lambda: self.task)
        self.groups = Groups.of(self.recorder, SimpleNamespace(_C=c))
        self.guard = Guard(lambda: self.recorder.count(Word.HOOK_ERRORS))
        self.default, self.pair = Group(), Group()
        ranks = {0: 0, 1: 1}
        self.groups.slots.follow(
            SimpleNamespace(
                default_pg=self.default,
                pg_names={self.default: "0", self.pair: "1"},
                pg_group_ranks={self.default: ranks, self.pair: ranks},
            )
        )
        self.is_compiling = False
        self.all_reduce = self.hooked(self.plain_all_reduce)
        self.wait = waited(
            self.plain_wait,
            lambda: self.is_compiling,
            self.guard,
            awaiting(self.groups),
            ending(self.groups, counted=False, starts=False),
        )

    def hooked(self, function: Any, counted: bool = True) -> Any:
        arguments = read_arguments(function)
        begin = beginning(self.groups, arguments, counted)
        end = ending(self.groups, counted, starts=True)
        return grouped(function, lambda: self.is_compiling, self.guard, begin, end)

    def plain_all_reduce(
        self, tensor: Any, takes_us: int, group: Any = None, async_op: bool = False
    ) -> Any:
        """Sum."""
        self.now_us += takes_us
        if isinstance(tensor, Exception):
            raise tensor
        return Work() if async_op else None

    def plain_wait(self, work: Work, takes_us: int) -> Phase:
        self.now_us += takes_us
        return self.recorder.phase

    def words(self, *words: Word) -> tuple[int, ...]:
        return tuple(map(self.recorder.word, words))

    def record(self) -> Record:
        assert self.recorder.word(Word.HOOK_ERRORS) == 0
        self.recorder.end_step(1)
        *_, (_, record) = page.parse_records(bytes(self.memory), 0)
        return record


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_its_time_count_and_bytes_are_those_of_its_group(scene: Scene) -> None:
    scene.all_reduce(tensor(100), 7)
    scene.all_reduce(tensor(20), 5, group=scene.pair)
    scene.all_reduce(tensor(3), 4, scene.pair)
    scene.all_reduce(tensor(9999), 3, Group())
    record = scene.record()
    assert record.waits_us == (7, 9, 0, 0)
    assert record.communicating_us == 19
    assert scene.words(Word.COLLECTIVES_1, Word.COLLECTIVES_2, Word.COLLECTIVES_3) == (1, 2, 0)
    assert scene.words(Word.SENT_BYTES_1, Word.SENT_BYTES_2) == (100, 23)
    assert scene.words(Word.COLLECTIVES_ENTERED, Word.COLLECTIVES_LEFT) == (4, 4)


def test_a_call_whose_hook_fails_hides_no_later_one(scene: Scene) -> None:
    scene.recorder.enter(Phase.COMMUNICATING)  # as at the end of a backward pass
    scene.all_reduce(SimpleNamespace(nbytes="many"), 5)
    assert scene.recorder.word(Word.HOOK_ERRORS) == 1
    scene.recorder.set_word(Word.HOOK_ERRORS, 0)
    scene.all_reduce(tensor(100), 7)
    assert scene.record().waits_us == (7, 0, 0, 0)


def test_awaited_later_it_counts_in_its_group_and_overlaps_until_then(scene: Scene) -> None:
    work = scene.all_reduce(tensor(1), 2, group=scene.pair, async_op=True)
    scene.now_us += 50
    assert scene.wait(work, 30) is Phase.COMMUNICATING
    scene.wait(Work(), 4)
    record = scene.record()
    assert record.waits_us == (0, 32, 0, 0)
    assert (record.communicating_us, record.overlapped_us) == (36, 50)


def test_what_it_waits_meanwhile_for_another_is_no_overlap(scene: Scene) -> None:
    work = scene.all_reduce(tensor(1), 0, async_op=True)
    scene.now_us += 5
    scene.all_reduce(tensor(1), 30)
    scene.now_us += 6
    scene.wait(work, 0)
    assert scene.record().overlapped_us == 11


def test_at_the_end_of_a_backward_pass_that_waits_already_it_is_known_in_which_group(
    scene: Scene,
) -> None:
    enter, waits = scene.recorder.enter, Phase.COMMUNICATING
    enter(waits)
    scene.now_us += 3
    scene.all_reduce(tensor(8), 20, scene.pair)
    assert scene.recorder.phase is waits
    scene.now_us += 4
    enter(Phase.FORWARD)
    record = scene.record()
    assert (record.communicating_us, record.waits_us) == (27, (0, 20, 0, 0))
    assert scene.words(Word.SENT_BYTES_2) == (8,)


def test_an_error_is_the_scripts_own_and_leaves_the_phase(scene: Scene) -> None:
    with pytest.raises(ValueError, match="planted"):
        scene.all_reduce(ValueError("planted"), 6)
    assert scene.recorder.phase is Phase.FORWARD
    assert scene.record().waits_us == (6, 0, 0, 0)
    assert (scene.all_reduce.__name__, scene.all_reduce.__doc__) == ("plain_all_reduce", "Sum.")


def test_one_inside_another_in_another_thread_or_traced_is_the_plain_call(scene: Scene) -> None:
    def gather(inner: Any) -> None:
        inner()

    scene.hooked(gather)(lambda: scene.all_reduce(tensor(5), 8, scene.pair))
    scene.is_compiling = True
    scene.all_reduce(tensor(5), 1)
    scene.is_compiling = False
    scene.recorder.thread = -1
    scene.all_reduce(tensor(5), 1)
    assert scene.words(Word.COLLECTIVES_1, Word.COLLECTIVES_2) == (1, 0)
    assert scene.words(Word.COLLECTIVES_ENTERED) == (1,)
    assert scene.record().waits_us == (8, 0, 0, 0)


def test_a_thread_of_the_engine_is_at_work_for_the_one_that_waits_for_its_backward_pass(
    scene: Scene,
) -> None:
    scene.recorder.thread = -1
    scene.recorder.enter(Phase.BACKWARD)
    scene.all_reduce(tensor(5), 3)
    scene.task = 0
    scene.all_reduce(tensor(5), 4)
    scene.recorder.enter(Phase.FORWARD)
    scene.all_reduce(tensor(5), 6)
    assert scene.record().waits_us == (4, 0, 0, 0)


def test_messages_of_a_batch_are_in_the_group_that_they_name(scene: Scene) -> None:
    def batch(p2p_op_list: list[Any]) -> list[Work]:
        scene.now_us += 1
        return works

    works = [Work(), Work()]
    begin = of_batch(beginning(scene.groups, Arguments(sized=0), counted=False))
    end = ending(scene.groups, counted=False, starts=True)
    call = grouped(batch, lambda: False, scene.guard, begin, end)
    messages = [SimpleNamespace(group=scene.pair, tensor=tensor(size)) for size in (30, 12)]
    assert call(p2p_op_list=messages) is works
    for work in works:
        scene.wait(work, 10)
    assert scene.words(Word.COLLECTIVES_2, Word.SENT_BYTES_2) == (1, 42)
    assert scene.words(Word.COLLECTIVES_ENTERED) == (0,)
    assert scene.record().waits_us == (0, 21, 0, 0)


def test_its_size_is_that_of_the_larger_side(scene: Scene) -> None:
    def all_gather(tensor_list: Any, tensor: Any, group: Any = None) -> None: ...
    def reduce_scatter(output: Any, input_list: Any, op: Any = None, group: Any = None) -> None: ...
    def barrier(group: Any = None) -> None: ...

    parts = [tensor(10), tensor(11)]
    scene.hooked(all_gather)(parts, tensor(10))
    assert scene.words(Word.SENT_BYTES_1) == (21,)
    scene.hooked(reduce_scatter)(tensor(10), input_list=parts)
    assert scene.words(Word.SENT_BYTES_1) == (42,)
    scene.hooked(barrier)()
    assert scene.words(Word.COLLECTIVES_1, Word.SENT_BYTES_1) == (3, 42)
    assert bytes_of([parts, (tensor(1), None, "text")]) == 22

    class Sparse:
        @property
        def nbytes(self) -> int:
            raise RuntimeError("nbytes is not defined for sparse tensors")

    scene.all_reduce(Sparse(), 0)
    assert scene.words(Word.COLLECTIVES_1, Word.SENT_BYTES_1) == (4, 42)
    assert scene.record().waits_us == (0, 0, 0, 0)


def test_where_nothing_is_known_of_groups_it_is_communicating_all_the_same(scene: Scene) -> None:
    scene.groups.slots.follow(
        SimpleNamespace(default_pg=None, pg_names={}, pg_group_ranks={}),
    )
    assert scene.groups.slots.slot(None) == NO_SLOT
    scene.all_reduce(tensor(1), 5)
    record = scene.record()
    assert (record.communicating_us, record.waits_us) == (5, (0, 0, 0, 0))
