"""Few threads allowed: a rank that lives without Holdfast lives with it.

torch's server starts its threads where no exception can be caught: one that it can't start aborts
the process. So they are started only where there is room for many times as many.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.contract import page
from holdfast.contract.page import Flag, Word

pytestmark = pytest.mark.torch

JOIN = """
    import os, resource
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    dist.all_reduce(torch.ones(8))
    print("trained")
    dist.destroy_process_group()  # without it gloo aborts one process in thirty as it ends
"""


@pytest.fixture
def pids() -> Iterator[Path]:
    """A control group whose number of threads can be limited."""
    if os.geteuid() != 0:
        pytest.skip("only root may make a control group")
    for above in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup"):
        made = Path(above) / f"holdfast-test-{os.getpid()}"
        try:
            made.mkdir()
        except OSError:
            continue
        if (made / "pids.max").exists():
            yield made
            made.rmdir()
            return
        made.rmdir()
    pytest.skip("no control group here limits threads")


@pytest.mark.root
def test_in_a_control_group_with_room_for_its_own_threads_alone_it_lives(stage, pids) -> None:
    (pids / "pids.max").write_text("12")
    enter = f"    open('{pids}/cgroup.procs', 'w').write('0')\n"
    ended = stage.run("\n" + enter + JOIN)
    assert (ended.code, ended.out, ended.err) == (0, "trained\n", "")
    assert stage.word(Word.FLAGS) & Flag.NO_ROOM_FOR_RECORDER
    assert stage.word(Word.HOOK_ERRORS) == 0


@pytest.mark.root
def test_where_the_control_group_with_the_limit_is_not_to_be_seen_it_lives_as_well(
    stage, pids
) -> None:
    """In a pod whose control group namespace is its own, the limit lies above what is seen."""
    (pids / "pids.max").write_text("12")
    enter = f"""
    from holdfast.rank import worker_server
    worker_server.CONTROL_GROUPS = ()
    open("{pids}/cgroup.procs", "w").write("0")
"""
    ended = stage.run(enter + JOIN)
    assert (ended.code, ended.out, ended.err) == (0, "trained\n", "")
    assert stage.word(Word.FLAGS) & Flag.NO_ROOM_FOR_RECORDER
    assert stage.word(Word.HOOK_ERRORS) == 0


@pytest.mark.parametrize("limit", ["NPROC", "AS"])
def test_a_limit_of_the_process_counts_as_well(stage, limit: str) -> None:
    room = "30" if limit == "NPROC" else "used + (40 << 20)"
    restrict = f"""
    import resource
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    kind = resource.RLIMIT_{limit}
    resource.setrlimit(kind, ({room}, resource.getrlimit(kind)[1]))
    """
    script = JOIN.replace("    dist.init", restrict.replace("\n    ", "\n    ") + "dist.init")
    ended = stage.run(script)
    assert (ended.code, ended.out, ended.err) == (0, "trained\n", "")
    assert stage.word(Word.FLAGS) & Flag.NO_ROOM_FOR_RECORDER


def test_with_room_it_listens(stage) -> None:
    ended = stage.run(JOIN)
    assert (ended.code, ended.err) == (0, "")
    assert not stage.word(Word.FLAGS) & Flag.NO_ROOM_FOR_RECORDER
    path = stage.pages / page.page_name(0, 0)
    assert path.with_suffix(page.SOCKET_SUFFIX).is_socket()
