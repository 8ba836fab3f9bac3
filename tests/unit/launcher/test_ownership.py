from __future__ import annotations

import fcntl
import os
import shutil
import stat
import threading
from pathlib import Path

import pytest

from holdfast_sidecar.bad_input import BadInput
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
from holdfast_sidecar.settings import PathSettings


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


def test_what_is_being_swept_can_not_be_taken_meanwhile(
    paths: PathSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = own_node(paths, "dead", "a")
    os.close(dead.lock_fd)
    seen = []
    remove = shutil.rmtree

    def looking(folder: Path, **how: bool) -> None:
        seen.append(is_owned(dead.places.lock))
        remove(folder, **how)

    monkeypatch.setattr(shutil, "rmtree", looking)
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
        "holdfast_sidecar.launcher.ownership._newest", lambda folder: (folder / "gone").stat()
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
