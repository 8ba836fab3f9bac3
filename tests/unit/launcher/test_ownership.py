from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast.contract.own_directory import open_private
from holdfast_sidecar.config.paths import hold_shm
from holdfast_sidecar.config.settings import BadInput, PathSettings
from holdfast_sidecar.launcher.ownership import (
    EXPIRED_S,
    as_name,
    host_names,
    is_owned,
    own_node,
    sweep,
    sweep_pages,
    sweep_slots,
)
from holdfast_sidecar.startup import STAND_IN


@pytest.fixture
def paths(tmp_path: Path) -> PathSettings:
    (tmp_path / "shm").mkdir()
    return PathSettings(shm_dir=str(tmp_path / "shm"), state_dir=str(tmp_path / "state"))


def test_a_node_belongs_to_one_launcher_at_a_time(paths: PathSettings) -> None:
    first = own_node(paths, "job", "a")
    with pytest.raises(BadInput, match="already: choose another --job or --node"):
        own_node(paths, "job", "a")
    own_node(paths, "other", "a").release()
    first.release()
    own_node(paths, "job", "a").release()


def test_nodes_of_one_job_on_one_machine_get_names_of_their_own(paths: PathSettings) -> None:
    owned = [own_node(paths, "job", None) for _ in range(3)]
    host, second, third = (o.node for o in owned)
    assert (second, third) == (f"{host}~2", f"{host}~3")
    owned[1].release()
    again = own_node(paths, "job", None)
    assert again.node == second
    for one in (owned[0], owned[2], again):
        one.release()


def test_directories_are_private_and_gone_after_release(paths: PathSettings) -> None:
    owned = own_node(paths, "job", "a")
    folder = owned.places.shm
    for private in (folder, folder.parent, folder.parent.parent):
        assert stat.S_IMODE(private.stat().st_mode) == 0o700
    owned.release()
    assert os.listdir(paths.shm_dir) == []


def test_a_link_in_place_of_our_directory_is_refused(paths: PathSettings, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (Path(paths.shm_dir) / f"holdfast-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadInput, match="not a directory of yours"):
        own_node(paths, "job", "a")


def test_only_what_is_unowned_and_expired_is_swept(paths: PathSettings) -> None:
    living = own_node(paths, "living", "a")
    dead = own_node(paths, "dead", "a")
    os.close(dead.lock_fd)
    newest = dead.places.shm.stat().st_mtime
    sweep(paths, newest + EXPIRED_S - 60)
    assert dead.places.shm.exists()
    sweep(paths, newest + EXPIRED_S + 60)
    assert not dead.places.shm.parent.exists()
    assert living.places.shm.exists()
    living.release()


def leave_attached(paths: PathSettings) -> Path:
    """A node's directory as ranks under `holdfast attach` make it: there is no launcher."""
    node = Path(paths.shm_dir) / f"holdfast-{os.getuid()}" / "attached" / "a"
    os.close(open_private(node, 3, make=True))
    for slots in ("snapshots", "copies"):
        (node / slots).mkdir()
        (node / slots / "rank-0-slot-0").touch()
    (node / "attempt-0-local-0.page").touch()
    return node


@pytest.mark.parametrize(
    "held",
    [".", "attempt-0-local-0.page", "snapshots/rank-0-slot-0", "copies/rank-0-slot-0"],
    ids=["by its sidecar", "page", "slot", "copy"],
)
@pytest.mark.parametrize("kind", [fcntl.LOCK_SH, fcntl.LOCK_EX], ids=["shared", "exclusive"])
def test_a_node_without_a_launcher_is_not_swept_while_anything_in_it_is_held(
    paths: PathSettings, held: str, kind: int
) -> None:
    if held.endswith("page"):
        kind = fcntl.LOCK_EX  # a shared one is a glance
    node = leave_attached(paths)
    later = node.stat().st_mtime + EXPIRED_S + 60
    owner = os.open(node / held, os.O_RDONLY)
    fcntl.flock(owner, kind)
    sweep(paths, later)
    assert (node / "attempt-0-local-0.page").exists()
    assert (node / "snapshots/rank-0-slot-0").exists()
    os.close(owner)
    sweep(paths, later)
    assert not node.parent.exists()


def test_what_a_sidecar_without_a_launcher_holds_is_not_swept(paths: PathSettings) -> None:
    node = leave_attached(paths)
    later = node.stat().st_mtime + EXPIRED_S + 60
    held = hold_shm(node)
    sweep(paths, later)
    assert node.exists()
    os.close(held)
    sweep(paths, later)
    assert not node.exists()


def test_a_lock_that_can_not_be_looked_at_is_taken_for_held(
    paths: PathSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = leave_attached(paths)
    (node / "owner.lock").touch()
    (node.parent / f"b{STAND_IN}").touch()
    later = node.stat().st_mtime + EXPIRED_S + 60
    really = os.open

    def has_no_descriptor(path: Any, *flags: Any, **where: Any) -> int:
        if str(path).endswith(("owner.lock", STAND_IN, ".page", "slot-0")):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))
        return really(path, *flags, **where)

    monkeypatch.setattr(os, "open", has_no_descriptor)
    assert is_owned(node / "owner.lock")
    sweep(paths, later)
    sweep_pages(node, later)
    sweep_slots(node)
    monkeypatch.setattr(os, "open", really)
    assert len(list(node.rglob("*-0*"))) == 3
    assert (node.parent / f"b{STAND_IN}").exists()
    (node / "owner.lock").unlink()
    assert not is_owned(node / "owner.lock")


STRANGER = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes files of another user: needs root")


def leave(directory: Path) -> Path:
    """Something precious, untouched for days."""
    directory.mkdir(parents=True)
    (directory / "thesis.tex").write_text("precious")
    for path in (directory / "thesis.tex", directory):
        os.utime(path, (1.0, 1.0))
    return directory


@needs_root
def test_what_another_user_linked_to_in_our_name_is_not_swept(
    paths: PathSettings, tmp_path: Path
) -> None:
    """The name is known beforehand, and anybody may make it while no job runs."""
    precious = leave(tmp_path / "home" / "thesis")
    planted = Path(paths.shm_dir) / f"holdfast-{os.getuid()}"
    planted.mkdir()
    (planted / "a").symlink_to(precious.parent)
    os.chown(planted, STRANGER, STRANGER)
    with pytest.raises(BadInput, match="not a directory of yours: remove it"):
        sweep(paths)
    with pytest.raises(BadInput, match="not a directory of yours"):
        own_node(paths, "job", "a")
    assert (precious / "thesis.tex").exists()


def test_links_and_plain_files_in_our_directory_are_passed_over(
    paths: PathSettings, tmp_path: Path
) -> None:
    precious = leave(tmp_path / "home" / "thesis")
    ours = Path(paths.shm_dir) / f"holdfast-{os.getuid()}"
    (ours / "job").mkdir(parents=True, mode=0o700)
    ours.chmod(0o700)
    (ours / "linked").symlink_to(precious.parent)
    (ours / "job" / "linked").symlink_to(precious)
    (ours / "file").write_text("no directory")
    (ours / "job" / "file").write_text("no directory")
    sweep(paths)
    assert (precious / "thesis.tex").exists()
    assert sorted(path.name for path in ours.rglob("*")) == [
        "file",
        "file",
        "job",
        "linked",
        "linked",
    ]


@needs_root
def test_a_node_in_which_another_users_file_lies_is_not_swept(paths: PathSettings) -> None:
    dead = own_node(paths, "dead", "a")
    os.close(dead.lock_fd)
    theirs = dead.places.shm / "theirs"
    theirs.write_text("x")
    os.chown(theirs, STRANGER, STRANGER)
    sweep(paths, dead.places.shm.stat().st_mtime + EXPIRED_S + 60)
    assert theirs.exists()
    assert dead.places.lock.exists()


@needs_root
@pytest.mark.parametrize("below", ["job", "job/a"])
def test_a_part_that_is_another_users_is_refused(paths: PathSettings, below: str) -> None:
    own_node(paths, "other", "a")  # our own directory is there
    planted = Path(paths.shm_dir) / f"holdfast-{os.getuid()}" / below
    planted.mkdir(parents=True, mode=0o700)
    os.chown(planted, STRANGER, STRANGER)
    with pytest.raises(BadInput, match=f"{below} is not a directory of yours"):
        own_node(paths, "job", "a")


def test_state_directories_are_closed_to_others_whatever_the_umask(paths: PathSettings) -> None:
    before = os.umask(0o002)
    try:
        own_node(paths, "job", "a").release()
    finally:
        os.umask(before)
    for private in (Path(paths.state_dir, "job"), Path(paths.state_dir, "job", "a")):
        assert stat.S_IMODE(private.stat().st_mode) == 0o700


def test_a_state_directory_that_is_there_keeps_its_mode(paths: PathSettings) -> None:
    node = Path(paths.state_dir, "job", "a")
    node.mkdir(parents=True)
    for private in (node, node.parent):
        private.chmod(0o755)
    own_node(paths, "job", "a").release()
    assert [stat.S_IMODE(each.stat().st_mode) for each in (node, node.parent)] == [0o755] * 2
    node.parent.chmod(0o777)
    refusal = f"others may write into {node.parent}: chmod 700 it, or set paths.state_dir"
    with pytest.raises(BadInput, match=f"^{re.escape(refusal)}$"):
        own_node(paths, "job", "a")
    assert stat.S_IMODE(node.parent.stat().st_mode) == 0o777


def test_shared_memory_into_which_ranks_would_put_nothing_is_refused_at_once(
    paths: PathSettings,
) -> None:
    owned = own_node(paths, "job", "a")
    os.close(owned.lock_fd)
    owned.places.shm.chmod(0o755)
    with pytest.raises(BadInput, match=r"others may look into .*/job/a: chmod 700 it"):
        own_node(paths, "job", "a")
    assert stat.S_IMODE(owned.places.shm.stat().st_mode) == 0o755


def test_what_is_being_swept_can_not_be_taken_meanwhile(
    paths: PathSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = own_node(paths, "dead", "a")
    os.close(dead.lock_fd)
    seen = []
    remove = os.unlink

    def looking(name: str, **where: int) -> None:
        seen.append(is_owned(dead.places.lock))
        remove(name, **where)

    monkeypatch.setattr(os, "unlink", looking)
    sweep(paths, dead.places.shm.stat().st_mtime + EXPIRED_S + 60)
    assert seen == [True]


def test_what_is_removed_while_it_is_looked_at_ends_no_sweep(
    paths: PathSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaving = own_node(paths, "leaving", "a")
    page = leaving.places.shm / "attempt-0-local-0.page"
    page.write_bytes(b"x")
    monkeypatch.setattr(
        "holdfast_sidecar.launcher.ownership.is_owned", lambda path: path.unlink() or False
    )
    sweep_pages(leaving.places.shm)
    os.close(leaving.lock_fd)
    monkeypatch.setattr(
        "holdfast_sidecar.launcher.ownership._newest",
        lambda folder: os.stat("gone", dir_fd=folder),
    )
    sweep(paths)


def test_a_glance_at_the_lock_keeps_nobody_out(paths: PathSettings) -> None:
    dead = own_node(paths, "job", "a")
    os.close(dead.lock_fd)
    glance = os.open(dead.places.lock, os.O_RDONLY)
    fcntl.flock(glance, fcntl.LOCK_EX)
    timer = threading.Timer(0.015, os.close, [glance])
    timer.start()
    own_node(paths, "job", "a").release()
    timer.join()


def test_a_page_whose_rank_lives_is_not_swept(paths: PathSettings) -> None:
    owned = own_node(paths, "job", "a")
    for suffix in ("page", "socket", "groups", "layout", "devices"):
        (owned.places.shm / f"attempt-0-local-0.{suffix}").write_bytes(b"x")
    now = owned.places.shm.stat().st_mtime
    sweep_pages(owned.places.shm, now + EXPIRED_S - 60)
    assert list(owned.places.shm.glob("*.page"))
    sweep_pages(owned.places.shm, now + EXPIRED_S + 60)
    assert not list(owned.places.shm.glob("attempt-*"))
    assert is_owned(owned.places.lock)
    owned.release()


def test_slots_of_an_earlier_launcher_go_unless_they_are_in_use(paths: PathSettings) -> None:
    owned = own_node(paths, "job", "a")
    for folder in ("snapshots", "copies"):
        (owned.places.shm / folder).mkdir()
        for name in ("rank-0-slot-0", "rank-0-slot-1"):
            (owned.places.shm / folder / name).touch()
    with (owned.places.shm / "snapshots/rank-0-slot-1").open("rb") as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        sweep_slots(owned.places.shm)
    left = [path.relative_to(owned.places.shm) for path in owned.places.shm.glob("*/*")]
    assert left == [Path("snapshots/rank-0-slot-1")]
    owned.release()
    assert not owned.places.shm.exists()


def test_any_host_name_becomes_a_name() -> None:
    assert as_name("gpu_01.example") == "gpu_01.example"
    assert as_name("a b/c") == "a-b-c"
    assert as_name("---") == "node"
    assert len(as_name("x" * 200)) == 63
    names = host_names()
    assert len({next(names) for _ in range(5)}) == 5
