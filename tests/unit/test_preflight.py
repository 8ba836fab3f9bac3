import dataclasses
import getpass
import os
import stat
import tempfile
from pathlib import Path

import pytest

from holdfast.contract.page import PAGE_SIZE
from holdfast_sidecar.checkpoint.snapshot.slots import least_reserve
from holdfast_sidecar.config.loading import search_path
from holdfast_sidecar.config.paths import expand, state_root, user_name, usual_state_root
from holdfast_sidecar.config.settings import BadInput, CheckpointSettings, PathSettings, Settings
from holdfast_sidecar.startup import (
    DiskSpace,
    check_node,
    losses,
    read_room,
    room_problem,
    shm_problem,
    state_problem,
)

SHM = Path("/dev/shm")
RESERVE = 64 * 2**20


def settings(tmp_path: Path, **paths: object) -> Settings:
    given = {"shm_dir": str(tmp_path), "state_dir": str(tmp_path / "state"), "shm_reserve_bytes": 0}
    return Settings(paths=dataclasses.replace(PathSettings(), **(given | paths)))  # type: ignore[arg-type]


def test_a_64_mb_dev_shm_is_refused_with_advice() -> None:
    problem = room_problem(SHM, DiskSpace(64 * 2**20, 64 * 2**20, 1000), 1, RESERVE)
    assert problem is not None
    assert "64 MiB free of 64 MiB" in problem
    assert "--shm-size" in problem
    assert "paths.shm_reserve_bytes" in problem
    assert "paths.shm_dir" in problem


def test_of_a_small_file_system_only_half_is_kept_free() -> None:
    assert least_reserve(64 * 2**20, RESERVE) == 32 * 2**20
    assert least_reserve(128 * 2**20, RESERVE) == RESERVE
    assert least_reserve(2**40, RESERVE) == RESERVE


def test_a_small_shared_memory_is_a_loss_that_is_told_and_no_refusal(tmp_path: Path) -> None:
    given = settings(tmp_path, shm_reserve_bytes=2**62)
    problem = shm_problem(given, 1, read_room=lambda _: DiskSpace(64 * 2**20, 60 * 2**20, 1000))
    assert problem is None
    assert "in all: snapshots leave half of it free" in losses(given)["shared memory"]
    assert losses(settings(tmp_path)) == {}


def test_state_that_can_not_lie_where_it_belongs_lies_where_it_may_be_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nothing/here")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda path, _: not str(path).startswith("/proc"))
    given = settings(tmp_path, state_dir="")
    state = tmp_path / f"holdfast-{os.getuid()}"
    assert state_root(given.paths) == state
    assert str(losses(given)["state"]).startswith("/proc/nothing/here/holdfast can't be written")
    assert state_problem(given) is None
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    state.chmod(0o777)
    with pytest.raises(BadInput, match="others may write into"):
        state_problem(given)
    state.rmdir()
    state.symlink_to(tmp_path)
    with pytest.raises(BadInput, match="state_dir"):
        state_problem(given)


def test_a_user_without_a_home_has_no_settings_there_and_can_not_write_a_tilde(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(_: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", nobody)
    assert [str(path) for path in search_path({})] == [
        "holdfast.toml",
        "/etc/holdfast/holdfast.toml",
    ]
    with pytest.raises(BadInput, match="no home directory; write the whole path"):
        expand("~/x")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert usual_state_root() == Path("/holdfast")


def test_a_user_without_a_name_is_known_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 54321")

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert user_name() == f"uid {os.getuid()}"


def test_room_for_the_pages_and_the_reserve_is_enough_and_a_byte_less_is_not() -> None:
    enough = PAGE_SIZE * 8 + RESERVE
    assert room_problem(SHM, DiskSpace(2**30, enough, 1000), 8, RESERVE) is None
    assert room_problem(SHM, DiskSpace(2**30, enough - 1, 1000), 8, RESERVE) is not None


def test_inodes_count_where_the_file_system_counts_them() -> None:
    assert "inodes" in str(room_problem(SHM, DiskSpace(2**30, 2**30, 8), 8, RESERVE))
    assert room_problem(SHM, DiskSpace(2**30, 2**30, None), 8, RESERVE) is None


def test_a_missing_shared_memory_directory_is_named(tmp_path: Path) -> None:
    given = settings(tmp_path, shm_dir=str(tmp_path / "none"))
    assert "is no directory" in str(shm_problem(given, 1, read_room))


def test_a_usable_node_passes_and_no_probe_file_is_left(tmp_path: Path) -> None:
    given = dataclasses.replace(
        settings(tmp_path), checkpoint=CheckpointSettings(dir=str(tmp_path / "made"))
    )
    check_node(given, 4)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert (tmp_path / "made").is_dir()


def test_checkpoints_are_not_put_where_their_storage_is_not_mounted(tmp_path: Path) -> None:
    below = tmp_path / "mount" / "run"
    given = dataclasses.replace(settings(tmp_path), checkpoint=CheckpointSettings(dir=str(below)))
    with pytest.raises(BadInput, match=r"mount does not exist.* mount the storage"):
        check_node(given, 1)
    assert not below.exists()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("gs://bucket/run", "checkpoint.dir: .*pip install gcsfs"),
        ("floppy://a/run", "checkpoint.dir: .*no storage is known under floppy://"),
        ("ftp://me:hunter2@host/run", "checkpoint.dir: .*password"),
    ],
)
def test_a_url_that_nobody_here_can_open_is_one_line(tmp_path: Path, url: str, said: str) -> None:
    given = dataclasses.replace(settings(tmp_path), checkpoint=CheckpointSettings(dir=url))
    with pytest.raises(BadInput, match=said) as caught:
        check_node(given, 1)
    assert "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_url_is_not_taken_for_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    url = CheckpointSettings(dir="memory://bucket/run")
    check_node(dataclasses.replace(settings(tmp_path), checkpoint=url), 1)
    assert not (tmp_path / "memory:").exists()


@pytest.mark.parametrize(("content", "said"), [(None, "can't read"), (" \n", "is empty")])
def test_a_key_that_would_protect_nothing_is_refused(
    tmp_path: Path, content: str | None, said: str
) -> None:
    key = tmp_path / "key"
    if content is not None:
        key.write_text(content)
    given = dataclasses.replace(
        settings(tmp_path), checkpoint=CheckpointSettings(key_file=str(key))
    )
    with pytest.raises(BadInput, match=said):
        check_node(given, 1)
    key.write_text("secret")
    check_node(given, 1)


@pytest.mark.parametrize("what", ["state", "checkpoint"])
def test_an_unwritable_directory_is_one_line(tmp_path: Path, what: str) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    below = str(in_the_way / "below")
    given = (
        settings(tmp_path, state_dir=below)
        if what == "state"
        else dataclasses.replace(settings(tmp_path), checkpoint=CheckpointSettings(dir=below))
    )
    with pytest.raises(BadInput, match=f"can't write to the {what} .*Not a directory") as refused:
        check_node(given, 1)
    assert "\n" not in str(refused.value)


def test_a_directory_that_can_not_be_made_is_not_called_missing(tmp_path: Path) -> None:
    given = dataclasses.replace(
        settings(tmp_path), checkpoint=CheckpointSettings(dir="/proc/holdfast-nope")
    )
    with pytest.raises(BadInput, match="/proc takes no new directory; choose another with") as no:
        check_node(given, 1)
    assert "No such file" not in str(no.value)
