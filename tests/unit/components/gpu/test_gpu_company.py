"""Reading who is around the GPUs: real processes, and files as /proc has them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.components.gpu.nodes import gpu, reading
from tests.unit.pretend_pages import write_page

from holdfast.contract import page
from holdfast.contract.identity import ProcessIdentity, read_identity
from holdfast_sidecar.components.gpu.component import (
    GpuUsersReader,
    parse_devices,
    parse_environment,
    read_environment,
    read_process,
)
from holdfast_sidecar.components.gpu.ownership import RankDevice
from holdfast_sidecar.ranks.page import Pages


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    """A process that waits, with GPUs chosen in its environment."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "2,3", "SECRET": "x"}
    code = "print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_of_an_environment_only_what_chooses_gpus_is_kept(child: subprocess.Popen[str]) -> None:
    told = read_environment(child.pid)
    assert told is not None
    assert told["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert set(told) <= {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LOCAL_RANK"}


def test_an_environment_that_may_not_be_read_is_unknown_and_not_empty(tmp_path: Path) -> None:
    assert read_environment(7, str(tmp_path)) is None
    assert parse_environment("A=1\0LOCAL_RANK=3\0B\0") == {"LOCAL_RANK": "3"}
    assert parse_environment("A=1\0") == {}


def test_a_process_is_known_by_name_and_ancestors(child: subprocess.Popen[str]) -> None:
    process = read_process(child.pid)
    assert process is not None
    assert process.name.startswith("python")
    assert process.ancestors[0] == os.getpid()
    assert process.start_ticks


def test_a_process_that_is_gone_or_whose_files_are_garbage_is_left_out(tmp_path: Path) -> None:
    for number, text in enumerate(["", "garbage", "5 (x) S", "5 (x) S a b c"]):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "stat").write_text(text)
        assert read_process(number, str(tmp_path)) is None
    assert read_process(99, str(tmp_path)) is None


def test_what_torch_said_counts_only_from_the_process_that_has_the_page() -> None:
    text = '{"process": "7:70", "devices": [{"uuid": "ab", "pci": "0000:01:00.0"}]}'
    assert parse_devices(text, ProcessIdentity(7, 70)) == (RankDevice("ab", "0000:01:00.0"),)
    assert parse_devices(text, ProcessIdentity(7, 71)) == ()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", '{"process": "7:70"}', '{"process": "7:70", "devices": [1]}'],
)
def test_a_torn_or_foreign_file_beside_the_page_tells_nothing(text: str) -> None:
    assert parse_devices(text, ProcessIdentity(7, 70)) == ()


def test_the_ranks_of_the_pages_and_the_users_of_the_gpus_are_read(
    tmp_path: Path, child: subprocess.Popen[str]
) -> None:
    who = read_identity(child.pid)
    assert who is not None
    write_page(tmp_path, rank=3, pid=who.pid, start_ticks=who.start_ticks)
    pages = Pages(tmp_path)
    (held,) = pages.refresh()
    reader = GpuUsersReader(pages.held)
    company = reader.read(reading(gpu(0, users=[child.pid, 2**22 + 1])))
    (seat,) = company.seats
    assert (seat.rank, seat.environment, seat.devices) == (3, seat.environment, ())
    assert (seat.environment or {})["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert set(company.processes) == {child.pid}
    assert company.own_pids == {os.getpid()}

    told = f'{{"process": "{who}", "devices": [{{"uuid": "ab", "pci": ""}}]}}'
    held.path.with_suffix(page.DEVICES_SUFFIX).write_text(told)
    assert reader.read(reading()).seats[0].devices == (RankDevice("ab"),)
    assert reader.read(reading()).processes == {}


def test_only_the_first_pid_namespace_counts_as_the_driver_does(tmp_path: Path) -> None:
    (tmp_path / "self" / "ns").mkdir(parents=True)
    link = tmp_path / "self" / "ns" / "pid"
    for target, is_first in (("pid:[4026531836]", True), ("pid:[4026532999]", False)):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        reader = GpuUsersReader(list, proc=str(tmp_path))
        assert reader.read(reading()).sees_all_pids is is_first
    link.unlink()
    assert GpuUsersReader(list, proc=str(tmp_path)).read(reading()).sees_all_pids is False
