"""What the writer makes of sealed slots is a checkpoint like any other."""

import contextlib
import errno
import fcntl
import importlib
import json
import os
import struct
import sys
import threading
import types
import zlib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from tests.unit.checkpoint.writer.sealed import JOB, own_state, seal_slot, shared_state

from holdfast.contract.checkpoint_files import MARK
from holdfast.contract.snapshot_file import COPIES_DIRECTORY, HEADER_SIZE, HeaderWord, parse_header
from holdfast.contract.storage import LocalFolder
from holdfast.state.own_file import read_own
from holdfast.state.torch_checkpoint import FolderReader
from holdfast_sidecar.checkpoint.directory import CheckpointDirectory
from holdfast_sidecar.checkpoint.manifest import hash_file
from holdfast_sidecar.checkpoint.writer.requests import Entered, Seal, WriteParts
from holdfast_sidecar.checkpoint.writer.service import Answering
from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.records.checkpoint import CheckpointOrder, SavedPart
from holdfast_sidecar.records.plan import Member, Plan

SETTINGS = CheckpointSettings()


class Scene:
    """One node's shared memory, a checkpoint directory, and who answers questions about it."""

    def __init__(self, tmp_path):
        self.shm = tmp_path / "shm"
        self.shm.mkdir()
        self.settings = CheckpointSettings(dir=str(tmp_path / "ck"))
        self.storage = CheckpointDirectory(JOB, self.settings)
        self.told = []

    def order(self, step=5, identifier="aa"):
        path = self.storage.path(step, identifier)
        return CheckpointOrder(identifier, 0, 1, step, path, "writing", 1.0, mode="snapshot")

    def write(self, ranks, step=5, since=0):
        order = replace(self.order(step), since=since)
        asked = WriteParts(order, list(ranks), str(self.shm))
        return self.answer(asked, lambda done, total: self.told.append((done, total)))

    def answer(self, asked, tell):
        return Answering(JOB, self.settings).answer(asked, tell)

    def seal(self, *parts, world_size=1):
        plan = Plan(0, 1, "running", [Member("a", "1", 0, 0, world_size)], world_size)
        saved = [SavedPart("aa", files=part.files) for part in parts]
        answering = Answering(JOB, self.settings)
        answer = answering.answer(Seal(self.order(), plan, saved), lambda *_: None)
        assert isinstance(answer, Entered)
        return answer.entry

    @property
    def folder(self):
        return LocalFolder(self.order().path)

    def load(self):
        """By torch alone, as somebody without Holdfast would."""
        state = {key: torch.zeros_like(value) for key, value in shared_state().items()}
        dcp.load(state, storage_reader=dcp.FileSystemReader(self.order().path), no_dist=True)
        return state


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path)


def test_one_ranks_part_loads_with_torch_alone(scene):
    seal_slot(scene.shm, 0, 5, shared_state())
    entry = scene.seal(scene.write([0]))
    assert (entry.step, entry.verdict, entry.world_size) == (5, "complete", 1)
    loaded = scene.load()
    assert all(torch.equal(loaded[key], value) for key, value in shared_state().items())


def test_numbers_of_eight_bits_are_looked_at_like_all_others(scene):
    weights = {"model/weight": torch.linspace(-1, 1, 16).to(torch.float8_e4m3fn)}
    seal_slot(scene.shm, 0, 5, weights)
    assert scene.seal(scene.write([0])).verdict == "complete"
    loaded = {"model/weight": torch.zeros(16).to(torch.float8_e4m3fn)}
    dcp.load(loaded, storage_reader=dcp.FileSystemReader(scene.order().path), no_dist=True)
    assert torch.equal(loaded["model/weight"].float(), weights["model/weight"].float())


def test_replicas_are_written_once_by_ranks_of_several_nodes(scene):
    for rank in range(3):
        seal_slot(scene.shm, rank, 5, shared_state(), world_size=3)
    here, there = scene.write([0, 2]), scene.write([1])
    assert not here.files.keys() & there.files.keys()
    scene.seal(here, there, world_size=3)
    loaded = scene.load()
    assert all(torch.equal(loaded[key], value) for key, value in shared_state().items())
    tensor_bytes = sum(v.numel() * v.element_size() for v in shared_state().values())
    stored = sum(f.size for n, f in {**here.files, **there.files}.items() if ".distcp" in n)
    assert tensor_bytes < stored < 2 * tensor_bytes


def test_a_ranks_own_state_comes_back_from_its_own_file(scene):
    for rank in range(2):
        seal_slot(scene.shm, rank, 5, shared_state(), world_size=2)
    scene.write([0, 1])
    with scene.folder.open("__1_own.pt") as stream:
        own = read_own(stream)
    assert (own["rank"], own["lr"]) == (1, 0.1)
    assert torch.equal(own["buffer"], own_state(1)["buffer"])


def test_the_hashes_are_those_of_what_lies_there(scene):
    seal_slot(scene.shm, 0, 5, shared_state())
    part = scene.write([0])
    assert {*part.files, MARK} == set(scene.folder.names())
    assert all(hash_file(scene.folder, name) == fact for name, fact in part.files.items())


def test_progress_ends_with_all_of_it(scene):
    seal_slot(scene.shm, 0, 5, shared_state())
    scene.write([0])
    assert scene.told[-1][0] == scene.told[-1][1] > 0
    assert sorted(scene.told) == scene.told


def test_the_index_passes_the_reader_that_unpickles_nothing_else(scene):
    seal_slot(scene.shm, 0, 5, shared_state())
    scene.seal(scene.write([0]))
    found = FolderReader(scene.folder).read_metadata().state_dict_metadata
    assert set(found) == set(shared_state())


def test_a_copy_of_another_nodes_rank_is_written_as_well(scene):
    seal_slot(scene.shm, 3, 5, shared_state(), world_size=1, directory=COPIES_DIRECTORY)
    assert "__3_own.pt" in scene.write([3]).files


@pytest.mark.parametrize("where", ["shared", "own"])
def test_numbers_that_are_not_finite_are_said_in_the_account(scene, where):
    shared, own = shared_state(), own_state(0)
    (shared["model/weight"] if where == "shared" else own["buffer"])[1] = float("nan")
    seal_slot(scene.shm, 0, 5, shared, own, numbers=(0,))
    scene.write([0])
    assert json.loads(scene.folder.read("__0_account.json"))["finite"] is False


def test_a_buffer_may_hold_infinities_on_purpose(scene):
    own = own_state(0) | {"buffer": torch.full((3,), float("-inf"))}
    seal_slot(scene.shm, 0, 5, shared_state(), own)
    scene.write([0])
    account = json.loads(scene.folder.read("__0_account.json"))
    assert (account["finite"], account["identifier"]) == (True, "aa")


def test_a_step_that_is_not_there_any_more_is_an_error(scene):
    seal_slot(scene.shm, 0, 6, shared_state())
    with pytest.raises(OSError, match="rank 0's snapshot of step 5"):
        scene.write([0])
    assert scene.folder.names() == []


def test_a_slot_that_is_being_written_is_not_read(scene):
    path = seal_slot(scene.shm, 0, 5, shared_state())
    descriptor = os.open(path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        with pytest.raises(OSError, match="not there"):
            scene.write([0])
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("zone", ["layout", "state"])
def test_a_torn_layout_or_state_is_not_written(scene, zone):
    path = seal_slot(scene.shm, 0, 5, shared_state())
    header = parse_header(path.read_bytes())
    assert header is not None
    flip(path, HEADER_SIZE if zone == "layout" else header.state_offset)
    with pytest.raises(OSError, match="torn"):
        scene.write([0])


def test_tensors_that_changed_since_the_sidecar_looked_are_not_written(scene):
    path = seal_slot(scene.shm, 0, 5, shared_state())
    header = note_crc(path)
    assert scene.write([0]).files
    flip(path, header.data_offset + 9)
    with pytest.raises(OSError, match="changed in memory"):
        scene.write([0])


def note_crc(path):
    """As a sidecar does that looked at the tensors; answers the slot's header."""
    header = parse_header(path.read_bytes())
    assert header is not None
    data = path.read_bytes()[header.data_offset : header.data_offset + header.data_size]
    with path.open("r+b") as stream:
        for word, value in ((HeaderWord.DATA_CRC, zlib.crc32(data)), (HeaderWord.CHECKED, 6)):
            stream.seek(int(word) * 8)
            stream.write(struct.pack("<Q", value))
    return header


def flip(path, offset):
    with path.open("r+b") as stream:
        stream.seek(offset)
        byte = stream.read(1)[0]
        stream.seek(offset)
        stream.write(bytes([byte ^ 1]))


def test_one_of_two_ranks_without_its_slot_writes_nothing_at_all(scene):
    seal_slot(scene.shm, 0, 5, shared_state(), world_size=2)
    with pytest.raises(OSError, match="rank 1"):
        scene.write([0, 1])
    assert scene.folder.names() == []


def test_what_reads_back_other_than_it_was_written_is_an_error_and_goes(scene, monkeypatch):
    seal_slot(scene.shm, 0, 5, shared_state())
    whole = LocalFolder.open

    def rots(folder, name):
        if name.endswith(".distcp"):
            (folder.path / name).write_bytes(b"rot")
        return whole(folder, name)

    monkeypatch.setattr(LocalFolder, "open", rots)
    with pytest.raises(OSError, match=r"__0_0\.distcp reads back"):
        scene.write([0])
    assert scene.folder.names() == [MARK]


def test_an_index_is_refused_that_does_not_cover_a_tensor(scene):
    for rank in range(2):
        seal_slot(scene.shm, rank, 5, shared_state(), world_size=2)
    part = scene.write([0, 1])
    text = json.loads(scene.folder.read("__0_written.json"))
    text[0]["whole"][0] += 1
    scene.folder.write("__0_written.json", json.dumps(text).encode())
    with pytest.raises(OSError, match=r"whole tensor|differ"):
        scene.seal(part, world_size=2)
    assert scene.storage.kept() == []


def test_ranks_of_two_attempts_make_no_checkpoint(scene):
    seal_slot(scene.shm, 0, 5, shared_state(), world_size=2)
    seal_slot(scene.shm, 1, 5, shared_state(), world_size=2, attempt=1)
    part = scene.write([0, 1])
    with pytest.raises(OSError, match="attempt"):
        scene.seal(part, world_size=2)


def test_the_same_part_may_be_written_again(scene):
    seal_slot(scene.shm, 0, 5, shared_state())
    assert scene.write([0]).files == replace(scene.write([0])).files


def test_nobody_overwrites_a_slot_while_any_part_is_written(scene):
    paths = [seal_slot(scene.shm, rank, 5, shared_state(), world_size=2) for rank in range(2)]
    refused: list[Path] = []
    told: list[int] = []

    def try_to_take(done, total):
        told.append(done)
        for path in paths:
            descriptor = os.open(path, os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                refused.append(path)
            finally:
                os.close(descriptor)

    scene.answer(WriteParts(scene.order(), [0, 1], str(scene.shm)), try_to_take)
    assert told
    assert len(refused) == 2 * len(told)


def test_a_slot_is_held_before_torch_is_loaded(scene, monkeypatch):
    """On a busy machine that takes seconds, in which the next attempt's ranks want the slot."""
    path = seal_slot(scene.shm, 0, 5, shared_state())
    part = importlib.import_module("holdfast_sidecar.checkpoint.writer.shards")
    refused = []

    class Loading(types.ModuleType):
        def __getattr__(self, name):
            with path.open("r+b") as file, contextlib.suppress(BlockingIOError):
                refused.append(name)
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                refused.pop()
            return getattr(part, name)

    monkeypatch.setitem(sys.modules, part.__name__, Loading(part.__name__))
    assert scene.write([0]).files
    assert "write_parts" in refused


def test_what_the_job_went_back_behind_is_never_written(scene):
    """An attempt that fell before it had loaded leaves its predecessors' slots."""
    seal_slot(scene.shm, 0, 5, shared_state(), attempt=1)
    with pytest.raises(OSError, match="not there any more"):
        scene.write([0], since=2)
    assert scene.write([0], since=1).files


@pytest.fixture
def eight_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))


def test_the_slots_of_a_node_are_written_at_the_same_time(scene, monkeypatch, eight_cores):
    for rank in range(4):
        seal_slot(scene.shm, rank, 5, shared_state(), world_size=4)
    together = threading.Barrier(4, timeout=20)
    create = LocalFolder.create

    def meets_the_others(folder, name):
        if name.endswith("_own.pt"):
            together.wait()
        return create(folder, name)

    monkeypatch.setattr(LocalFolder, "create", meets_the_others)
    part = scene.write(range(4))
    assert {f"__{rank}_own.pt" for rank in range(4)} <= set(part.files)
    scene.seal(part, world_size=4)
    loaded = scene.load()
    assert all(torch.equal(loaded[key], value) for key, value in shared_state().items())


def test_of_a_node_one_of_whose_parts_fails_nothing_stays(scene, monkeypatch, eight_cores):
    for rank in range(2):
        seal_slot(scene.shm, rank, 5, shared_state(), world_size=2)
    together, create = threading.Barrier(2, timeout=20), LocalFolder.create

    def fills_up(folder, name):
        if name.endswith("_own.pt"):
            together.wait()
        if name == "__0_own.pt":
            raise OSError(errno.ENOSPC, "No space left on device")
        return create(folder, name)

    monkeypatch.setattr(LocalFolder, "create", fills_up)
    with pytest.raises(OSError, match="No space left"):
        scene.write([0, 1])
    assert scene.folder.names() == [MARK]


def test_whoever_writes_a_slot_gives_way_like_the_thread_that_was_asked(scene, monkeypatch):
    seal_slot(scene.shm, 0, 5, shared_state())
    priorities = []
    create = LocalFolder.create

    def looks(folder, name):
        priorities.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        return create(folder, name)

    monkeypatch.setattr(LocalFolder, "create", looks)

    def nice():
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 13)
        scene.write([0])

    asked = threading.Thread(target=nice)
    asked.start()
    asked.join()
    assert set(priorities) == {13}


def test_a_tensor_of_one_piece_tells_its_progress_on_the_way(scene):
    seal_slot(scene.shm, 0, 5, {"model/weight": torch.ones(10 << 20)})
    scene.write([0])
    moved = [after - before for (before, _), (after, _) in pairwise(scene.told)]
    assert max(moved) <= 8 << 20


def test_checking_a_slot_counts_as_progress(scene):
    path = seal_slot(scene.shm, 0, 5, shared_state())
    note_crc(path)
    scene.write([0])
    header = parse_header(path.read_bytes())
    assert header is not None
    written = sum(fact.size for fact in scene.write([0]).files.values())
    assert scene.told[0][0] == header.data_size
    assert scene.told[0][1] < header.data_size + 2 * written
