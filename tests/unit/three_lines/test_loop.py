"""What a rank does with an order at its step boundary."""

import json
import time

import pytest
import torch
from torch import distributed
from torch.distributed import HashStore
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from holdfast import loop
from holdfast.contract import page
from holdfast.contract.checkpoint_files import account_file
from holdfast.contract.page import Order, OrderKind, Phase, ReplyState, Word
from holdfast.loop import Boundary
from holdfast.recording.placement import Placement
from holdfast.recording.recorder import Recorder
from holdfast.state.agreement import Agreement
from holdfast.state.data_position import Position
from holdfast.state.registered import register
from holdfast.state.saving import Savable

pytestmark = pytest.mark.torch

SAVABLE = Savable(save=lambda path, step: None, load=lambda path, step: None)


class Rank:
    """A boundary over a page in memory, with a store shared by its twins."""

    def __init__(self, root, store=None, world_size=1, savable=SAVABLE, **place):
        self.memory = bytearray(page.PAGE_SIZE)
        self.recorder = Recorder(self.memory, attempt=0)
        placement = Placement(world_size=world_size, store=store, **place)
        self.boundary = Boundary(self.recorder, placement, savable, root and str(root))
        self.sequence = 0

    def order(self, step, identifier="aa", kind=OrderKind.CHECKPOINT, deadline_s=0.05):
        self.write(step, identifier, kind, time.monotonic_ns() + int(deadline_s * 1e9))

    def withdraw(self, step, identifier="aa"):
        self.write(step, identifier, OrderKind.CHECKPOINT, 0)

    def write(self, step, identifier, kind, deadline):
        self.sequence += 1
        body, head = page.pack_order(Order(kind, 0, 1, step, deadline, identifier), self.sequence)
        start = page.order_offset(kind)
        self.memory[start + 8 : start + 8 + len(body)] = body
        self.memory[start : start + 8] = head

    def cross(self, step):
        return self.boundary.cross(step, lambda: Position(0, 0))

    @property
    def state(self):
        reply = page.parse_reply(bytes(self.memory))
        return None if reply is None else (reply.state, reply.identifier)


@pytest.fixture
def store():
    return HashStore()


def test_an_order_is_armed_when_seen_and_saved_at_its_step(tmp_path):
    rank = Rank(tmp_path)
    rank.order(step=3)
    rank.cross(1)
    assert rank.state == (ReplyState.ARMED, "aa")
    rank.cross(2)
    assert list(tmp_path.iterdir()) == []
    rank.cross(3)
    assert rank.state == (ReplyState.SAVED, "aa")
    assert (tmp_path / page.checkpoint_name(3, "aa") / "__0_own.pt").is_file()


def test_an_order_for_this_very_boundary_is_still_in_time(tmp_path):
    rank = Rank(tmp_path)
    rank.order(step=3)
    rank.cross(3)
    assert rank.state == (ReplyState.SAVED, "aa")


def test_a_step_that_is_past_is_missed_and_void_for_the_others_at_once(tmp_path, store):
    late, waiting = (Rank(tmp_path, store, world_size=2) for _ in range(2))
    late.order(step=3)
    late.cross(4)
    assert late.state == (ReplyState.MISSED, "aa")
    waiting.order(step=3, deadline_s=600)
    waiting.cross(3)
    assert waiting.state == (ReplyState.VOID, "aa")
    assert list(tmp_path.iterdir()) == []


def test_an_order_between_two_boundaries_is_saved_at_the_later_one(tmp_path):
    rank = Rank(tmp_path)
    rank.cross(0)
    rank.order(step=5)
    rank.cross(4)
    assert rank.state == (ReplyState.ARMED, "aa")
    rank.cross(8)
    assert rank.state == (ReplyState.SAVED, "aa")
    reply = page.parse_reply(bytes(rank.memory))
    assert reply is not None
    assert reply.step == 8
    (made,) = tmp_path.iterdir()
    assert made.name == page.checkpoint_name(8, "aa")
    assert json.loads((made / account_file(0)).read_text())["step"] == 8


def test_who_hears_of_an_order_only_at_its_boundary_saves_there_as_the_others_do(tmp_path):
    rank = Rank(tmp_path)
    rank.cross(4)
    rank.order(step=5)
    rank.cross(8)
    assert rank.state == (ReplyState.SAVED, "aa")
    rank.order(step=7, identifier="bb")
    rank.cross(12)
    assert rank.state == (ReplyState.MISSED, "bb")


def test_ranks_that_come_to_different_boundaries_save_nothing(tmp_path, store):
    first, second = (Rank(tmp_path, store, world_size=2) for _ in range(2))
    for rank, step in ((first, 8), (second, 9)):
        rank.cross(4)
        rank.order(step=5)
        rank.cross(step)
    assert first.state == second.state == (ReplyState.VOID, "aa")
    assert list(tmp_path.iterdir()) == []


def test_a_rank_that_finishes_before_the_step_makes_it_void(tmp_path, store):
    finished, waiting = (Rank(tmp_path, store, world_size=2) for _ in range(2))
    finished.order(step=9)
    finished.cross(3)
    finished.boundary.leave()
    assert finished.state == (ReplyState.LEFT, "aa")
    waiting.order(step=9, deadline_s=600)
    waiting.cross(9)
    assert waiting.state == (ReplyState.VOID, "aa")


def test_a_rank_whose_peers_do_not_come_gives_up_at_the_deadline(tmp_path, store):
    rank = Rank(tmp_path, store, world_size=2)
    rank.order(step=3, deadline_s=0.0)
    rank.cross(3)
    assert rank.state == (ReplyState.VOID, "aa")
    assert list(tmp_path.iterdir()) == []


def test_a_withdrawn_order_is_not_gone_to_and_frees_whoever_waits_for_it(tmp_path, store):
    told, waiting = (Rank(tmp_path, store, world_size=2) for _ in range(2))
    told.order(step=5)
    told.cross(3)
    told.withdraw(step=5)
    told.cross(4)
    assert told.state == (ReplyState.VOID, "aa")
    assert told.cross(5)
    waiting.order(step=5, deadline_s=600)
    waiting.cross(5)
    assert waiting.state == (ReplyState.VOID, "aa")
    assert list(tmp_path.iterdir()) == []


def test_an_order_first_seen_withdrawn_is_never_armed(tmp_path):
    rank = Rank(tmp_path)
    rank.withdraw(step=5)
    rank.cross(3)
    assert rank.state == (ReplyState.VOID, "aa")
    rank.cross(5)
    assert list(tmp_path.iterdir()) == []


def test_a_withdrawal_after_the_save_changes_nothing(tmp_path):
    rank = Rank(tmp_path)
    rank.order(step=3)
    rank.cross(3)
    rank.withdraw(step=3)
    rank.cross(4)
    assert rank.state == (ReplyState.SAVED, "aa")


def test_a_save_may_take_longer_than_the_ranks_may_take_to_arrive(tmp_path, monkeypatch):
    spent_ns = 0

    def slow(path, step):
        nonlocal spent_ns
        spent_ns = 600 * 10**9

    waits = {}

    def vote(question, agreed, timeout_s):
        waits[question.topic.rpartition("/")[2]] = timeout_s
        return agreed

    monkeypatch.setattr(Agreement, "vote", vote)
    rank = Rank(tmp_path, savable=Savable(save=slow, load=slow))
    rank.boundary.clock_ns = lambda: spent_ns
    rank.write(3, "aa", OrderKind.CHECKPOINT, 120 * 10**9)
    rank.cross(3)
    assert rank.state == (ReplyState.SAVED, "aa")
    assert waits == {"go": 120, "ready": 1800, "wrote": 1200}


def test_a_new_order_takes_the_place_of_one_that_is_armed(tmp_path):
    rank = Rank(tmp_path)
    rank.order(step=5, identifier="aa")
    rank.cross(1)
    rank.order(step=7, identifier="bb")
    rank.cross(2)
    assert rank.state == (ReplyState.ARMED, "bb")
    rank.cross(5)
    rank.cross(7)
    assert [path.name for path in tmp_path.iterdir()] == [page.checkpoint_name(7, "bb")]


def test_an_order_is_carried_out_once(tmp_path):
    rank = Rank(tmp_path)
    rank.order(step=3)
    rank.cross(3)
    rank.cross(4)
    assert rank.state == (ReplyState.SAVED, "aa")


def test_a_second_loop_of_the_process_leaves_the_answer_of_the_first(tmp_path):
    rank = Rank(tmp_path)
    rank.order(step=3)
    rank.cross(3)
    rank.boundary.leave()
    rank.boundary = Boundary(rank.recorder, Placement(), SAVABLE, str(tmp_path))
    rank.cross(4)
    assert rank.state == (ReplyState.SAVED, "aa")


@pytest.mark.parametrize(
    "rank",
    [
        lambda root: Rank(None),
        lambda root: Rank(root, savable=Savable()),
        lambda root: Rank(root, is_joined=False),
    ],
    ids=["no directory", "nothing to save", "not joined to the other ranks"],
)
def test_a_rank_that_can_not_save_says_so(tmp_path, rank):
    made = rank(tmp_path)
    made.order(step=3)
    made.cross(1)
    assert made.state == (ReplyState.FAILED, "aa")


def test_a_save_that_fails_is_told_and_training_goes_on(tmp_path, caplog):
    def full(path, step):
        raise OSError(28, "No space left on device")

    rank = Rank(tmp_path, savable=Savable(save=full, load=full))
    rank.order(step=3)
    assert rank.cross(3)
    assert rank.state == (ReplyState.FAILED, "aa")
    assert rank.recorder.word(page.Word.HOOK_ERRORS) == 1
    assert "No space left" in caplog.text


def test_a_checkpoint_is_never_written_over_another(tmp_path):
    for _ in range(2):
        rank = Rank(tmp_path)
        rank.order(step=3)
        rank.cross(3)
    assert rank.state == (ReplyState.FAILED, "aa")


def test_a_store_that_is_gone_makes_it_void_and_training_goes_on(tmp_path):
    class Gone:
        def add(self, *_):
            raise RuntimeError("connection reset")

        compare_set = check = add

    rank = Rank(tmp_path, Gone(), world_size=2)
    rank.order(step=3)
    assert rank.cross(3)
    assert rank.state == (ReplyState.VOID, "aa")


def test_a_stop_ends_the_loop_from_its_step_on(tmp_path):
    rank = Rank(tmp_path)
    rank.order(step=3, kind=OrderKind.STOP)
    assert rank.cross(2)
    assert not rank.cross(3)
    assert not rank.cross(4)


def test_the_phase_is_saving_only_while_it_saves(tmp_path):
    seen = []
    savable = Savable(save=lambda *_: seen.append(rank.recorder.phase), load=lambda *_: None)
    rank = Rank(tmp_path, savable=savable)
    rank.recorder.enter(Phase.DATA)
    rank.order(step=3)
    rank.cross(3)
    assert seen == [Phase.SAVING]
    assert rank.recorder.phase == Phase.DATA


def test_what_was_saved_names_what_it_goes_back_to(tmp_path):
    rank = Rank(tmp_path)
    for step, identifier in ((1, "aa"), (2, "bb")):
        rank.order(step, identifier)
        rank.cross(step)
    assert rank.boundary.ancestors == ("bb", "aa")
    assert loop.ANCESTORS >= 2


@pytest.fixture
def alone():
    distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def sharded(requires_grad=True):
    model = torch.nn.Linear(2, 2)
    model.requires_grad_(requires_grad)
    return fully_shard(model, mesh=init_device_mesh("cpu", (1,)))


def is_gathered(model):
    return not isinstance(model.weight, DTensor)


@pytest.fixture
def taught(alone, tmp_path):
    """A job with a student and two teachers, frozen or only never stepped, kept gathered."""
    student, frozen, unstepped = sharded(), sharded(requires_grad=False), sharded()
    models = {"student": student, "frozen": frozen, "unstepped": unstepped}
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    savable = Savable(register({**models, "optimizer": optimizer}))

    def build(has_snapshots):
        rank = Rank(tmp_path, savable=savable)
        rank.boundary = Boundary(
            rank.recorder,
            rank.boundary.place,
            savable,
            str(tmp_path),
            has_snapshots=has_snapshots,
        )
        rank.boundary._trial.is_over = True
        for model in models.values():
            model.unshard()
        return rank, models.values()

    return build


def test_a_teacher_of_fsdp2_that_is_kept_gathered_stays_so_until_a_checkpoint(taught, tmp_path):
    rank, models = taught(has_snapshots=False)
    rank.cross(1)
    assert [is_gathered(model) for model in models] == [False, True, True]
    rank.order(step=2, deadline_s=60)
    rank.cross(2)
    assert rank.state == (ReplyState.SAVED, "aa")
    assert not any(is_gathered(model) for model in models)


def test_where_ranks_take_snapshots_each_by_itself_all_modules_of_fsdp2_are_sharded(taught):
    rank, models = taught(has_snapshots=True)
    rank.cross(1)
    assert not any(is_gathered(model) for model in models)


def test_a_module_that_cannot_be_sharded_again_is_no_error_of_the_script(taught, monkeypatch):
    rank, models = taught(has_snapshots=True)

    def fail(self):
        raise RuntimeError("not now")

    monkeypatch.setattr(FSDPModule, "reshard", fail)
    assert rank.cross(1)
    assert rank.recorder.word(Word.HOOK_ERRORS) == len(models)
