"""Before anything is loaded every byte is checked: once by all who see it, else on each node."""

import hashlib
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.distributed import HashStore

from holdfast.contract import page
from holdfast.contract.checkpoint_files import (
    MANIFEST,
    PromisedFile,
    check_file,
    seal,
    share_checks,
)
from holdfast.contract.storage import LocalFolder, sight_of
from holdfast.recording.placement import Placement
from holdfast.recording.recorder import Recorder
from holdfast.state import resuming
from holdfast.state.data_position import Position
from holdfast.state.registered import register
from holdfast.state.resuming import Candidate, ResumeFailed, resume
from holdfast.state.saving import Mark, Savable, write_checkpoint

pytestmark = pytest.mark.torch

MAY_BE_CHECKED_TWICE = {".metadata", "__0_own.pt"}
"""By whom it falls to, and by who will load it."""


def savable():
    return Savable(register({"model": torch.nn.Linear(2, 1)}))


class Scene:
    """One checkpoint, and two nodes with a rank each."""

    def __init__(self, tmp_path, monkeypatch):
        self.path = tmp_path / "step-9"
        self.checked: dict[str, list[str]] = {}
        self.errors = {}
        folder = LocalFolder(self.path)
        write_checkpoint(folder, savable(), Mark("job", 0, 9, "9", (), Position(0, 0)), Placement())
        files = {
            name: {
                "size": folder.size(name),
                "sha256": hashlib.sha256(folder.read(name)).hexdigest(),
            }
            for name in folder.names()
        }
        self.names = set(files)
        folder.write(MANIFEST, seal({"files": files}))

        def noted(folder, file):
            self.checked.setdefault(threading.current_thread().name, []).append(file.name)
            check_file(folder, file)

        monkeypatch.setattr(resuming, "check_file", noted)
        monkeypatch.setattr(resuming, "VOTE_TIMEOUT_S", 30.0)

    def resume(self, *paths):
        """Each rank's start step, or None where it refused; `paths`: what each node sees."""
        self.checked, store = {}, HashStore()
        found: dict[int, int | None] = {}

        def go(rank, path):
            place = Placement(rank, len(paths), 0, 1, store)
            recorder = Recorder(bytearray(page.PAGE_SIZE), 0)
            try:
                resumed = resume([Candidate("9", str(path), 9)], savable(), place, recorder)
                assert resumed is not None
                found[rank] = resumed.loaded.step
            except ResumeFailed:
                found[rank] = None

        ranks = [
            threading.Thread(target=go, args=each, name=str(each[0])) for each in enumerate(paths)
        ]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join(60)
        return [found[rank] for rank in range(len(paths))]


@pytest.fixture
def scene(tmp_path, monkeypatch):
    return Scene(tmp_path, monkeypatch)


def test_nodes_that_see_the_same_storage_check_each_file_once(scene):
    assert scene.resume(scene.path, scene.path) == [9, 9]
    first, second = map(set, scene.checked.values())
    assert first | second == scene.names
    assert first & second <= MAY_BE_CHECKED_TWICE


def test_a_damaged_file_is_refused_by_the_ranks_that_did_not_check_it_too(scene):
    scene.resume(scene.path, scene.path)
    for name in scene.names - MAY_BE_CHECKED_TWICE:
        whole = (scene.path / name).read_bytes()
        (scene.path / name).write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
        assert scene.resume(scene.path, scene.path) == [None, None], name
        assert sum(name in files for files in scene.checked.values()) == 1
        (scene.path / name).write_bytes(whole)


def test_nodes_that_have_copies_of_their_own_check_all_of_theirs(scene, tmp_path):
    copy = tmp_path / "of the other node" / "step-9"
    shutil.copytree(scene.path, copy)
    assert scene.resume(scene.path, copy) == [9, 9]
    assert [set(files) for files in scene.checked.values()] == [scene.names] * 2
    for name in scene.names:
        whole = (copy / name).read_bytes()
        (copy / name).write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
        assert scene.resume(scene.path, copy) == [None, None], name
        (copy / name).write_bytes(whole)


def test_a_node_that_does_not_see_the_checkpoint_refuses_for_all_at_once(scene, tmp_path):
    assert scene.resume(scene.path, tmp_path / "nothing") == [None, None]


def test_a_copy_is_told_from_the_original_even_with_its_times(scene, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(scene.path, copy, copy_function=shutil.copy2)
    sights = {sight_of(LocalFolder(path), MANIFEST) for path in (scene.path, copy)}
    assert len(sights) == 2
    assert sight_of(LocalFolder(scene.path), MANIFEST) in sights


@pytest.mark.parametrize(
    ("url", "is_known"),
    [
        ("s3://b/step-9", True),
        ("local:///ck/step-9", False),
        ("memory://step-9", False),
        ("simplecache::s3://b/step-9", False),
    ],
)
def test_a_bucket_is_the_same_for_all_and_a_cache_or_a_local_driver_is_not(url, is_known):
    folder = SimpleNamespace(url=url)
    assert sight_of(folder, MANIFEST) == (url if is_known else "")


def test_the_image_of_a_disk_on_another_machine_is_another_storage(scene, monkeypatch, tmp_path):
    class Disk:
        st_ino = st_size = st_mtime_ns = st_ctime_ns = 7
        st_dev = 0x10301

    sights = set()
    monkeypatch.setattr(Path, "stat", lambda path: Disk)
    for boot in ("one", "other"):
        (tmp_path / boot).write_text(boot)
        monkeypatch.setattr("holdfast.contract.storage.BOOT_ID", tmp_path / boot)
        sights.add(sight_of(LocalFolder(scene.path), MANIFEST))
    assert len(sights) == 2


def promised(**sizes):
    return [PromisedFile(name, size, "") for name, size in sizes.items()]


def shares(files, ranks):
    return [{f.name for f in share_checks(files, rank, ranks)} for rank in ranks]


def test_a_rank_checks_what_it_wrote_and_will_load():
    files = promised(__0_0=100, __1_0=101, __2_0=99, __0_own=1, __1_own=1, __2_own=1)
    found = shares(files, range(3))
    assert all(f"__{rank}_0" in found[rank] for rank in range(3))
    assert set.union(*found) == {file.name for file in files}
    assert sum(map(len, found)) == len(files)


def test_what_one_rank_wrote_for_all_is_shared_by_all():
    files = promised(**{f"__0_{n}": 10 for n in range(8)}, **{f"model-{n}": 10 for n in range(8)})
    found = shares(files, range(4))
    assert [len(share) for share in found] == [4] * 4
    assert set.union(*found) == {file.name for file in files}


def test_ranks_of_a_node_with_its_own_storage_check_also_what_others_wrote():
    files = promised(__0_0=10, __1_0=10, __2_0=10, __3_0=10)
    first, second = shares(files, range(2, 4))
    assert "__2_0" in first
    assert "__3_0" in second
    assert first | second == {file.name for file in files}


def test_thousands_of_ranks_share_their_files_quickly():
    files = promised(**{f"__{n}_{kind}": 9 for n in range(3000) for kind in ("0", "own")})
    assert len(share_checks(files, 7, range(4000))) in (2, 3)
