"""A state directory on a disk that takes nothing: the job starts all the same, and says so."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast_sidecar.cli.doctor.job import check_directories
from holdfast_sidecar.config.settings import PathSettings, Settings
from holdfast_sidecar.launcher import sidecar_process
from holdfast_sidecar.launcher.ownership import own_node
from holdfast_sidecar.startup import check_node, losses

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        os.geteuid() != 0 and not os.environ.get("CI"), reason="mounting a tmpfs needs root"
    ),
]


@pytest.fixture(params=["full", "read-only", "without inodes"])
def state(request: pytest.FixtureRequest, short_path: Path) -> Iterator[Path]:
    path = short_path / "home"
    path.mkdir()
    options = "size=64k,nr_inodes=2" if request.param == "without inodes" else "size=64k"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], check=True)
    (path / "filler").write_bytes(bytes(64 * 2**10))
    if request.param == "read-only":
        subprocess.run(["mount", "-o", "remount,ro", str(path)], check=True)
    yield path / "state"
    subprocess.run(["umount", str(path)], check=True)


@pytest.fixture
def settings(state: Path, short_path: Path) -> Settings:
    shm = short_path / "shm"
    shm.mkdir()
    return Settings(paths=PathSettings(shm_dir=str(shm), state_dir=str(state), shm_reserve_bytes=0))


def test_the_node_is_not_refused_and_one_line_says_what_is_lost(settings: Settings) -> None:
    check_node(settings, 1)
    told = losses(settings)["state"]
    assert told.startswith(f"{settings.paths.state_dir} takes nothing (")
    assert "\n" not in told
    (check,) = (one for one in check_directories(settings, 1) if one.what == "state")
    assert (check.verdict, check.line) == ("warn", told)


def test_a_server_of_its_own_has_its_files_in_shared_memory_until_it_ends(
    settings: Settings,
) -> None:
    owned = own_node(settings.paths, "job", "a")
    server = sidecar_process.start_own(settings.redis, owned.places)
    try:
        assert server.own is not None
        assert server.own.directory == owned.places.local_server
        assert server.own.is_running()
        server.write_record(owned.places)
    finally:
        server.close(owned.places)
    assert not owned.places.local_server.exists()
    owned.release()
    assert not owned.places.shm.exists()
