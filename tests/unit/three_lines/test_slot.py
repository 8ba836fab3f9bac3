"""A slot file as a rank maps, locks, fills and reads it."""

import fcntl
import os
import struct
from pathlib import Path

import pytest
import torch
from tests.unit.three_lines.slots import JOB, SIZE, Rank, make_slot, sealed_steps, train_one

from holdfast.contract.snapshot_file import HEADER_SIZE, HeaderWord, SlotHeader, parse_header
from holdfast.recording.placement import Placement
from holdfast.snapshots.found import Fetched, SlotsOfBefore, find, newest_common
from holdfast.snapshots.slot import Slot, open_slot
from holdfast.snapshots.snapshot_source import read_snapshot
from holdfast.state.loading import LoadFailed, load_state

pytestmark = pytest.mark.torch


@pytest.fixture
def taken(tmp_path):
    """A rank that took the snapshots of steps 2 and 3."""
    rank = Rank(tmp_path / "snapshots")
    rank.start()
    rank.run(2, 3)
    return rank


def opened(path: Path) -> Slot:
    slot = open_slot(path)
    assert slot is not None
    return slot


def header_of(content: bytes) -> SlotHeader:
    header = parse_header(content[:HEADER_SIZE])
    assert header is not None
    return header


def test_an_unsealed_slot_holds_nothing(tmp_path):
    path = make_slot(tmp_path / "snapshots", 0, 0)
    slot = opened(path)
    header = slot.header()
    assert header is not None
    assert header.sealed_step is None
    assert read_snapshot(slot, JOB) is None


def test_what_the_sidecar_did_not_make_is_not_opened(tmp_path):
    path = make_slot(tmp_path / "snapshots", 0, 0)
    link = tmp_path / "link"
    link.symlink_to(path)
    assert open_slot(link) is None
    assert open_slot(tmp_path / "nothing") is None
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"x" * SIZE)
    assert open_slot(foreign) is None
    short = tmp_path / "short"
    short.write_bytes(path.read_bytes()[:-1])
    assert open_slot(short) is None
    (tmp_path / "empty").touch()
    assert open_slot(tmp_path / "empty") is None


def test_only_one_writes_and_nobody_reads_meanwhile(tmp_path):
    path = make_slot(tmp_path / "snapshots", 0, 0)
    first, second = opened(path), opened(path)
    writing = first.begin()
    assert writing is not None
    assert second.begin() is None
    with second.reading() as is_free:
        assert not is_free
    writing.let_go()
    with second.reading() as is_free:
        assert is_free
        assert first.begin() is None
    assert second.begin() is not None


def test_a_lock_is_given_back_though_a_child_has_its_descriptor_too(tmp_path):
    path = make_slot(tmp_path / "snapshots", 0, 0)
    slot = opened(path)
    writing = slot.begin()
    assert writing is not None
    stay, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        os.read(stay, 1)
        os._exit(0)
    writing.let_go()
    again = slot.begin()
    os.close(go)
    os.waitpid(child, 0)
    assert again is not None


def test_a_file_that_took_the_place_of_another_is_noticed(tmp_path):
    path = make_slot(tmp_path / "snapshots", 0, 0)
    slot = opened(path)
    assert slot.is_in_place()
    make_slot(tmp_path / "snapshots", 0, 0)
    assert not slot.is_in_place()
    assert slot.begin() is None


def test_the_old_checksum_does_not_vouch_for_a_step_that_is_sealed_again(taken):
    path = taken.folder / "rank-0-slot-0"
    with path.open("r+b") as stream:
        for word, value in ((HeaderWord.CHECKED, 3), (HeaderWord.DATA_CRC, 7)):
            os.pwrite(stream.fileno(), struct.pack("<Q", value), int(word) * 8)
    assert header_of(path.read_bytes()).data_crc == 7
    slot = opened(path)
    writing = slot.begin()
    assert writing is not None
    writing.seal(1)
    header = slot.header()
    assert header is not None
    assert header.sealed_step == 2
    assert header.data_crc is None


def load(rank, fresh):
    found = find(rank.folder, rank.place.rank, JOB)
    source = found.snapshots[max(found.snapshots)]
    return load_state(source, fresh.savable, fresh.place)


def test_what_was_copied_is_loaded_with_the_same_bits(taken, tmp_path):
    fresh = Rank(tmp_path / "other", slots=0)
    with torch.no_grad():
        for parameter in fresh.model.parameters():
            parameter.fill_(9)
    assert load(taken, fresh).step == 3
    for key, value in taken.model.state_dict().items():
        assert torch.equal(value, fresh.model.state_dict()[key])
    for before, after in zip(
        taken.optimizer.state.values(), fresh.optimizer.state.values(), strict=True
    ):
        assert all(torch.equal(before[key], after[key]) for key in before)


def test_memory_of_another_order_or_type_of_numbers_is_filled_with_the_same_values(taken, tmp_path):
    fresh = Rank(tmp_path / "other", slots=0)
    weight = fresh.model[0].weight
    weight.data = torch.zeros(4, 4).t()
    fresh.model[0].bias.data = torch.zeros(4, dtype=torch.float64)
    load(taken, fresh)
    assert torch.equal(weight, taken.model[0].weight)
    assert torch.equal(fresh.model[0].bias, taken.model[0].bias.double())


def test_state_that_the_optimizer_has_already_is_filled_in_its_place(taken, tmp_path):
    fresh = Rank(tmp_path / "other", slots=0)
    train_one(fresh.model, fresh.optimizer)
    before = [state["exp_avg"].data_ptr() for state in fresh.optimizer.state.values()]
    load(taken, fresh)
    after = [state["exp_avg"].data_ptr() for state in fresh.optimizer.state.values()]
    assert after == before
    for mine, saved in zip(
        fresh.optimizer.state.values(), taken.optimizer.state.values(), strict=True
    ):
        assert all(torch.equal(mine[key], saved[key]) for key in saved)


def test_a_slot_that_lost_its_end_is_not_loaded(taken, tmp_path):
    found = find(taken.folder, 0, JOB)
    source = found.snapshots[max(found.snapshots)]
    os.truncate(source.slot.path, source.header.data_offset + 8)
    fresh = Rank(tmp_path / "other", slots=0)
    with pytest.raises(OSError, match="ends after"):
        load_state(source, fresh.savable, fresh.place)


def test_what_is_loaded_does_not_change_with_the_slot(taken, tmp_path):
    fresh = Rank(tmp_path / "other", slots=0)
    load(taken, fresh)
    kept = [value.clone() for state in fresh.optimizer.state.values() for value in state.values()]
    kept += [value.clone() for value in fresh.model.state_dict().values()]
    for path in taken.folder.iterdir():
        path.write_bytes(b"\xff" * SIZE)
    now = [value for state in fresh.optimizer.state.values() for value in state.values()]
    now += list(fresh.model.state_dict().values())
    assert all(torch.equal(a, b) for a, b in zip(kept, now, strict=True))


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_not_finite_are_not_loaded(tmp_path, odd):
    rank = Rank(tmp_path / "snapshots")
    rank.start()
    with torch.no_grad():
        rank.model[0].weight[1, 2] = odd
    rank.cross(2)
    with pytest.raises(LoadFailed, match="weight: its numbers are not finite"):
        load(rank, Rank(tmp_path / "other", slots=0))


def test_a_buffer_may_be_infinite_on_purpose(tmp_path):
    rank, fresh = Rank(tmp_path / "snapshots"), Rank(tmp_path / "other", slots=0)
    for made in (rank, fresh):
        made.model.register_buffer("mask", torch.full((3,), -float("inf")))
    rank.start()
    rank.run(2)
    assert load(rank, fresh).step == 2


def test_another_ranks_snapshot_is_refused(taken, tmp_path):
    fresh = Rank(tmp_path / "other", slots=0)
    fresh.place = Placement(rank=1, world_size=2)
    with pytest.raises(LoadFailed, match="rank 0's of 1"):
        load(taken, fresh)


@pytest.mark.parametrize("name", ["layout", "state", "header", "job"])
def test_a_slot_that_is_damaged_holds_nothing(taken, name):
    path = taken.folder / "rank-0-slot-1"
    header = header_of(path.read_bytes())
    at, flip = {
        "layout": (HEADER_SIZE + 10, 1),
        "state": (header.state_offset + 10, 1),
        "header": (int(HeaderWord.DATA_OFFSET) * 8, 64),
        "job": (64 * 8, 1),
    }[name]
    with path.open("r+b") as stream:
        byte = os.pread(stream.fileno(), 1, at)[0]
        os.pwrite(stream.fileno(), bytes([byte ^ flip]), at)
    assert set(find(taken.folder, 0, JOB).snapshots) == {(0, 2)}


def test_what_the_job_went_back_behind_is_not_counted(taken):
    assert (0, 3) in find(taken.folder, 0, JOB).snapshots
    assert (0, 3) in find(taken.folder, 0, JOB, since=0).snapshots
    assert not find(taken.folder, 0, JOB, since=1).snapshots
    assert set(find(taken.folder, 0, JOB, below=3).snapshots) == {(0, 2)}


def test_a_changed_byte_of_the_data_is_found_where_the_sidecar_left_a_checksum(taken):
    import zlib

    path = taken.folder / "rank-0-slot-0"
    data = path.read_bytes()
    header = header_of(data)
    crc = zlib.crc32(data[header.data_offset : header.data_offset + header.data_size])
    with path.open("r+b") as stream:
        os.pwrite(stream.fileno(), struct.pack("<QQ", 3, crc), int(HeaderWord.CHECKED) * 8)
        find(taken.folder, 0, JOB).check((0, 2))
        byte = os.pread(stream.fileno(), 1, header.data_offset)[0]
        os.pwrite(stream.fileno(), bytes([byte ^ 1]), header.data_offset)
    with pytest.raises(LoadFailed, match="bytes have changed"):
        find(taken.folder, 0, JOB).check((0, 2))
    find(taken.folder, 0, JOB).check((0, 3))


def test_what_lay_ahead_is_cleared(taken):
    find(taken.folder, 0, JOB).keep_only((0, 2))
    assert sealed_steps(taken.folder) == [2, None]


def test_a_slot_that_somebody_reads_for_long_is_left_with_a_word(taken, caplog):
    with (taken.folder / "rank-0-slot-0").open() as reader:
        fcntl.flock(reader, fcntl.LOCK_SH | fcntl.LOCK_NB)
        pauses: list[float] = []
        find(taken.folder, 0, JOB).keep_only(None, pauses.append)
    assert sealed_steps(taken.folder) == [2, None]
    assert len(pauses) > 1
    assert "could not be cleared" in caplog.text


def test_what_lies_behind_and_is_being_written_down_is_not_waited_for(taken, caplog):
    """A checkpoint of an older step outlives its attempt; it keeps nobody from going on."""
    with (taken.folder / "rank-0-slot-0").open() as reader:
        fcntl.flock(reader, fcntl.LOCK_SH | fcntl.LOCK_NB)
        pauses: list[float] = []
        find(taken.folder, 0, JOB).keep_only((0, 3), pauses.append)
    assert sealed_steps(taken.folder) == [2, 3]
    assert not pauses
    assert not caplog.text
    find(taken.folder, 0, JOB).keep_only((0, 3), pauses.append)
    assert sealed_steps(taken.folder) == [None, 3]


def test_the_newest_that_all_have_is_chosen_the_later_attempt_first():
    said = [[(0, 9), (1, 4), (1, 5)], [(1, 4), (0, 9)], [(0, 9), (1, 4), (2, 1)]]
    assert newest_common(said, floor=-1) == (1, 4)
    assert newest_common(said, floor=5) is None
    assert newest_common([[(0, 1)], []], floor=-1) is None


def test_copies_from_other_nodes_are_waited_for_and_their_absence_is_told(tmp_path):
    now_s = [0.0]

    def pause(seconds):
        now_s[0] += 100
        if now_s[0] == 300:
            (tmp_path / "fetched-attempt-2").write_text(words)

    def wait():
        now_s[0] = 0.0
        return Fetched(tmp_path, 2, now_s=lambda: now_s[0], pause=pause).wait()

    words = '{"ok": true, "reason": ""}'
    assert wait() == ""
    assert now_s == [300]
    (tmp_path / "fetched-attempt-2").write_text('{"ok": false, "reason": "node b is gone"}')
    assert wait() == "node b is gone"
    (tmp_path / "fetched-attempt-2").write_text("{")
    assert "can't be read" in wait()
    (tmp_path / "fetched-attempt-2").unlink()
    now_s[0] = 1.0
    assert "600 s" in Fetched(tmp_path, 2, now_s=lambda: now_s[0], pause=pause).wait()


def test_only_the_ranks_that_are_named_wait_for_copies(tmp_path, monkeypatch):
    waited = []

    def wait(fetched):
        waited.append(fetched.attempt)
        return ""

    monkeypatch.setattr(Fetched, "wait", wait)
    SlotsOfBefore(tmp_path, 1, JOB, 3).find(("0", "2"))
    assert waited == []
    SlotsOfBefore(tmp_path, 2, JOB, 3).find(("0", "2"))
    assert waited == [3]
