"""Tasks that hang, and CPU time that others take."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_sidecar.components.host.cpu import (
    CpuTime,
    ForeignLoad,
    Processors,
    cpu_s_of,
    foreign_cores,
)
from holdfast_sidecar.components.host.host import StuckRanks, read_hung_tasks, state_of

STAT = "7 (py (x) thon) {state} 1 7 7 0 -1 4194304 1 0 0 0 {user} {system} {others} 0 20 0 1 0 99"


def put(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def stat(state: str = "D", user: int = 0, system: int = 0, others: int = 0) -> str:
    return STAT.format(state=state, user=user, system=system, others=others)


def test_the_kernels_own_count_of_hung_tasks_is_taken_and_none_is_unknown(tmp_path: Path) -> None:
    put(tmp_path, "sys/kernel/hung_task_detect_count", "3\n")
    assert read_hung_tasks(tmp_path) == 3
    put(tmp_path, "sys/kernel/hung_task_detect_count", "-1\n")
    assert read_hung_tasks(tmp_path) is None
    assert read_hung_tasks(tmp_path / "nowhere") is None


def test_a_rank_in_one_wait_since_long_is_told_and_one_that_ran_between_is_not(
    tmp_path: Path,
) -> None:
    put(tmp_path, "7/stat", stat())
    put(tmp_path, "7/schedstat", "1 2 50\n")
    put(tmp_path, "7/wchan", "rpc_wait_bit_killable")
    ranks = StuckRanks(tmp_path)
    ranks.read({3: 7}, 0.0)
    (stuck,) = ranks.read({3: 7}, 70.0)
    assert (stuck.rank, stuck.pid, stuck.for_s) == (3, 7, 70.0)
    assert stuck.where == "rpc_wait_bit_killable"
    put(tmp_path, "7/schedstat", "1 2 51\n")
    assert [one.for_s for one in ranks.read({3: 7}, 80.0)] == [0.0]
    put(tmp_path, "7/stat", stat(state="S"))
    assert ranks.read({3: 7}, 90.0) == ()
    assert ranks.read({3: 8}, 100.0) == (), "it is gone"


def test_a_kernel_that_counts_no_turns_tells_nothing_of_waits(tmp_path: Path) -> None:
    put(tmp_path, "7/stat", stat())
    assert StuckRanks(tmp_path).read({0: 7}, 0.0) == ()
    assert state_of("garbage") == ""


def test_cpu_time_of_others_is_what_the_host_spent_and_the_job_did_not(tmp_path: Path) -> None:
    put(tmp_path, "7/stat", stat(user=100, system=50, others=50))
    put(tmp_path, "7/task/7/children", "8 x\n")
    put(tmp_path, "8/stat", stat(user=100))
    load = ForeignLoad(tmp_path)
    assert load.read(Processors({"user": 10.0, "system": 0.0}, 0.0), {0: 7}, 0.0) is None
    put(tmp_path, "8/stat", stat(user=600))
    assert load.read(Processors({"user": 30.0, "system": 0.0}, 0.0), {0: 7}, 10.0) == 1.5
    assert load.read(Processors({"user": 31.0, "system": 0.0}, 0.0), {0: 7}, 11.0) == 1.5
    assert load.read(Processors({"user": 40.0, "system": 0.0}, 0.0), {0: 9}, 20.0) is None
    assert load.read(Processors({"user": 40.0, "system": 0.0}, 0.0), {}, 30.0) is None


@pytest.mark.parametrize(
    "now", [CpuTime(10.0, 5.0, 9.0), CpuTime(10.0, 9.0, 5.0), CpuTime(0.0, 9, 9)]
)
def test_counts_that_went_backwards_say_nothing(now: CpuTime) -> None:
    assert foreign_cores(CpuTime(0.0, 8.0, 8.0), now) is None


def test_a_process_that_is_gone_or_garbled_took_no_time() -> None:
    assert cpu_s_of("") == cpu_s_of("7 (x) S 1") == cpu_s_of(f"7 (x) S {'-1 ' * 30}") == 0.0
    own = Path("/proc/self/stat").read_text()
    assert cpu_s_of(own) > 0.0
