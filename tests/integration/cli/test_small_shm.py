import os
import subprocess
from pathlib import Path

import pytest

from holdfast_sidecar.cli.doctor.job import check_directories
from holdfast_sidecar.config.settings import BadInput, CheckpointSettings, PathSettings, Settings
from holdfast_sidecar.startup import check_node, losses

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        os.geteuid() != 0 and not os.environ.get("CI"), reason="mounting a tmpfs needs root"
    ),
]


@pytest.fixture
def mount(tmp_path: Path):
    """Mounts a tmpfs with these options and takes it away again."""
    mounted: list[Path] = []

    def make(options: str) -> Path:
        path = tmp_path / f"tmpfs-{len(mounted)}"
        path.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], check=True)
        mounted.append(path)
        return path

    yield make
    for path in mounted:
        subprocess.run(["umount", str(path)], check=True)


def settings(tmp_path: Path, shm: Path, checkpoints: str = "", **paths) -> Settings:
    return Settings(
        paths=PathSettings(shm_dir=str(shm), state_dir=str(tmp_path / "state"), **paths),
        checkpoint=CheckpointSettings(dir=checkpoints),
    )


def test_a_64_mb_shared_memory_will_do_and_what_it_costs_is_told(mount, tmp_path):
    small = settings(tmp_path, mount("size=64m"))
    check_node(small, 8)
    assert "has 64 MiB in all" in losses(small)["shared memory"]
    assert "shared memory" not in losses(settings(tmp_path, mount("size=128m")))


def test_a_large_one_that_is_almost_full_is_refused(mount, tmp_path):
    shm = mount("size=200m")
    (shm / "full").write_bytes(bytes(150 * 2**20))
    with pytest.raises(BadInput, match=r"50 MiB free of 200 MiB.*--shm-size"):
        check_node(settings(tmp_path, shm), 1)
    check_node(settings(tmp_path, shm, shm_reserve_bytes=2**20), 8)


def test_a_full_shared_memory_is_refused(mount, tmp_path):
    shm = mount("size=1m")
    (shm / "full").write_bytes(bytes(2**20))
    with pytest.raises(BadInput, match="0 MiB free of 1 MiB"):
        check_node(settings(tmp_path, shm, shm_reserve_bytes=0), 1)


def test_inodes_run_out_too(mount, tmp_path):
    with pytest.raises(BadInput, match="free inodes"):
        check_node(settings(tmp_path, mount("size=65m,nr_inodes=4"), shm_reserve_bytes=0), 4)


def test_a_checkpoint_path_that_is_full_is_told_and_keeps_no_job_from_starting(mount, tmp_path):
    full = mount("size=4k")
    (full / "full").write_bytes(bytes(4096))
    given = settings(tmp_path, Path("/dev/shm"), str(full))
    check_node(given, 1)
    assert [path.name for path in full.iterdir()] == ["full"]
    told = losses(given)["checkpoints"]
    assert told.startswith(f"{full} takes nothing (No space left on device)")
    assert ("warn", told) in {(one.verdict, one.line) for one in check_directories(given, 1)}


def test_a_checkpoint_path_that_is_read_only_is_refused(mount, tmp_path):
    read_only = mount("size=64k,ro")
    with pytest.raises(BadInput, match="Read-only file system"):
        check_node(settings(tmp_path, Path("/dev/shm"), str(read_only / "below")), 1)
