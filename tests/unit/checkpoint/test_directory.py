"""The leader seals only what is whole."""

import dataclasses
import errno
import json
import os
from pathlib import Path

import pytest
from tests.unit.checkpoint.sealed import JOB, fill, seal

from holdfast.contract.checkpoint_files import FolderMark, claim_folder
from holdfast.contract.storage import LocalFolder
from holdfast_sidecar.checkpoint.directory import CheckpointDirectory
from holdfast_sidecar.checkpoint.ledger import NothingResumable, torn_folders
from holdfast_sidecar.checkpoint.manifest import (
    Manifest,
    hash_files,
    list_files,
    verify_hashes,
    write_manifest,
)
from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.records.checkpoint import CheckpointOrder, SavedPart
from holdfast_sidecar.records.plan import Member, Plan

PLAN = Plan(0, 1, "running", [Member("a", "1", 0, 0, 1), Member("b", "2", 1, 1, 1)], 2)


@pytest.fixture
def checkpoints(tmp_path):
    settings = CheckpointSettings(dir=str(tmp_path / "ck"), keep=2)
    return CheckpointDirectory(JOB, settings, clock=iter(range(1000, 2000)).__next__)


def save(checkpoints, tmp_path, step, identifier, ancestors=(), finite=(True, True)):
    """What two ranks leave, and the two nodes' parts."""
    directory = fill(tmp_path / "ck", step, identifier)
    for rank in range(2):
        account = {
            "rank": rank,
            "step": step,
            "world_size": 2,
            "job": JOB,
            "attempt": 0,
            "finite": finite[rank],
            "torch": "2.13.0",
            "ancestors": list(ancestors),
            "position": {"epoch": 1, "taken": 2},
            "random_state": True,
        }
        (directory / f"__{rank}_account.json").write_text(json.dumps(account))
    path = checkpoints.path(step, identifier)
    order = CheckpointOrder(identifier, 0, 1, step, path, "armed", 60.0)
    parts = [
        SavedPart(
            identifier,
            {str(r): "saved"},
            hash_files(LocalFolder(directory), list_files(LocalFolder(directory), [r])),
        )
        for r in range(2)
    ]
    return order, parts


def test_parts_of_all_nodes_make_a_checkpoint(checkpoints, tmp_path):
    order, parts = save(checkpoints, tmp_path, 5, "aa")
    entry = checkpoints.finish(order, PLAN, parts)
    assert (entry.step, entry.verdict, entry.world_size) == (5, "complete", 2)
    assert [c.identifier for c in checkpoints.candidates()] == ["aa"]


def test_a_part_that_is_missing_is_not_sealed(checkpoints, tmp_path):
    order, parts = save(checkpoints, tmp_path, 5, "aa")
    with pytest.raises(OSError, match="rank 1's part is missing"):
        checkpoints.finish(order, PLAN, parts[:1])
    assert checkpoints.candidates() == []


def test_a_rank_that_saved_another_step_is_not_sealed(checkpoints, tmp_path):
    order, parts = save(checkpoints, tmp_path, 5, "aa")
    account = tmp_path / "ck" / order.path.split("/")[-1] / "__1_account.json"
    account.write_text(account.read_text().replace('"step": 5', '"step": 4'))
    with pytest.raises(OSError, match="rank 1's part is missing"):
        checkpoints.finish(order, PLAN, parts)


def test_a_file_cut_since_it_was_hashed_is_not_sealed(checkpoints, tmp_path):
    order, parts = save(checkpoints, tmp_path, 5, "aa")
    (tmp_path / "ck" / order.path.split("/")[-1] / ".metadata").write_bytes(b"")
    with pytest.raises(OSError, match=r"\.metadata: 0 bytes of 8"):
        checkpoints.finish(order, PLAN, parts)


def test_what_a_slower_rank_still_wrote_when_a_node_hashed_is_in_the_manifest(
    checkpoints, tmp_path
):
    order, _ = save(checkpoints, tmp_path, 5, "aa")
    folder = LocalFolder(order.path)
    account = Path(order.path, "__0_account.json")
    told = {"files": ["halves.bin", "renamed.tmp"]}
    account.write_text(json.dumps(json.loads(account.read_text()) | told))
    folder.write("halves.bin", b"half")
    parts = [SavedPart("aa", {"0": "saved"}, hash_files(folder, list_files(folder, [0])))]
    # Rank 1 goes on: by a saver of torch's in a group of its own, and by a function of the user's.
    folder.write("__0_0.distcp", b"named after the rank in the group")
    folder.write("shard-1.pt", b"late")
    folder.write("halves.bin", b"both halves")
    account = Path(order.path, "__1_account.json")
    account.write_text(json.dumps(json.loads(account.read_text()) | {"files": ["shard-1.pt"]}))
    Path(order.path, "of-nobody").write_bytes(b"x")
    parts += [SavedPart("aa", {"1": "saved"}, hash_files(folder, list_files(folder, [1])))]
    told_bytes = []
    checkpoints.finish(order, PLAN, parts, lambda *so_far: told_bytes.append(so_far))
    (kept,) = checkpoints.kept()
    assert kept.manifest.files.keys() == {*folder.names()} - {
        "holdfast.json",
        "manifest.json",
        "of-nobody",
    }
    assert verify_hashes(folder, kept.manifest) == []
    assert told_bytes[-1] == (48, 48)


def test_the_parent_is_the_newest_ancestor_that_was_sealed(checkpoints, tmp_path):
    checkpoints.finish(*_with_plan(save(checkpoints, tmp_path, 5, "aa")))
    save(checkpoints, tmp_path, 7, "torn")
    ancestors = ("torn", "aa")
    entry = checkpoints.finish(*_with_plan(save(checkpoints, tmp_path, 9, "bb", ancestors)))
    assert entry.parent == "aa"


def test_one_rank_with_numbers_that_are_not_finite_spoils_it(checkpoints, tmp_path):
    saved = save(checkpoints, tmp_path, 5, "aa", finite=(True, False))
    checkpoints.finish(*_with_plan(saved))
    with pytest.raises(NothingResumable, match="numbers are not finite"):
        checkpoints.candidates()


def test_tidying_removes_what_is_superfluous(checkpoints, tmp_path):
    line: list[str] = []
    for step in (1, 2, 3, 4):
        identifier = f"s{step}"
        saved = _with_plan(save(checkpoints, tmp_path, step, identifier, tuple(line)))
        checkpoints.tidy(checkpoints.finish(*saved), PLAN)
        line.insert(0, identifier)
    assert [c.step for c in checkpoints.candidates()] == [4, 3]
    assert len(list((tmp_path / "ck").iterdir())) == 2


def test_what_was_not_sealed_when_its_attempt_ended_never_will_be(checkpoints, tmp_path):
    order, parts = save(checkpoints, tmp_path, 5, "aa")
    assert checkpoints.settle(order) is None
    with pytest.raises(OSError, match="another leader gave it up"):
        checkpoints.finish(order, PLAN, parts)
    # Nor does a manifest count that was on its way when this was decided.
    write_manifest(
        LocalFolder(order.path), Manifest("aa", 5, 0, 1, JOB, "", 2, [], {}, "2.13.0", 1.0)
    )
    assert checkpoints.candidates() == []
    assert [f.url for f in torn_folders(str(tmp_path / "ck"))] == [order.path]


def test_what_was_sealed_before_its_attempt_ended_stays(checkpoints, tmp_path):
    order, parts = save(checkpoints, tmp_path, 5, "aa")
    sealed = checkpoints.finish(order, PLAN, parts)
    assert checkpoints.settle(order) == sealed
    assert [c.identifier for c in checkpoints.candidates()] == ["aa"]


def test_an_order_that_no_rank_wrote_for_leaves_nothing_behind(checkpoints, tmp_path):
    path = checkpoints.path(5, "aa")
    assert checkpoints.settle(CheckpointOrder("aa", 0, 1, 5, path, "armed", 60.0)) is None
    assert not Path(path).exists()


def test_a_rank_that_comes_after_the_order_was_given_up_finds_it_void(checkpoints, tmp_path):
    (tmp_path / "ck").mkdir()
    path = checkpoints.path(5, "aa")
    order = CheckpointOrder("aa", 0, 1, 5, path, "armed", 60.0)
    assert checkpoints.settle(order) is None
    folder = LocalFolder(path)
    with pytest.raises(OSError, match="given up before it was written"):
        claim_folder(folder, FolderMark(JOB, 0, 5, "aa"))
    # Nor does it help one that had claimed it before; or a leader that was deposed, to seal it.
    (folder.path / "__0_own.pt").write_bytes(b"late")
    write_manifest(folder, Manifest("aa", 5, 0, 1, JOB, "", 2, [], {}, "2.13.0", 1.0))
    assert checkpoints.settle(order) is None
    assert checkpoints.candidates() == []
    sealed = checkpoints.finish(*_with_plan(save(checkpoints, tmp_path, 6, "bb")))
    checkpoints.tidy(sealed, dataclasses.replace(PLAN, attempt=1))
    assert not folder.path.exists()


def test_what_can_not_be_given_up_on_a_disk_that_takes_nothing_keeps_nobody_waiting(
    checkpoints, tmp_path, monkeypatch
):
    (tmp_path / "ck").mkdir()

    def is_full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(LocalFolder, "create", is_full)
    path = checkpoints.path(5, "aa")
    assert checkpoints.settle(CheckpointOrder("aa", 0, 1, 5, path, "armed", 60.0)) is None


def test_a_checkpoint_is_poisoned_after_failing_in_enough_attempts(checkpoints, tmp_path):
    checkpoints.finish(*_with_plan(save(checkpoints, tmp_path, 5, "aa")))
    assert checkpoints.failed_to_load("aa", 1) is None
    assert checkpoints.failed_to_load("aa", 1) is None
    poisoned = checkpoints.failed_to_load("aa", 2)
    assert poisoned is not None
    assert poisoned.verdict == "poisoned"
    with pytest.raises(NothingResumable, match="could not be loaded"):
        checkpoints.candidates()


def test_without_a_directory_nothing_is_saved_or_found():
    nowhere = CheckpointDirectory(JOB, CheckpointSettings())
    assert nowhere.path(5, "aa") == ""
    assert nowhere.candidates() == []


def test_with_a_key_only_what_was_sealed_with_it_is_a_candidate(checkpoints, tmp_path):
    checkpoints.finish(*_with_plan(save(checkpoints, tmp_path, 5, "aa")))
    key = tmp_path / "key"
    key.write_text("secret\n")
    settings = CheckpointSettings(dir=str(tmp_path / "ck"), key_file=str(key))
    keyed = CheckpointDirectory(JOB, settings)
    with pytest.raises(NothingResumable, match="not sealed with this job's key"):
        keyed.candidates()
    keyed.finish(*_with_plan(save(keyed, tmp_path, 6, "bb")))
    assert [c.step for c in keyed.candidates()] == [6]


def test_checkpoints_that_are_all_of_no_use_are_told_in_one_line(checkpoints, tmp_path):
    root = tmp_path / "ck"
    (seal(root, 3, "aa") / "poisoned-1.json").write_text("{}")
    seal(root, 4, "bb", job="other")
    seal(root, 5, "cc", schema=99)
    with pytest.raises(NothingResumable) as told:
        checkpoints.candidates()
    assert str(told.value) == (
        f"step-00000005-cc in {root} can't be resumed from (schema 99; this version reads 2), nor"
        " can 1 older: mend it (checkpoint.key_file?), or move the directory away to start from"
        " nothing"
    )


def test_what_is_torn_or_of_another_job_lets_a_job_begin(checkpoints, tmp_path):
    fill(tmp_path / "ck", 3, "aa")
    seal(tmp_path / "ck", 4, "bb", job="other")
    assert checkpoints.candidates() == []


def test_storage_that_is_not_mounted_is_not_taken_for_a_new_job(tmp_path):
    settings = CheckpointSettings(dir=str(tmp_path / "mount" / "ck"))
    unmounted = CheckpointDirectory(JOB, settings)
    with pytest.raises(FileNotFoundError):
        unmounted.candidates()
    (tmp_path / "mount").mkdir()
    assert unmounted.candidates() == []


def _with_plan(saved):
    order, parts = saved
    return order, PLAN, parts


def test_a_verdict_is_written_and_comes_back_as_the_ledgers_entry(checkpoints, tmp_path):
    seal(tmp_path / "ck", 3, "aa")
    assert checkpoints.give_verdict("aa", "good", "it ran on").verdict == "good"
    assert checkpoints.entries()[0].verdict == "good"
    assert checkpoints.give_verdict("aa", "poisoned", "it led nowhere").verdict == "poisoned"
    assert not checkpoints.kept()[0].may_be_resumed
    assert checkpoints.give_verdict("gone", "good", "it ran on") is None
