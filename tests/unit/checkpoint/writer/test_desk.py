"""Nobody waits at the desk, and no answer is taken for another's."""

import pytest

from holdfast_sidecar.checkpoint.writer.client import StorageClient, StorageProgress
from holdfast_sidecar.checkpoint.writer.requests import (
    HashFiles,
    Listed,
    Reply,
    WhatToResume,
    WriteParts,
    WrittenPart,
    read_question,
    spell_answer,
    spell_question,
)
from holdfast_sidecar.records.checkpoint import CheckpointOrder
from holdfast_sidecar.records.plan import Candidate

ORDER = CheckpointOrder("aa", 0, 1, 5, "/c", "writing", 1.0, writers={"0": "a"})


class Messenger:
    def __init__(self):
        self.carried = []
        self.given_up = []
        self.stopped = []

    def carry(self, number, question):
        self.carried.append((number, question))

    def prepare(self):
        pass

    def stop(self, number, reason):
        self.stopped.append(number)

    def give_up(self, reason):
        self.given_up.append(reason)


class Scene:
    def __init__(self):
        self.now = 100.0
        self.woken = 0
        self.desk = StorageClient(60.0, clock=lambda: self.now, wake=self.wake)
        self.desk.messenger = self.messenger = Messenger()

    def wake(self):
        self.woken += 1

    def answer(self, index, answer):
        number = self.messenger.carried[index][0]
        self.desk.deliver(Reply(number, answer=spell_answer(answer)))

    def tell(self, index, **said):
        self.desk.deliver(Reply(self.messenger.carried[index][0], **said))


@pytest.fixture
def scene():
    return Scene()


ASKED = WhatToResume("1 0")
LISTED = Listed([Candidate("aa", "/c", 5)])


def test_a_question_is_carried_once_however_often_it_is_asked(scene):
    assert scene.desk.ask(ASKED) is None
    assert scene.desk.ask(WhatToResume("1 0")) is None
    assert len(scene.messenger.carried) == 1


def test_an_answer_wakes_whoever_asked_and_is_given_once(scene):
    scene.desk.ask(ASKED)
    scene.answer(0, LISTED)
    assert scene.woken == 1
    assert scene.desk.ask(ASKED) == LISTED
    assert scene.desk.ask(ASKED) is None, "asked anew: storage may have changed"
    assert len(scene.messenger.carried) == 2


def test_an_answer_that_nobody_fetched_in_time_is_thrown_away(scene):
    scene.desk.ask(ASKED)
    scene.answer(0, LISTED)
    scene.now += 6
    assert scene.desk.ask(ASKED) is None


def test_another_occasion_is_another_question(scene):
    scene.desk.ask(ASKED)
    scene.answer(0, LISTED)
    assert scene.desk.ask(WhatToResume("1 1")) is None


def test_an_error_is_raised_once(scene):
    scene.desk.ask(ASKED)
    scene.tell(0, error="Stale file handle")
    with pytest.raises(OSError, match="Stale"):
        scene.desk.ask(ASKED)
    assert scene.desk.ask(ASKED) is None


def test_nonsense_is_an_error(scene):
    scene.desk.ask(ASKED)
    scene.tell(0, answer="nonsense")
    with pytest.raises(OSError, match="nonsense"):
        scene.desk.ask(ASKED)


def test_progress_is_told_until_the_answer(scene):
    question = WriteParts(ORDER, [0], "/shm")
    scene.desk.ask(question)
    scene.tell(0, done_bytes=3, total_bytes=9)
    assert scene.desk.progress(question) == StorageProgress(3, 9)
    assert scene.desk.ask(question) is None


def test_storage_hangs_when_nothing_is_heard_and_progress_is_a_sign_of_life(scene):
    question = WriteParts(ORDER, [0], "/shm")
    assert scene.desk.hangs_for() == 0
    scene.desk.ask(question)
    scene.now += 30
    assert scene.desk.hangs_for() == 30
    scene.tell(0, done_bytes=1, total_bytes=9)
    assert scene.desk.hangs_for() == 0


def test_a_quick_answer_does_not_hide_that_writing_hangs(scene):
    scene.desk.ask(WriteParts(ORDER, [0], "/shm"))
    scene.now += 30
    scene.desk.ask(ASKED)
    scene.answer(1, LISTED)
    assert scene.desk.hangs_for() == 30


def test_whoever_hangs_beyond_all_patience_is_ended(scene):
    scene.desk.ask(ASKED)
    scene.now += 61
    scene.desk.hangs_for()
    assert "did not answer within 60 s" in scene.messenger.given_up[0]


def test_what_nobody_wants_any_more_is_stopped_only_while_it_is_under_way(scene):
    question = HashFiles("aa", "/c", [0])
    scene.desk.abandon(question, "void")
    assert scene.messenger.stopped == []
    scene.desk.ask(question)
    scene.answer(0, WrittenPart())
    scene.desk.abandon(question, "void")
    assert scene.messenger.stopped == []
    scene.desk.ask(question)
    scene.desk.abandon(question, "void")
    assert scene.messenger.stopped == [2]


def test_a_question_reads_as_it_was_asked():
    question = WriteParts(ORDER, [0, 3], "/shm")
    assert read_question(spell_question(7, question)) == (7, question)
    with pytest.raises(ValueError, match="no question"):
        read_question('[1, "Format", "{}"]')
