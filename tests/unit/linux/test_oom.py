"""Whom the OOM killer took: counts of both kinds of cgroups, and the kernel's log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast_sidecar.linux.cgroups import (
    INITIAL_NAMESPACE,
    KernelLogReader,
    OomWatch,
    parse_mounts,
    parse_oom_kills,
    parse_victims,
    places_of,
)
from holdfast_sidecar.linux.kmsg import parse_records

V2_EVENTS = "low 0\nhigh 0\nmax 312\noom 2\noom_kill {}\noom_group_kill 0\n"
V1_CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"

V1_MOUNTS = (
    "25 20 0:22 / /sys/fs/cgroup/cpu rw,nosuid shared:9 - cgroup cgroup rw,cpu\n"
    "26 20 0:23 / {}/memory rw,nosuid shared:9 - cgroup cgroup rw,memory\n"
    "27 20 0:24 / {}/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"
)
V2_MOUNTS = "30 20 0:26 / {} rw,nosuid,nodev,noexec shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"

KMSG = (
    "3,1187,64509132,-;Memory cgroup out of memory: Killed process 4242 (python)"
    " total-vm:71300kB, anon-rss:60160kB, file-rss:9344kB, shmem-rss:0kB, UID:0 pgtables:172kB"
    " oom_score_adj:0\n SUBSYSTEM=none\n"
)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A /proc beside a cgroup directory, both empty yet."""
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    (tmp_path / "proc/7").mkdir()
    (tmp_path / "cgroup").mkdir()
    return tmp_path


def watch(machine: Path, mounts: str, cgroups: str) -> OomWatch:
    (machine / "proc/self/mountinfo").write_text(mounts.replace("{}", str(machine / "cgroup")))
    (machine / "proc/7/cgroup").write_text(cgroups)
    made = OomWatch(machine / "proc", KernelLogReader(machine / "kmsg"))
    made.begin()
    return made


def put(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_v2_counts_in_the_events_of_the_cgroup(machine: Path) -> None:
    file = machine / "cgroup/user.slice/job/memory.events"
    put(file, V2_EVENTS.format(1))
    made = watch(machine, V2_MOUNTS, "0::/user.slice/job\n")
    assert made.kills(7, 1) == 1
    put(file, V2_EVENTS.format(2))
    assert made.kills(7, 1) == 1, "within one look it is read once"
    made.begin()
    assert made.kills(7, 1) == 2


def test_v2_without_the_controller_in_the_leaf_counts_above_it(machine: Path) -> None:
    put(machine / "cgroup/user.slice/memory.events", V2_EVENTS.format(5))
    (machine / "cgroup/user.slice/job/inner").mkdir(parents=True)
    assert watch(machine, V2_MOUNTS, "0::/user.slice/job/inner\n").kills(7, 1) == 5


def test_v1_counts_in_the_memory_hierarchy_beside_an_empty_v2(machine: Path) -> None:
    put(machine / "cgroup/memory/job/memory.oom_control", V1_CONTROL.format(3))
    cgroups = "5:devices:/\n4:memory:/job\n1:cpu:/\n0::/\n"
    assert watch(machine, V1_MOUNTS, cgroups).kills(7, 1) == 3


def test_what_a_container_sees_of_its_own_cgroup_is_found(machine: Path) -> None:
    """Its hierarchy is mounted from the container's cgroup, and /proc names the host's path."""
    put(machine / "cgroup/memory/step/memory.oom_control", V1_CONTROL.format(8))
    mounts = V1_MOUNTS.replace("0:23 / ", "0:23 /docker/ab12 ")
    assert watch(machine, mounts, "4:memory:/docker/ab12/step\n").kills(7, 1) == 8


def test_without_any_cgroup_the_whole_host_counts(machine: Path) -> None:
    put(machine / "proc/vmstat", "pgfault 12\noom_kill 6\n")
    assert watch(machine, V2_MOUNTS, "0::/\n").kills(7, 1) == 6


def test_where_nobody_counts_nothing_is_known(machine: Path) -> None:
    assert watch(machine, "", "").kills(7, 1) is None


def test_the_cgroup_of_a_dead_process_is_remembered(machine: Path) -> None:
    put(machine / "cgroup/job/memory.events", V2_EVENTS.format(0))
    made = watch(machine, V2_MOUNTS, "0::/job\n")
    assert made.kills(7, 1) == 0
    (machine / "proc/7/cgroup").unlink()
    put(machine / "cgroup/job/memory.events", V2_EVENTS.format(1))
    made.begin()
    assert made.kills(7, 1) == 1


def test_the_log_names_its_victim_to_who_shares_its_process_namespace(machine: Path) -> None:
    os.mkfifo(machine / "kmsg")
    for namespace, expected in ((INITIAL_NAMESPACE, True), ("pid:[4026532999]", False)):
        link = machine / "proc/self/ns/pid"
        link.unlink(missing_ok=True)
        link.symlink_to(namespace)
        made = watch(machine, "", "")
        writer = os.open(machine / "kmsg", os.O_RDWR)
        os.write(writer, KMSG.encode())
        made.begin()
        os.close(writer)
        assert (made.is_victim(4242), made.is_victim(4243)) == (expected, False)


def test_a_log_that_may_not_be_read_is_silent(tmp_path: Path) -> None:
    assert list(KernelLogReader(tmp_path / "nothing").read_new()) == []


def test_the_victim_is_named_in_the_message_and_nowhere_else() -> None:
    (record,) = parse_records(KMSG.encode())
    assert parse_victims(record.text) == [4242]
    assert parse_victims("Out of memory: Killed process 17 (a) b) total-vm:1kB") == [17]
    assert parse_victims("oom-kill:constraint=CONSTRAINT_MEMCG,task=python,pid=4242,uid=0") == []


def test_mounts_with_spaces_and_the_order_of_places() -> None:
    mounts = parse_mounts("26 20 0:23 / /a\\040b rw - cgroup cgroup rw,memory\nnonsense\n")
    assert places_of("4:memory:/job\n0::/\n", mounts) == [Path("/a b/job/memory.oom_control")]


def test_both_files_have_the_count_in_a_line_of_its_own() -> None:
    assert parse_oom_kills(V2_EVENTS.format(4)) == 4
    assert parse_oom_kills(V1_CONTROL.format(4)) == 4
