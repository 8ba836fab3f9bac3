"""Nothing in checkpoint.dir is removed, overwritten or written into that Holdfast did not make."""

import contextlib
import os
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.checkpoint.sealed import JOB, fill, seal

from holdfast.contract.checkpoint_files import MARK, FolderMark, claim_folder, mark_of
from holdfast.contract.storage import LocalFolder, NotOurs, open_folder
from holdfast.recording.placement import Placement
from holdfast.state.data_position import Position
from holdfast.state.saving import Mark, Savable, write_checkpoint
from holdfast_sidecar.checkpoint.directory import CheckpointDirectory
from holdfast_sidecar.checkpoint.ledger import (
    other_owners,
    read_ledger,
    reasons_against,
    recorded_files,
    remove,
    torn_folders,
    untouched,
)
from holdfast_sidecar.checkpoint.manifest import hash_files, list_files
from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.records.checkpoint import CheckpointOrder, SavedPart
from holdfast_sidecar.records.plan import Member, Plan

STRANGER = 65534
PLAN = Plan(3, 1, "running", [Member("a", "1", 0, 0, 1)], 1)
FOREIGN = ("step-1000", "step-00001000", "step-500-final", "step-00001000-final", "lightning_logs")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user: needs root")


@pytest.fixture
def checkpoints(tmp_path):
    return CheckpointDirectory(JOB, CheckpointSettings(dir=str(tmp_path / "ck"), keep=1))


def left_for_days(directory):
    old = time.time() - 3 * 24 * 3600
    for path in (*directory.rglob("*"), directory):
        os.utime(path, (old, old), follow_symlinks=False)


def foreign(root, name):
    """A checkpoint as torchtitan, litgpt and hand-written loops leave it."""
    directory = root / name
    directory.mkdir(parents=True)
    for file in (".metadata", "__0_0.distcp", "model.pt"):
        (directory / file).write_bytes(b"precious")
    left_for_days(directory)
    return directory


def tidy(checkpoints):
    checkpoints.tidy(checkpoints.entries()[0], PLAN)


def names(root):
    return sorted(path.name for path in root.iterdir())


def test_folders_of_others_survive_for_ever_and_are_named(checkpoints, tmp_path):
    root = tmp_path / "ck"
    for name in FOREIGN:
        foreign(root, name)
    seal(root, 10, "aa")
    seal(root, 20, "bb", parent="aa")
    tidy(checkpoints)
    assert names(root) == sorted([*FOREIGN, "step-00000020-bb"])
    assert all(len(list((root / name).iterdir())) == 3 for name in FOREIGN)
    assert untouched(str(root)).foreign == sorted(FOREIGN)


def test_a_folder_of_ours_stays_whole_once_someone_else_put_a_file_into_it(checkpoints, tmp_path):
    root = tmp_path / "ck"
    kept = seal(root, 10, "aa")
    (kept / "notes").mkdir()
    (kept / "notes" / "best.txt").write_text("the one for the paper")
    before = sorted(kept.rglob("*"))
    seal(root, 20, "bb", parent="aa")
    tidy(checkpoints)
    assert sorted(kept.rglob("*")) == before


def test_what_an_older_holdfast_saved_is_named_and_resumed_from_and_never_removed(
    checkpoints, tmp_path
):
    root = tmp_path / "ck"
    for step in (10, 20):
        (seal(root, step, f"s{step}") / "holdfast.json").unlink()
    torn = fill(root, 15, "torn")
    (torn / "holdfast.json").unlink()
    left_for_days(torn)
    assert [c.step for c in checkpoints.candidates()] == [20]
    seal(root, 30, "new", parent="s20")
    tidy(checkpoints)
    assert len(names(root)) == 4
    assert untouched(str(root)).older == ["step-00000010-s10", "step-00000020-s20"]


def test_a_copy_of_the_mark_is_no_licence_for_another_folder(checkpoints, tmp_path):
    root = tmp_path / "ck"
    mark = (seal(root, 10, "aa") / "holdfast.json").read_bytes()
    for name in ("step-1000", "step-00000010-copy"):
        (foreign(root, name) / "holdfast.json").write_bytes(mark)
        left_for_days(root / name)
    seal(root, 20, "bb", parent="aa")
    tidy(checkpoints)
    assert names(root) == ["step-00000010-copy", "step-00000020-bb", "step-1000"]


def test_links_are_followed_by_no_removal(checkpoints, tmp_path):
    root, elsewhere = tmp_path / "ck", tmp_path / "elsewhere"
    real = seal(elsewhere, 10, "aa")
    root.mkdir()
    (root / real.name).symlink_to(real)
    linked = seal(root, 15, "ab")
    precious = foreign(tmp_path, "precious")
    (linked / "deep").symlink_to(precious)
    seal(root, 20, "bb", parent="aa")
    tidy(checkpoints)
    assert len(list(real.iterdir())) == 5
    assert len(list(precious.iterdir())) == 3


def test_a_folder_that_is_not_ours_is_not_written_into(tmp_path):
    directory = foreign(tmp_path, "step-00000005-aa")
    savable = Savable(save=lambda path, step: None, load=lambda path, step: None)
    mark = Mark(JOB, 0, 5, "aa", (), Position(0, 0))
    with pytest.raises(NotOurs, match="was not made for this checkpoint"):
        write_checkpoint(LocalFolder(directory), savable, mark, Placement())
    assert names(directory) == [".metadata", "__0_0.distcp", "model.pt"]
    other = FolderMark("other", 0, 5, "aa")
    claim_folder(LocalFolder(tmp_path / "step-00000005-bb"), other)
    with pytest.raises(NotOurs):
        claim_folder(LocalFolder(tmp_path / "step-00000005-bb"), FolderMark(JOB, 0, 5, "aa"))


def test_every_rank_may_mark_the_same_folder(tmp_path):
    mark = FolderMark(JOB, 0, 5, "aa")
    for _ in range(2):
        claim_folder(open_folder(str(tmp_path / "step-00000005-aa")), mark)
    assert names(tmp_path / "step-00000005-aa") == ["holdfast.json"]


def test_an_order_whose_folder_is_someone_elses_leaves_no_word_in_it(checkpoints, tmp_path):
    directory = foreign(tmp_path / "ck", "step-00000005-aa")
    order = CheckpointOrder("aa", 0, 1, 5, str(directory), "armed", 60.0)
    assert checkpoints.settle(order) is None
    assert names(directory) == [".metadata", "__0_0.distcp", "model.pt"]


def save_by_function(checkpoints, step, identifier, ancestors=()):
    """A checkpoint of a user's own function, saved, hashed and sealed."""

    def save(path, step):
        folder = open_folder(path)
        folder.write("weights.pt", b"x")
        folder.write(f"deep/er/{step}.pt", b"x")

    folder = open_folder(checkpoints.path(step, identifier))
    mark = Mark(JOB, 0, step, identifier, ancestors, Position(0, 0))
    write_checkpoint(folder, Savable(save=save, load=save), mark, Placement())
    files = hash_files(folder, list_files(folder, [0]))
    order = CheckpointOrder(identifier, 0, 1, step, folder.url, "armed", 60.0)
    return order, [SavedPart(identifier, {"0": "saved"}, files)]


def test_what_a_users_function_wrote_goes_with_its_checkpoint(checkpoints, tmp_path):
    for step, identifier in ((5, "aa"), (6, "bb")):
        order, parts = save_by_function(checkpoints, step, identifier, ("aa",))
        checkpoints.finish(order, PLAN, parts)
        assert f"deep/er/{step}.pt" in checkpoints.kept()[0].manifest.files
    tidy(checkpoints)
    assert names(tmp_path / "ck") == ["step-00000006-bb"]


def test_a_file_put_beside_what_a_users_function_wrote_keeps_all_of_it(checkpoints, tmp_path):
    order, _ = save_by_function(checkpoints, 5, "aa")
    (tmp_path / "ck" / "step-00000005-aa" / "mine.txt").write_text("not written by save()")
    folder = LocalFolder(order.path)
    part = SavedPart("aa", {"0": "saved"}, hash_files(folder, list_files(folder, [0])))
    checkpoints.finish(order, PLAN, [part])
    assert "mine.txt" not in checkpoints.kept()[0].manifest.files
    order, parts = save_by_function(checkpoints, 6, "bb", ("aa",))
    checkpoints.finish(order, PLAN, parts)
    tidy(checkpoints)
    assert names(tmp_path / "ck") == ["step-00000005-aa", "step-00000006-bb"]
    assert len(folder.names()) == 7


def test_what_a_function_that_was_killed_left_goes_where_its_names_are_known(checkpoints, tmp_path):
    torn = fill(tmp_path / "ck", 4, "torn")
    (torn / "weights.pt").write_bytes(b"half")
    odd = fill(tmp_path / "ck", 3, "odd")
    (odd / "never-seen-before").write_bytes(b"half")
    order, parts = save_by_function(checkpoints, 5, "aa")
    checkpoints.finish(order, PLAN, parts)
    tidy(checkpoints)
    assert names(tmp_path / "ck") == ["step-00000003-odd", "step-00000005-aa"]


@contextlib.contextmanager
def as_another_user():
    os.seteuid(STRANGER - 1)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def shared():
    """A directory of checkpoints into which every user may look, and write."""
    with tempfile.TemporaryDirectory() as above:
        Path(above).chmod(0o755)
        root = Path(above) / "ck"
        root.mkdir()
        root.chmod(0o1777)
        yield root


@needs_root
def test_what_nobody_may_look_into_is_named_and_hides_no_other(shared):
    with as_another_user():
        seal(shared, 10, "aa")
    for name in ("lost+found", "private", "step-00000005-private"):
        (shared / name).mkdir(mode=0o700)
    foreign(shared, "best")
    with as_another_user():
        found = untouched(str(shared))
    assert found.foreign == ["best", "lost+found", "private", "step-00000005-private"]
    assert found.older == []


@needs_root
@pytest.mark.parametrize("closed", ["", ".", "manifest.json"])
def test_a_folder_that_another_user_keeps_to_himself_hides_no_checkpoint_of_ours(
    shared, caplog, closed
):
    with as_another_user():
        seal(shared, 10, "aa")
        torn = fill(shared, 5, "torn")
    his = seal(shared, 20, "his") if closed != "" else shared / "step-00000020-his"
    his.mkdir(exist_ok=True)
    give_away(his)
    (his / closed).chmod(0o700)
    checkpoints = CheckpointDirectory(JOB, CheckpointSettings(dir=str(shared)))
    with as_another_user():
        assert [c.identifier for c in checkpoints.candidates()] == ["aa"]
        told = [line for line in caplog.messages if "step-00000020-his is passed over" in line]
        assert len(told) == 1
        assert [folder.url for folder in torn_folders(str(shared))] == [str(torn)]
        assert other_owners(str(shared), JOB) == []
        assert reasons_against(str(shared), [], JOB, None) == {}


@needs_root
def test_a_folder_of_our_own_that_can_t_be_read_is_not_nothing(shared):
    with as_another_user():
        seal(shared, 10, "aa").chmod(0)
        with pytest.raises(PermissionError):
            read_ledger(str(shared), JOB)


@needs_root
def test_a_strangers_manifest_neither_is_loaded_nor_has_honest_ones_removed(checkpoints, tmp_path):
    root = tmp_path / "ck"
    seal(root, 10, "honest")
    root.chmod(0o1777)
    for identifier in ("forged", "forged-too"):
        give_away(seal(root, 1, identifier, attempt=2**60))
    assert [c.identifier for c in checkpoints.candidates()] == ["honest"]
    tidy(checkpoints)
    assert len(names(root)) == 3
    seal(root, 20, "next", parent="honest", attempt=1)
    tidy(checkpoints)
    assert [c.identifier for c in checkpoints.candidates()] == ["next"]


@needs_root
def test_a_file_of_another_user_keeps_a_folder_of_ours(checkpoints, tmp_path):
    root = tmp_path / "ck"
    kept = seal(root, 10, "aa")
    os.chown(kept / "__0_own.pt", STRANGER, STRANGER)
    seal(root, 20, "bb", parent="aa")
    tidy(checkpoints)
    assert len(list(kept.iterdir())) == 5


@needs_root
def test_checkpoints_of_a_colleague_are_resumed_from_in_his_directory_and_not_removed(
    checkpoints, tmp_path
):
    root = tmp_path / "ck"
    his = seal(root, 10, "his")
    give_away(his)
    os.chown(root, STRANGER, STRANGER)
    assert [c.identifier for c in checkpoints.candidates()] == ["his"]
    seal(root, 20, "ours", parent="his")
    tidy(checkpoints)
    assert len(names(root)) == 2


def test_a_copy_under_another_name_does_not_take_the_honest_ones_place(checkpoints, tmp_path):
    honest = seal(tmp_path / "ck", 10, "aa")
    (tmp_path / "ck" / "step-00000099-zz").mkdir()
    for path in honest.iterdir():
        (tmp_path / "ck" / "step-00000099-zz" / path.name).write_bytes(path.read_bytes())
    assert [c.path for c in checkpoints.candidates()] == [str(honest)]


def give_away(directory):
    for path in (*directory.rglob("*"), directory):
        os.chown(path, STRANGER, STRANGER, follow_symlinks=False)


@pytest.mark.parametrize("held", ["weights.pt", "deep/er/5.pt", "__0_account.json", MARK])
def test_what_nfs_keeps_for_a_reader_keeps_its_mark_and_goes_later(
    checkpoints, tmp_path, monkeypatch, held
):
    order, parts = save_by_function(checkpoints, 5, "aa")
    checkpoints.finish(order, PLAN, parts)
    folder, really = LocalFolder(order.path), os.unlink

    def rename_what_is_open(name, *, dir_fd=None):
        if name != held.rpartition("/")[2]:
            really(name, dir_fd=dir_fd)
        else:
            os.rename(name, ".nfs000000000000002a00000001", src_dir_fd=dir_fd, dst_dir_fd=dir_fd)

    recorded = recorded_files(checkpoints.kept())
    monkeypatch.setattr(os, "unlink", rename_what_is_open)
    assert remove([folder], JOB, recorded) == []
    monkeypatch.undo()
    (left,) = folder.path.rglob(".nfs*")
    assert mark_of(folder) == FolderMark(JOB, 0, 5, "aa")
    assert [each.url for each in torn_folders(str(tmp_path / "ck"))] == [folder.url]
    assert remove([folder], JOB, recorded) == []  # it is still being read
    left.unlink()
    assert remove([folder], JOB, recorded) == [folder]
    assert not folder.path.exists()


@pytest.mark.parametrize("text", ["{}", "", "not JSON", '{"schema": 9}'])
def test_a_foreign_folder_with_a_name_and_a_manifest_like_ours_keeps_no_job_from_starting(
    tmp_path: Path, text: str
) -> None:
    foreign = tmp_path / "step-00000010-abc"
    foreign.mkdir()
    (foreign / "manifest.json").write_text(text)
    (foreign / ".metadata").write_bytes(b"torch's")
    assert reasons_against(str(tmp_path), [], JOB, None) == {}
    seal(tmp_path, 20, "torn")
    torn = tmp_path / "step-00000020-torn"
    (torn / "manifest.json").write_text(text)
    assert list(reasons_against(str(tmp_path), [], JOB, None)) == [torn.name]
    (torn / "holdfast.json").unlink()  # as of an older Holdfast, which wrote no mark
    (torn / "__0_account.json").write_text("{}")
    assert list(reasons_against(str(tmp_path), [], JOB, None)) == [torn.name]


def _as_a_pipe(path: Path) -> None:
    os.mkfifo(path)


def _as_a_socket(path: Path) -> None:
    # From inside, for a whole path is often too long for a socket.
    with contextlib.chdir(path.parent), contextlib.closing(socket.socket(socket.AF_UNIX)) as made:
        made.bind(path.name)


def _as_a_link_out(path: Path) -> None:
    outside = path.parents[1] / "elsewhere.json"
    outside.write_text('{"job": "other"}')
    path.symlink_to(outside)


def _as_a_link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def _as_a_link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _as_deep_nonsense(path: Path) -> None:
    path.write_text("[" * 100_000)


ODD_FILES = (
    Path.mkdir,
    _as_a_pipe,
    _as_a_socket,
    _as_a_link_out,
    _as_a_link_to_itself,
    _as_a_link_to_a_device,
    _as_deep_nonsense,
)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ["manifest.json", MARK, "void.json", "good-1.json"])
@pytest.mark.parametrize("make", ODD_FILES)
def test_nothing_that_lies_in_a_foreign_folder_keeps_a_job_from_starting(
    checkpoints: CheckpointDirectory, tmp_path: Path, make: Callable[[Path], None], name: str
) -> None:
    """A stranger's pipe of that name was waited for, for ever."""
    seal(tmp_path / "ck", 10, "aa")
    foreign = tmp_path / "ck" / "step-00000100-abcd1234"
    foreign.mkdir()
    make(foreign / name)
    before = sorted(foreign.iterdir())
    assert [one.identifier for one in checkpoints.candidates()] == ["aa"]
    assert [one.identifier for one in checkpoints.entries()] == ["aa"]
    root = str(tmp_path / "ck")
    assert reasons_against(root, read_ledger(root, JOB, None), JOB, None) == {
        "step-00000010-aa": "it is on an abandoned branch"
    }
    assert other_owners(root, "a third") == [JOB]
    assert untouched(root) is not None
    assert torn_folders(root) == []
    assert sorted(foreign.iterdir()) == before
