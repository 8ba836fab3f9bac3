"""The boundary of a loop that someone else owns: a framework's trainer, told step by step."""

import time

import pytest
import torch

from holdfast.contract import page
from holdfast.contract.page import Flag, Order, OrderKind, Phase, Word
from holdfast.contract.storage import LocalFolder
from holdfast.guard import LIMIT
from holdfast.job import Job
from holdfast.rank import process
from holdfast.recording.placement import Placement
from holdfast.recording.recorder import Recorder
from holdfast.state.checkpoint_source import load_checkpoint
from holdfast.state.resuming import Resumed
from holdfast.state.saving import Savable

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path):
    for name in ("HOLDFAST_RESUME", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOLDFAST_CHECKPOINT_DIR", str(tmp_path))
    assert process.current() is None


class Trained:
    """A job over a page in memory, and the functions that it saves with."""

    def __init__(self):
        self.memory = bytearray(page.PAGE_SIZE)
        self.recorder = Recorder(self.memory, attempt=0)
        self.saved: list[int] = []
        savable = Savable(save=lambda path, step: self.saved.append(step), load=lambda *_: None)
        self.job = Job(savable, self.recorder)

    def order(self, kind, step):
        deadline_ns = time.monotonic_ns() + 10**9
        body, head = page.pack_order(Order(kind, 0, 1, step, deadline_ns, "aa"), 1)
        start = page.order_offset(kind)
        self.memory[start + 8 : start + 8 + len(body)] = body
        self.memory[start : start + 8] = head

    @property
    def reply(self):
        reply = page.parse_reply(bytes(self.memory))
        return None if reply is None else reply.state.name


def test_its_steps_are_counted_and_published():
    trained = Trained()
    trained.job.start_loop()
    assert trained.recorder.word(Word.FLAGS) & Flag.LOOP_WRAPPED
    assert [trained.job.end_step() for _ in range(3)] == [True, True, True]
    assert trained.job.step == 3
    assert (trained.recorder.word(Word.STEP), trained.recorder.phase) == (3, Phase.DATA)
    trained.job.end_loop()
    assert trained.recorder.phase == Phase.IDLE


def test_an_armed_step_is_saved_at_its_boundary():
    trained = Trained()
    trained.job.start_loop()
    trained.order(OrderKind.CHECKPOINT, 2)
    trained.job.end_step()
    assert (trained.saved, trained.reply) == ([], "ARMED")
    trained.job.end_step()
    assert (trained.saved, trained.reply) == ([2], "SAVED")


def test_a_stop_asks_it_to_leave():
    trained = Trained()
    trained.job.start_loop()
    trained.order(OrderKind.STOP, 2)
    assert trained.job.end_step()
    assert not trained.job.end_step()
    assert trained.job.stopped


def test_a_loop_that_ends_saves_nothing_any_more():
    trained = Trained()
    trained.job.start_loop()
    trained.order(OrderKind.CHECKPOINT, 5)
    trained.job.end_step()
    trained.job.end_loop()
    assert (trained.saved, trained.reply) == ([], "LEFT")


def test_random_numbers_are_put_back_as_often_as_asked(tmp_path, monkeypatch):
    trained = Trained()
    trained.job.restore_random_numbers()  # nothing was loaded: nothing to put back
    before = Trained()
    before.job.start_loop()
    before.order(OrderKind.CHECKPOINT, 1)
    before.job.end_step()
    expected = torch.rand(3)
    path = next(tmp_path.iterdir())
    monkeypatch.setattr("holdfast.job.resume", lambda *_: resumed(path, trained.job._savable))
    assert trained.job.resume() == 1
    torch.rand(7)
    for _ in range(2):
        trained.job.restore_random_numbers()
        assert torch.equal(torch.rand(3), expected)


def resumed(path, savable):
    """What resuming answers, without the manifest that a sidecar would have written."""
    loaded = load_checkpoint(LocalFolder(path), savable, Placement())
    return Resumed(loaded, ("aa",))


def test_an_error_of_ours_in_looking_for_gradients_is_none_of_the_script(caplog):
    def fail(is_turn=True):
        raise RuntimeError("dictionary changed size during iteration")

    trained = Trained()
    trained.recorder.gradients.end_turn = fail  # type: ignore[method-assign]
    trained.order(OrderKind.CHECKPOINT, 1)
    assert list(trained.job.steps(range(20))) == [*range(20)]
    assert trained.recorder.word(Word.HOOK_ERRORS) == LIMIT
    assert trained.saved == []  # gradients may wait
    assert caplog.text.count("that looks for gradients failed") == 1
