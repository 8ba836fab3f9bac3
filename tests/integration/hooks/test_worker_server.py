"""A rank can be asked where it stands in its collectives, by itself and whatever holds its GIL."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from tests.integration.hooks.conftest import Stage

from holdfast.contract import environment, page
from holdfast.contract.page import Word
from holdfast_sidecar.ranks.collectives import StuckCause
from holdfast_sidecar.ranks.deadlock import judge
from holdfast_sidecar.ranks.flight_recorder import Members, ask, ask_rank, read_members
from holdfast_sidecar.records.collectives import RankTrace

pytestmark = pytest.mark.torch

JOIN = """
    import ctypes, os, sys, time
    import torch
    import torch.distributed as dist

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.FileStore("store", world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
"""


def page_of(stage: Stage, rank: int) -> Path:
    return stage.pages / page.page_name(0, rank)


def await_line(process, line: str) -> None:
    assert process.stdout.readline() == f"{line}\n", process.communicate(timeout=5)


def _waiting(stage) -> set[int]:
    return {rank for rank, told in ask_all(stage, 3).items() if _waits(told)}


def _waits(told: RankTrace) -> bool:
    return any(standing.is_waiting for standing in told.standings)


def ask_all(stage, world: int) -> dict[int, RankTrace]:
    return {rank: ask_rank(page_of(stage, rank), rank) for rank in range(world)}


def test_who_holds_its_gil_is_named_by_what_all_tell_and_so_is_one_that_is_stopped(stage) -> None:
    script = (
        JOIN
        + """
    pair = dist.new_group([0, 1], group_desc="mesh_tp")
    for step in range(3):
        dist.all_reduce(torch.ones(8))
        if rank < 2:
            dist.all_reduce(torch.ones(2), group=pair)
    print("ready", flush=True)
    if rank == 1:
        ctypes.PyDLL(None).sleep(60)
    if rank < 2:
        dist.broadcast(torch.ones(5), 0, group=pair)
    dist.all_reduce(torch.ones(8))
    """
    )
    ranks = [stage.start(script, stage.environment(rank, 3)) for rank in range(3)]
    for process in ranks:
        await_line(process, "ready")
    assert read_members(page_of(stage, 0).with_suffix(page.GROUPS_SUFFIX)) == {
        "0": Members("default_pg", (0, 1, 2)),
        "1": Members("mesh_tp", (0, 1)),
    }
    members = read_members(page_of(stage, 2).with_suffix(page.GROUPS_SUFFIX))
    assert members is not None
    assert list(members) == ["0"]
    told = [
        json.loads(page_of(stage, rank).with_suffix(page.GROUPS_SUFFIX).read_text())["1"]
        for rank in (0, 1)
    ]
    assert told[0] == told[1]
    assert (told[0]["slot"], len(told[0]["digest"])) == (1, 16)
    stage.wait_until(lambda: _waiting(stage) == {0, 2})
    held = judge(ask_all(stage, 3), set(), 3)
    assert held is not None
    assert (held.cause, held.culprits, held.waiting) == (StuckCause.ABSENT, (1,), (0, 2))

    os.kill(ranks[1].pid, signal.SIGSTOP)
    stopped = judge(ask_all(stage, 3), set(), 3)
    os.kill(ranks[1].pid, signal.SIGKILL)
    assert stopped is not None
    assert (stopped.cause, stopped.culprits) == (StuckCause.MUTE, (1,))
    for rank, process in enumerate(ranks):
        ended = stage.end(process)
        assert "Server listening" not in ended.err
        assert stage.word(Word.HOOK_ERRORS, rank) == 0


def test_the_server_is_quiet_and_neither_a_forked_worker_nor_the_rank_s_end_waits_for_it(
    stage,
) -> None:
    ended = stage.run(
        JOIN
        + """
    loader = torch.utils.data.DataLoader(torch.ones(4, 2), num_workers=1)
    print(len(list(loader)))
    dist.destroy_process_group()
    """
    )
    assert (ended.code, ended.out, ended.err) == (0, "4\n", "")
    assert read_members(page_of(stage, 0).with_suffix(page.GROUPS_SUFFIX)) == {}
    assert page_of(stage, 0).with_suffix(page.SOCKET_SUFFIX).is_socket()


def test_switched_off_no_socket_is_opened(stage) -> None:
    env = stage.environment(**{environment.FLIGHT_RECORDER: "0"})
    ended = stage.run(JOIN + "    print(len(os.listdir('/proc/self/task')) < 9)", env)
    assert (ended.code, ended.out) == (0, "True\n")
    assert not page_of(stage, 0).with_suffix(page.SOCKET_SUFFIX).exists()
    assert read_members(page_of(stage, 0).with_suffix(page.GROUPS_SUFFIX))


def test_a_directory_too_deep_for_a_socket_s_address_is_no_obstacle(stage) -> None:
    deep = stage.folder / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True, mode=0o700)
    process = stage.start(
        JOIN + "    print('ready', flush=True); time.sleep(60)",
        stage.environment(**{environment.PAGE_DIR: str(deep)}),
    )
    await_line(process, "ready")
    path = (deep / page.page_name(0, 0)).with_suffix(page.SOCKET_SUFFIX)
    assert b'"version"' in ask(path, 5.0)
    process.kill()
