"""What a rank does about snapshots at its boundaries: when, into which slot, and who is told."""

import errno
import fcntl
import os
import threading
from pathlib import Path

import pytest
import torch
from tests.unit.three_lines.slots import JOB, Rank, headers, make_slot, train_one
from torch.distributed import HashStore
from torch.optim.optimizer import _global_optimizer_pre_hooks as optimizer_hooks

from holdfast.contract import page
from holdfast.contract.page import OrderKind, Phase, ReplyState, Word
from holdfast.contract.snapshot_file import HeaderWord as FileWord
from holdfast.contract.snapshot_file import parse_state
from holdfast.guard import Guard
from holdfast.rank import process
from holdfast.recording.placement import Placement
from holdfast.snapshots import retention
from holdfast.snapshots.schedule import read_rounds
from holdfast.state.data_position import Position
from holdfast.state.registered import register
from holdfast.state.saving import Savable

pytestmark = pytest.mark.torch


@pytest.fixture
def rank(tmp_path):
    return Rank(tmp_path / "snapshots")


@pytest.fixture
def two(tmp_path):
    store = HashStore()
    return [Rank(tmp_path / "snapshots", rank, store, world_size=2) for rank in range(2)]


def test_room_is_asked_for_after_the_first_step_because_optimizers_make_their_state_then(rank):
    rank.cross(0)
    assert rank.word(Word.SNAPSHOT_WANTED) == 0
    rank.run(1)
    numbers = sum(p.numel() * 4 * 3 for p in rank.model.parameters())
    assert rank.word(Word.SNAPSHOT_WANTED) > numbers + 4096


def test_nothing_is_copied_before_somebody_says_how_often(rank):
    rank.cross(0)
    rank.run(1, 2, 3)
    assert rank.steps == [None, None]
    assert rank.word(Word.SNAPSHOTS_TAKEN) == 0


def test_a_snapshot_is_taken_at_every_due_boundary_in_turn(rank):
    rank.start(every=2)
    rank.run(2, 3, 4)
    assert rank.steps == [2, 4]
    rank.run(5, 6)
    assert rank.steps == [6, 4]
    assert rank.word(Word.SNAPSHOT_SEALED) == rank.word(Word.SNAPSHOT_EXISTING) == 7
    assert rank.word(Word.SNAPSHOTS_TAKEN) == 3
    assert rank.word(Word.SNAPSHOTS_SKIPPED) == 0


def test_without_a_thread_left_slots_are_prepared_later_and_training_goes_on(rank, monkeypatch):
    def refuse(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as without:
        without.setattr(threading.Thread, "start", refuse)
        rank.start()
        rank.run(2, 3)
        rank.taking.await_slots(2)  # as after a resume: nothing would ever end the wait
    assert rank.steps == [None, None]
    rank.run(4, 5, 6)
    assert sorted(rank.steps) == [5, 6]


def test_what_is_sealed_says_whose_and_which_it_is(rank):
    rank.start()
    rank.run(2)
    header = headers(rank.folder)[0]
    assert (header.job, header.attempt, header.epoch, header.rank, header.world_size) == (
        (JOB, 0, 1, 0, 1)
    )
    data = (rank.folder / "rank-0-slot-0").read_bytes()
    state = parse_state(
        data[header.state_offset : header.state_offset + header.state_size], header.state_crc
    )
    assert state is not None
    assert state["step"] == 2
    assert state["account"]["models"] == ["model"]
    assert state["account"]["finite"] is None


def test_every_zero_means_none(rank):
    rank.start(every=0)
    rank.run(2, 3)
    assert rank.steps == [None, None]


def test_the_phase_is_saving_only_while_it_copies(rank, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "holdfast.snapshots.copying.copy_all", lambda *_: seen.append(rank.recorder.phase)
    )
    rank.start()
    rank.recorder.enter(Phase.FORWARD)
    rank.run(2)
    assert seen == [Phase.SAVING]
    assert rank.recorder.phase is Phase.FORWARD


def test_the_time_that_the_loop_was_kept_is_told(rank):
    rank.start()
    clock = iter(range(10, 10**6, 10))
    rank.taking.clock_ns = lambda: next(clock)
    rank.run(2)
    first = rank.word(Word.SNAPSHOT_FIRST_NS)
    rank.run(3)
    assert first > 0
    assert rank.word(Word.SNAPSHOT_FIRST_NS) == first
    assert rank.word(Word.SNAPSHOT_BLOCKED_NS) == first + rank.word(Word.SNAPSHOT_LAST_NS)


def test_a_snapshot_exists_only_when_all_ranks_sealed_it(two):
    for rank in two:
        rank.start()
    first, second = two
    first.run(2)
    assert first.word(Word.SNAPSHOT_SEALED) == 3
    assert first.word(Word.SNAPSHOT_EXISTING) == 0
    second.run(2)
    assert second.word(Word.SNAPSHOT_EXISTING) == 3  # the last one knows at once
    first.cross(3)
    assert first.word(Word.SNAPSHOT_EXISTING) == 3  # the others ask at their next boundary


def test_what_may_be_the_only_common_snapshot_is_not_overwritten_and_the_skip_is_counted(two):
    ahead, behind = two
    for rank in two:
        rank.start()
    ahead.run(2, 3, 4, 5)
    assert ahead.steps == [2, 3]
    assert ahead.word(Word.SNAPSHOTS_SKIPPED) == 2
    behind.run(2, 3)
    ahead.run(6)
    assert ahead.steps == [6, 3]


def test_a_skipped_step_is_void_for_all_at_once(two):
    ahead, behind = two
    for rank in two:
        rank.start()
    ahead.run(2, 3, 4)
    behind.run(2, 3, 4, 5)  # 4 is void, so its slot is free again at once
    assert behind.steps == [5, 3]
    assert behind.word(Word.SNAPSHOTS_SKIPPED) == 0


def test_a_verdict_that_never_comes_is_void_in_the_end(two):
    alone, other = two
    for rank in two:
        rank.start()
    alone.run(2, 3)
    alone.now_ns = 0
    alone.run(*range(4, 4 + retention.PATIENT_SKIPS))
    assert alone.steps == [2, 3]
    alone.now_ns = int(retention.PATIENCE_S * 1e9)
    alone.run(20)
    assert alone.steps == [20, 3]
    other.run(2)  # too late: nobody has it any more
    assert other.word(Word.SNAPSHOT_EXISTING) == 0


def test_no_rank_takes_any_before_all_can(two):
    early, late = two
    early.start()
    early.run(2, 3)
    assert early.steps == [None, None]
    late.start(every=2)
    early.cadence(every=2)
    for step in (4, 5, 6):
        for rank in two:
            rank.run(step)
    assert early.steps == late.steps == [4, 6]
    assert early.word(Word.SNAPSHOTS_SKIPPED) == 0


def test_a_rank_whose_slots_go_away_tells_which_steps_it_leaves_out(two):
    stays, loses = two
    for rank in two:
        rank.start()
    for rank in two:
        rank.run(2)
    for path in loses.folder.glob("rank-1-*"):
        path.unlink()
    for step in (3, 4, 5):
        for rank in (loses, stays):
            rank.run(step)
    assert stays.word(Word.SNAPSHOTS_SKIPPED) == 0
    assert stays.steps[0] == 2


def test_old_questions_are_removed_from_the_store(two):
    for rank in two:
        rank.start()
    for step in range(2, 30):
        for rank in two:
            rank.run(step)
    assert two[0].place.store.num_keys() <= 4


def test_a_slot_that_is_being_read_is_left_alone(rank):
    rank.start()
    rank.run(2, 3)
    with (rank.folder / "rank-0-slot-0").open() as reader:
        fcntl.flock(reader, fcntl.LOCK_SH | fcntl.LOCK_NB)
        rank.run(4)
        assert rank.steps == [2, 3]
        assert rank.word(Word.SNAPSHOTS_SKIPPED) == 1
    rank.run(5)
    assert rank.steps == [5, 3]


def test_a_forked_child_writes_nothing(rank):
    rank.start()
    rank.run(2)
    child = os.fork()
    if child == 0:
        try:
            rank.rounds.cross(3, lambda: Position(0, 0), None)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert rank.steps == [2, None]


def test_a_rank_whose_state_can_not_be_kept_says_so_once_and_trains_on(tmp_path, caplog):
    class Odd:
        def state_dict(self):
            return {"made by": open}

        def load_state_dict(self, state):
            pass

    model, optimizer = torch.nn.Linear(2, 2), None
    rank = Rank(tmp_path / "snapshots", state={"model": model, "optimizer": optimizer})
    rank.savable.registered.others["odd"] = Odd()
    rank.cross(0)
    rank.cadence()
    for step in (1, 2, 3):
        rank.cross(step)
    assert rank.word(Word.SNAPSHOT_WANTED) == 0
    assert caplog.text.count("no snapshots") == 1
    assert "odd['made by']" in caplog.text
    rank.order(OrderKind.CHECKPOINT, step=9)
    rank.cross(4)
    assert rank.reply() == (ReplyState.FAILED, "aa")


def test_a_layout_that_grows_asks_for_more_room_and_takes_larger_slots(rank):
    rank.start()
    rank.run(2)
    before = rank.word(Word.SNAPSHOT_WANTED)
    rank.model.register_buffer("large", torch.ones(200_000))
    rank.run(3)
    wanted = rank.word(Word.SNAPSHOT_WANTED)
    assert wanted > before + 790_000
    assert rank.steps == [2, None]
    rank.run(4)
    for number in range(2):
        make_slot(rank.folder, 0, number, wanted)
    rank.run(5)
    rank.run(6)
    assert 6 in rank.steps


def test_a_layout_that_changes_and_still_fits_needs_no_other_slots(rank):
    rank.cross(0)
    rank.run(1)
    asked = rank.word(Word.SNAPSHOT_WANTED)
    for number in range(2):
        make_slot(rank.folder, 0, number, asked)
    rank.start()
    rank.run(2)
    rank.model.register_buffer("small", torch.ones(10_000))
    rank.run(3)
    assert rank.steps == [2, 3]
    assert rank.word(Word.SNAPSHOT_WANTED) == asked


def test_slots_that_are_missing_or_spoilt_are_not_used(rank, tmp_path):
    rank.cross(0)
    rank.run(1)
    first, second = sorted(rank.folder.iterdir())
    second.unlink()
    rank.cadence()
    rank.run(2, 3)
    second.symlink_to(first)
    rank.run(4)
    second.unlink()
    second.write_bytes(first.read_bytes()[:-4096])
    rank.run(5)
    second.unlink()
    with second.open("wb") as sparse:
        sparse.write(first.read_bytes()[:4096])
        sparse.truncate(first.stat().st_size)
    rank.run(6)
    assert headers(rank.folder)[0].sealed_step is None
    second.unlink()
    make_slot(rank.folder, 0, 1)
    rank.run(7, 8)
    assert rank.steps == [8, None] or rank.steps == [7, 8]


def test_a_checkpoint_order_is_copied_held_and_let_go_of(rank):
    rank.start(every=0)
    rank.order(OrderKind.CHECKPOINT, step=4)
    rank.run(2)
    assert rank.reply() == (ReplyState.ARMED, "aa")
    rank.run(3, 4)
    assert rank.reply() == (ReplyState.COPIED, "aa")
    assert rank.steps == [4, None]
    rank.cadence()
    rank.run(5, 6)
    assert 4 in rank.steps  # held, though it is older than one that exists
    assert rank.word(Word.SNAPSHOTS_SKIPPED) == 1
    rank.order(OrderKind.CHECKPOINT, step=4, deadline_ns=0)
    rank.run(7)
    assert 4 not in rank.steps
    assert rank.reply() == (ReplyState.COPIED, "aa")


def test_the_reply_tells_how_much_was_copied_and_how_long_it_took(rank):
    rank.start(every=0)
    clock = iter(range(10, 10**6, 10))
    rank.taking.clock_ns = lambda: next(clock)
    rank.order(OrderKind.CHECKPOINT, step=2)
    rank.run(2)
    reply = page.parse_reply(bytes(rank.memory))
    assert reply is not None
    assert reply.state is ReplyState.COPIED
    assert reply.size_bytes > 0
    assert reply.duration_ns == rank.word(Word.SNAPSHOT_LAST_NS) > 0


def test_an_order_for_a_step_that_is_past_is_missed_unless_its_snapshot_is_still_here(rank):
    rank.start()
    rank.run(2, 3, 4)
    rank.order(OrderKind.CHECKPOINT, step=2)
    rank.run(5)
    assert rank.reply() == (ReplyState.MISSED, "aa")
    rank.order(OrderKind.CHECKPOINT, step=5, identifier="bb")
    rank.run(6)
    assert rank.reply() == (ReplyState.COPIED, "bb")


def test_an_order_withdrawn_before_its_step_is_void(rank):
    rank.start(every=0)
    rank.order(OrderKind.CHECKPOINT, step=5)
    rank.run(2)
    rank.order(OrderKind.CHECKPOINT, step=5, deadline_ns=0)
    rank.run(3, 4, 5)
    assert rank.reply() == (ReplyState.VOID, "aa")
    assert rank.steps == [None, None]


def test_of_an_order_that_is_not_reached_it_is_said_that_the_loop_ended(rank):
    rank.start(every=0)
    rank.order(OrderKind.CHECKPOINT, step=9)
    rank.run(2)
    rank.rounds.leave()
    assert rank.reply() == (ReplyState.LEFT, "aa")


def test_an_order_without_a_free_slot_is_void_and_training_goes_on(rank):
    rank.start(every=0)
    for step, kind, identifier in ((2, OrderKind.CHECKPOINT, "aa"), (3, OrderKind.PEER, "bb")):
        rank.order(kind, step, identifier)
        rank.run(step)
    rank.order(OrderKind.PEER, step=5, identifier="cc", keeps=4)
    rank.run(4, 5)
    assert rank.reply(OrderKind.PEER) == (ReplyState.VOID, "cc")
    assert rank.steps == [2, 3]


def test_a_single_slot_serves_checkpoints(tmp_path):
    rank = Rank(tmp_path / "snapshots", slots=1)
    rank.start(every=0, slots=1)
    for step, identifier in ((2, "aa"), (3, "bb")):
        rank.order(OrderKind.CHECKPOINT, step, identifier, slots=1)
        rank.run(step)
        assert rank.reply() == (ReplyState.COPIED, identifier)
    assert rank.steps == [3]


def test_a_peer_order_has_a_reply_of_its_own_and_keeps_the_step_before(tmp_path):
    rank = Rank(tmp_path / "snapshots", slots=3)
    rank.start(slots=3)
    rank.order(OrderKind.PEER, step=3, identifier="p1", slots=3)
    rank.run(2, 3)
    assert rank.reply(OrderKind.PEER) == (ReplyState.COPIED, "p1")
    assert rank.reply() is None
    rank.order(OrderKind.PEER, step=6, identifier="p2", slots=3, keeps=4)
    rank.run(4, 5, 6)
    assert {3, 6} <= set(rank.steps)
    rank.order(OrderKind.PEER, step=6, identifier="p2", deadline_ns=0, slots=3, keeps=4)
    rank.run(7, 8, 9)
    assert 3 in rank.steps
    rank.order(OrderKind.PEER, step=12, identifier="p3", slots=3, keeps=7)
    rank.run(10, 11)
    assert 3 not in rank.steps


def test_a_store_that_is_gone_ends_the_snapshots_and_not_the_training(tmp_path, caplog):
    class Gone:
        def add(self, key, amount):
            raise RuntimeError("connection reset")

        compare_set = check = add

    rank = Rank(tmp_path / "snapshots", store=Gone(), world_size=2)
    rank.start()
    rank.run(2, 3, 4)
    assert rank.steps == [None, None]
    assert caplog.text.count("can't be reached") == 1


def test_an_object_that_fails_makes_the_step_void_and_leaves_no_lock(two):
    first, second = two
    for rank in two:
        rank.start()
    first.savable.registered.others["odd"] = Failing()
    with pytest.raises(OSError, match="planted"):
        first.run(2)
    second.run(2, 3, 4)
    assert second.steps == [4, 3] or second.steps == [2, 3]
    del first.savable.registered.others["odd"]
    first.run(5)
    assert 5 in first.steps


def test_an_object_that_fails_time_and_again_ends_the_snapshots_with_a_word(rank):
    rank.start()
    rank.savable.registered.others["odd"] = Failing()
    hooks = Guard(lambda: None)
    cross = hooks.wrap("snapshots", rank.cross, None)
    for step in range(2, 30):
        cross(step)
    assert rank.word(Word.SNAPSHOT_WANTED) == 0
    rank.order(OrderKind.CHECKPOINT, step=31)
    cross(30)
    assert rank.reply() == (ReplyState.FAILED, "aa")


class Failing:
    def state_dict(self):
        raise OSError(errno.EIO, "planted")

    def load_state_dict(self, state):
        pass


def test_a_copy_that_fails_leaves_the_slot_torn_and_free(rank, monkeypatch):
    rank.start()
    rank.run(2)

    def broken(*_):
        raise RuntimeError("planted")

    with monkeypatch.context() as patch:
        patch.setattr("holdfast.snapshots.copying.copy_all", broken)
        with pytest.raises(RuntimeError, match="planted"):
            rank.run(3)
    assert rank.steps == [2, None]
    rank.run(4)
    assert rank.steps == [2, 4]


def test_what_was_resumed_from_is_kept_until_a_newer_one_exists(tmp_path):
    before = Rank(tmp_path / "snapshots", slots=2)
    before.start()
    before.run(2, 3)
    store = HashStore()
    rank, other = (
        Rank(tmp_path / "snapshots", number, store, 2, attempt=1, slots=2 * number)
        for number in range(2)
    )
    other.start()
    rank.taking.shelf.resumed = (0, 3)
    rank.cross(3)
    rank.run(4)
    rank.get_ready()
    rank.cadence()
    rank.run(5, 6, 7)
    assert rank.steps == [5, 3]
    assert rank.word(Word.SNAPSHOT_EXISTING) == 4


def test_every_step_after_a_resume_is_in_a_snapshot(tmp_path):
    store = HashStore()
    ranks = [Rank(tmp_path / "snapshots", n, store, world_size=2, attempt=1) for n in range(2)]
    for rank in ranks:
        train_one(rank.model, rank.optimizer)  # its optimizer's state is there, as after loading
        rank.cadence()
        rank.rounds.is_resumed = True
        rank.rounds.cross(5, lambda: Position(0, 0), None)
    for step in (6, 7):
        for rank in ranks:
            rank.run(step)
        assert all(step in rank.steps for rank in ranks)
        assert ranks[1].word(Word.SNAPSHOT_EXISTING) == step + 1


def test_what_was_resumed_from_is_neither_taken_again_nor_given_up(tmp_path):
    before = Rank(tmp_path / "snapshots")
    before.start()
    before.run(2)
    rank = Rank(tmp_path / "other", attempt=1, slots=0)
    rank.taking.shelf.folder = before.folder
    rank.taking.shelf.resumed = (0, 2)
    rank.rounds.is_resumed = True
    rank.order(OrderKind.PEER, step=2)
    train_one(rank.model, rank.optimizer)
    rank.cross(2)
    assert rank.taking.shelf.known.void == frozenset()
    assert before.steps == [2, None]


def read(env, savable, **place):
    return read_rounds(env, None, Placement(**place), savable)  # type: ignore[arg-type]


def test_no_snapshots_without_holdfast_nor_for_what_a_user_saves_himself(tmp_path, monkeypatch):
    env = {"HOLDFAST_PAGE_DIR": str(tmp_path)}
    model = Savable(register({"model": torch.nn.Linear(1, 1)}))
    assert read(env, model) is None  # nobody watches this process
    monkeypatch.setattr(process, "current", lambda: object())
    assert read(env, model) is not None
    assert read({}, model) is None
    assert read({**env, "HOLDFAST_SNAPSHOTS": "0"}, model) is None
    assert read(env, Savable()) is None
    assert read(env, Savable(model.registered, print, print)) is None
    assert read(env, model, is_joined=False) is None


@pytest.mark.parametrize(("local", "waits"), [(2, False), (1, True)])
def test_only_a_job_of_several_nodes_waits_for_copies_on_others(
    tmp_path, monkeypatch, local, waits
):
    monkeypatch.setattr(process, "current", lambda: object())
    env = {
        "HOLDFAST_PAGE_DIR": str(tmp_path),
        "HOLDFAST_PEER_COPIES": "sync",
        "HOLDFAST_PEER_TIMEOUT_S": "2.5",
    }
    model = Savable(register({"model": torch.nn.Linear(1, 1)}))
    partner = read(env, model, world_size=2, local_world_size=local).taking.partner
    assert (partner and partner.timeout_s) == (2.5 if waits else None)


def test_a_partner_is_waited_for_before_the_others_are_told(two):
    class Partner:
        def await_confirmed(self, step, is_void):
            confirmed.append((step, two[0].place.store.num_keys()))
            return False

    confirmed: list[tuple[int, int]] = []
    for rank in two:
        rank.start()
    first = two[0]
    first.taking.partner = Partner()
    keys = first.place.store.num_keys()
    first.run(2)
    assert confirmed == [(2, keys)]
    assert first.word(Word.SNAPSHOTS_SKIPPED) == 1
    assert first.place.store.num_keys() == keys + 1


def test_weights_are_those_of_the_boundary(rank):
    rank.start()
    rank.run(2)
    weights = rank.model[0].weight.detach().clone()
    train_one(rank.model, rank.optimizer)
    source = rank.taking._filling._views[rank.taking.shelf.slots[0]]
    assert any(torch.equal(view, weights) for view in source)
    assert not torch.equal(weights, rank.model[0].weight)


def test_larger_slots_with_what_lay_in_the_old_ones_change_nothing_of_what_is_kept(two):
    ahead, behind = two
    for rank in two:
        rank.start()
    for rank in two:
        rank.run(2)
    ahead.run(3)
    for number in range(2):
        path = ahead.folder / f"rank-0-slot-{number}"
        old = path.read_bytes()
        size = len(old) + 4096
        make_slot(ahead.folder, 0, number, size)
        with path.open("r+b") as stream:
            stream.write(old)
            stream.seek(int(FileWord.FILE_SIZE) * 8)
            stream.write(size.to_bytes(8, "little"))
    ahead.run(4)
    ahead.settle()
    ahead.run(5)
    assert ahead.steps == [2, 3]
    behind.run(3)
    ahead.run(6)
    assert ahead.steps == [6, 3]


def test_a_slot_is_not_written_once_another_file_has_its_name(rank):
    rank.start()
    slot = rank.taking.shelf.slots[0]
    make_slot(rank.folder, 0, 0)
    assert slot.begin() is None


def test_what_is_due_between_two_boundaries_is_taken_at_the_later_one(rank):
    rank.start(every=2)
    rank.run(4, 5, 8)
    assert rank.steps == [4, 8]
    rank.run(11)
    assert rank.steps == [11, 8]


def test_an_order_between_two_boundaries_is_copied_and_held_at_the_later_one(tmp_path):
    rank = Rank(tmp_path / "snapshots", slots=3)
    rank.start(slots=3)
    rank.order(OrderKind.CHECKPOINT, step=6, slots=1)
    rank.run(4)
    assert rank.reply() == (ReplyState.ARMED, "aa")
    rank.run(8)
    assert rank.reply() == (ReplyState.COPIED, "aa")
    reply = page.parse_reply(bytes(rank.memory))
    assert reply is not None
    assert reply.step == 8
    rank.run(12, 16, 20)
    assert 8 in rank.steps


def test_who_hears_late_of_an_order_has_its_boundary_in_a_slot(rank):
    rank.start()
    rank.run(4, 8)
    rank.order(OrderKind.CHECKPOINT, step=6, slots=1)
    rank.run(12)
    assert rank.reply() == (ReplyState.COPIED, "aa")
    reply = page.parse_reply(bytes(rank.memory))
    assert reply is not None
    assert reply.step == 8


def test_a_boundary_that_is_long_past_is_missed(rank):
    rank.start()
    rank.run(4, 8, 12)
    rank.order(OrderKind.CHECKPOINT, step=3, slots=1)
    rank.run(16)
    assert rank.reply() == (ReplyState.MISSED, "aa")


def mapped(folder):
    return Path("/proc/self/maps").read_text().count(f"{folder}/rank-")


def test_slots_that_were_taken_away_are_unmapped_at_the_next_boundary(rank):
    rank.start(slots=2)
    rank.run(2, 3)
    assert mapped(rank.folder) == 2
    (rank.folder / "rank-0-slot-1").unlink()
    rank.order(OrderKind.SNAPSHOT, identifier="0-1", every=0, slots=1)
    rank.run(4)
    assert mapped(rank.folder) == 1
    (rank.folder / "rank-0-slot-0").unlink()
    rank.order(OrderKind.SNAPSHOT, identifier="0-0", every=0, slots=0)
    rank.run(5)
    assert mapped(rank.folder) == 0
    descriptors = [
        str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()
    ]
    assert not [one for one in descriptors if str(rank.folder) in one]


def test_optimizers_call_nothing_of_snapshots_behind_the_loop_that_took_them(tmp_path):
    """Else each `attach` on a GPU would leave a hook, and what it copied with, for good."""
    before = len(optimizer_hooks)
    for attached in range(3):
        rank = Rank(tmp_path / f"snapshots-{attached}")
        rank.start()
        rank.taking._filling._copy_from_gpus((torch.device("cuda:0"),))
        assert len(optimizer_hooks) == before + 1
        rank.rounds.leave()
        assert len(optimizer_hooks) == before
    rank.cross(2)  # another loop over the same job
    assert len(optimizer_hooks) == before + 1
    rank.rounds.leave()
    assert len(optimizer_hooks) == before


def test_what_fails_at_the_last_copy_leaves_no_hook_behind(rank, monkeypatch):
    def fail(wait):
        raise RuntimeError("CUDA error")

    before = len(optimizer_hooks)
    rank.start()
    rank.taking._filling._copy_from_gpus((torch.device("cuda:0"),))
    monkeypatch.setattr(rank.taking, "finish", fail)
    with pytest.raises(RuntimeError, match="CUDA error"):
        rank.rounds.leave()
    assert len(optimizer_hooks) == before
