"""Ranks die while saving, files rot, one rank can't load: nobody hangs, nothing torn is chosen."""

import dataclasses
import pickle
import shutil

import pytest
from tests.integration.checkpoints.ranks import directory, seal

from holdfast.contract.page import checkpoint_name
from holdfast.contract.storage import LocalFolder
from holdfast_sidecar.checkpoint.manifest import read_manifest, write_manifest

pytestmark = pytest.mark.torch


def order(step, seen_at=1, identifier="aa", **fields):
    at = seen_at if isinstance(seen_at, dict) else {"all": seen_at}
    return {"identifier": identifier, "step": step, "seen_at": at, **fields}


@pytest.fixture(scope="module")
def saved(run_ranks, tmp_path_factory):
    """Checkpoints at steps 3 and 6 of two ranks, to be copied and spoilt."""
    root = tmp_path_factory.mktemp("saved")
    ends = run_ranks(2, root, {"until": 7, "orders": [order(3, 0, "aa"), order(6, 3, "bb")]})
    assert [end.exit_code for end in ends] == [0, 0], ends[0].log
    seal(root, 3, "aa", 2)
    seal(root, 6, "bb", 2)
    return root


@pytest.fixture
def root(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "checkpoints")


def resume(run_ranks, root, **config):
    # Paths in the copy; the ledger is read anew from it.
    return run_ranks(2, root, {"until": 7, **config}, resume=directory(root).candidates())


@pytest.mark.parametrize(("rank", "dies"), [(0, 1), (1, 1), (0, 2), (1, "in torch")])
def test_a_rank_killed_in_the_middle_of_saving_leaves_nothing_to_resume_from(
    run_ranks, tmp_path, dies, rank
):
    config = {"until": 6, "orders": [order(3, deadline_s=3)], "dies": dies, "dies_on": rank}
    ends = run_ranks(2, tmp_path, config, timeout_s=30)
    assert ends[rank].exit_code == -9
    assert ends[1 - rank].said == {}  # its gradients found no peer any more
    torn = tmp_path / checkpoint_name(3, "aa")
    assert torn.is_dir()
    assert directory(tmp_path).candidates() == []
    if dies == 1:  # before any of its files was whole
        with pytest.raises(OSError, match="missing"):
            seal(tmp_path, 3, "aa", 2)


def test_a_rank_that_can_not_write_its_own_part_keeps_no_other_waiting(run_ranks, tmp_path):
    torn = tmp_path / checkpoint_name(3, "aa")
    (torn / "__1_own.pt").mkdir(parents=True)  # where its file would be
    ends = run_ranks(
        2, tmp_path, {"until": 6, "orders": [order(3), order(5, 4, "bb")]}, timeout_s=30
    )
    for end in ends:
        assert end.states == ["armed", "saving", "failed", "armed", "saving", "saved"], end.log
        assert end.said["steps"] == [0, 1, 2, 3, 4, 5]
    assert not (torn / ".metadata").exists()


@pytest.mark.parametrize("name", ["__0_0.distcp", "__1_own.pt", ".metadata"])
def test_a_flipped_byte_is_walked_back_from_by_all_ranks(run_ranks, root, name):
    path = root / checkpoint_name(6, "bb") / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    for end in resume(run_ranks, root):
        assert end.said["start"] == 3, end.log
        assert end.said["word_failures"] == 1
    assert len(directory(root).candidates()) == 2  # sizes fit: only reading finds it


@pytest.mark.parametrize("spoil", ["cut", "remove"])
def test_a_file_cut_or_lost_after_the_choice_is_walked_back_from(run_ranks, root, spoil):
    found = directory(root).candidates()
    path = root / checkpoint_name(6, "bb") / "__1_0.distcp"
    path.write_bytes(path.read_bytes()[:100]) if spoil == "cut" else path.unlink()
    assert [c.step for c in directory(root).candidates()] == [3]
    for end in run_ranks(2, root, {"until": 7}, resume=found):
        assert end.said["start"] == 3, end.log
        assert end.said["word_failures"] == 1


def test_nothing_of_a_damaged_checkpoint_is_unpickled(run_ranks, root):
    path = root / checkpoint_name(6, "bb") / "__0_own.pt"

    class Bomb:
        def __reduce__(self):
            return (open, (str(root / "went off"), "w"))

    path.write_bytes(pickle.dumps(Bomb()))
    for end in resume(run_ranks, root):
        assert end.said["start"] == 3
    assert not (root / "went off").exists()


@pytest.mark.parametrize("name", ["__2_own.pt", ".metadata"])
def test_nothing_that_the_manifest_does_not_promise_is_unpickled(run_ranks, root, name):
    class Bomb:
        def __reduce__(self):
            return (open, (str(root / "went off"), "w"))

    path = root / checkpoint_name(6, "bb")
    manifest = read_manifest(LocalFolder(path))
    promised = {key: fact for key, fact in manifest.files.items() if key != name}
    write_manifest(LocalFolder(path), dataclasses.replace(manifest, files=promised))
    (path / name).write_bytes(pickle.dumps(Bomb()))
    found = directory(root).candidates()
    assert [c.step for c in found] == [6, 3]
    for end in run_ranks(3, root, {"until": 7}, resume=found):
        assert end.said["start"] == 3, end.log
    assert not (root / "went off").exists()


def test_when_nothing_loads_training_does_not_start_from_zero(run_ranks, root):
    for path in root.glob("*/__1_own.pt"):
        path.write_bytes(b"x" * path.stat().st_size)
    for end in resume(run_ranks, root):
        assert end.exit_code != 0
        assert "none of the checkpoints could be loaded" in end.log
        assert end.said == {}


def test_one_rank_that_can_not_load_takes_the_others_back_with_it(run_ranks, tmp_path):
    config = {"functions": True, "until": 7}
    run_ranks(2, tmp_path, {**config, "orders": [order(3, 0, "aa"), order(6, 3, "bb")]})
    seal(tmp_path, 3, "aa", 2)
    seal(tmp_path, 6, "bb", 2)
    found = directory(tmp_path).candidates()
    ends = run_ranks(2, tmp_path, config, found, per_rank={1: {"cannot_load": [6]}})
    assert [end.said["start"] for end in ends] == [3, 3]
    assert [end.said["word_failures"] for end in ends] == [1, 1]
    ends = run_ranks(2, tmp_path, config, found, per_rank={1: {"cannot_load": [3, 6]}})
    assert ["none of the checkpoints" in end.log for end in ends] == [True, True]


def test_an_order_that_one_rank_sees_too_late_is_void_on_all_at_once(run_ranks, tmp_path):
    late = order(4, {"0": 1, "1": 4}, deadline_s=60)
    first, second = run_ranks(2, tmp_path, {"until": 6, "orders": [late], "model": "own"})
    assert first.states == ["armed", "void"]
    assert second.states == ["missed"]
    assert abs(first.said["replies"][-1][2] - second.said["replies"][-1][2]) < 5
    assert list(tmp_path.iterdir()) == []


def test_an_order_that_one_rank_never_sees_is_void_at_the_deadline(run_ranks, tmp_path):
    unseen = order(3, {"0": 1}, deadline_s=0.5)
    first, second = run_ranks(2, tmp_path, {"until": 5, "orders": [unseen], "model": "own"})
    assert first.states == ["armed", "void"]
    assert second.states == []
    assert [end.said["steps"][-1] for end in (first, second)] == [4, 4]


def test_finishing_before_the_step_makes_it_void_on_all(run_ranks, tmp_path):
    ends = run_ranks(2, tmp_path, {"until": 3, "orders": [order(9, deadline_s=60)]})
    assert [end.states for end in ends] == [["armed", "left"]] * 2


def test_a_stop_ends_the_loop_at_its_step(run_ranks, tmp_path):
    stop = order(4, kind="STOP")
    for end in run_ranks(2, tmp_path, {"until": 50, "orders": [stop]}):
        assert end.said["steps"] == [0, 1, 2, 3]
