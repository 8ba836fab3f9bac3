"""Stages, replicas and rings that a script builds of plain groups and messages, on gloo: what role
their ranks have.
"""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.contract import page
from holdfast.contract.page import Word
from holdfast_sidecar.performance.stragglers.groups import find_places
from holdfast_sidecar.performance.stragglers.placement import spell_groups, spell_layout
from holdfast_sidecar.records.reports import RankReport

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("warm")]

TIMEOUT_S = 100

SETUP = """
    import os
    import torch
    import torch.distributed as dist

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.FileStore("store", world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    layer = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)

    def passed_on(before, after, **group):
        batch = torch.zeros(4, 8, requires_grad=True)
        if before is not None:
            dist.recv(batch.data, before, **group)
        out = layer(batch)
        if after is None:
            out.square().mean().backward()
        else:
            dist.send(out.detach(), after, **group)
            gradient = torch.zeros(4, 8)
            dist.recv(gradient, after, **group)
            out.backward(gradient)
        if before is not None:
            dist.send(batch.grad, before, **group)

    def train(step):
        for _ in range(6):
            optimizer.zero_grad()
            step()
            optimizer.step()
"""

END = """
    dist.barrier()
    os._exit(0)
"""

PIPELINE = """
    before, after = rank - 1 if rank else None, rank + 1 if rank + 1 < world else None
    train(lambda: passed_on(before, after))
"""

REPLICAS = """
    pipelines = [dist.new_group([at, at + 2]DESCRIBED_PP) for at in (0, 1)]
    replicas = [dist.new_group([at, at + 1]DESCRIBED_DP) for at in (0, 2)]

    def step():
        group = pipelines[rank % 2]
        passed_on(rank - 2 if rank > 1 else None, rank + 2 if rank < 2 else None, group=group)
        for weight in layer.parameters():
            dist.all_reduce(weight.grad, group=replicas[rank // 2])

    train(step)
"""

RING = """
    def step():
        keys, received = torch.ones(4, 8), torch.zeros(4, 8)
        layer(keys).mean().backward()
        for _ in range(world - 1):
            ahead, behind = (rank + 1) % world, (rank - 1) % world
            ops = [dist.P2POp(dist.isend, keys, ahead), dist.P2POp(dist.irecv, received, behind)]
            for work in dist.batch_isend_irecv(ops):
                work.wait()
        dist.all_reduce(layer.weight.grad)

    train(step)
"""

BORDERS = """
    def step():
        layer(torch.ones(4, 8)).mean().backward()
        for other in (rank - 1, rank + 1):
            if 0 <= other < world:
                border = torch.zeros(8)
                works = [dist.isend(torch.ones(8), other), dist.irecv(border, other)]
                for work in works:
                    work.wait()
        dist.all_reduce(layer.weight.grad)

    train(step)
"""

GATHERED = """
    odd = dist.new_group([at for at in range(world) if at % 2])
    logs = dist.new_group(list(range(world)), group_desc="logs")

    def step():
        loss = layer(torch.ones(4, 8)).mean()
        loss.backward()
        dist.all_reduce(layer.weight.grad)
        if rank % 2:
            dist.all_gather([torch.zeros(()) for _ in range(world // 2)], loss.detach(), group=odd)
        if rank:
            dist.send(loss.detach(), 0)
        else:
            for other in range(1, world):
                dist.recv(torch.zeros(()), other)

    train(step)
"""


def places(stage: Any, script: str, world: int) -> list[Any]:
    """Where all ranks stand at the end, as the leader would know."""
    environments = [stage.environment(rank, world) for rank in range(world)]
    ranks = [stage.start(SETUP + script + END, environment) for environment in environments]
    for rank, process in enumerate(ranks):
        ended = stage.end(process, TIMEOUT_S)
        assert ended.code == 0, ended.err
        assert stage.word(Word.HOOK_ERRORS, rank) == 0, ended.err
    reports = []
    for rank in range(world):
        path = stage.pages / page.page_name(0, rank)
        layout, groups = path.with_suffix(page.LAYOUT_SUFFIX), path.with_suffix(page.GROUPS_SUFFIX)
        told = layout.read_text() if layout.exists() else ""
        where = spell_layout(told, groups.read_text(), rank)
        in_groups = spell_groups(groups.read_text())
        reports.append(
            RankReport(rank, rank, 1, 6, "idle", 0.0, 0.0, 0.0, layout=where, groups=in_groups)
        )
    return list(find_places({"a": reports}, {}).values())


def test_the_stages_of_a_pipeline_show_by_their_messages(stage: Any) -> None:
    found = places(stage, PIPELINE, world=3)
    assert [place.role for place in found] == ["pp 0", "pp 1", "pp 2"]


@pytest.mark.parametrize("is_described", [True, False])
def test_replicas_of_a_stage_have_its_role(stage: Any, is_described: bool) -> None:
    script = REPLICAS
    for name in ("pp", "dp"):
        described = f', group_desc="{name}"' if is_described else ""
        script = script.replace(f"DESCRIBED_{name.upper()}", described)
    found = places(stage, script, world=4)
    assert [place.role for place in found] == ["pp 0", "pp 0", "pp 1", "pp 1"]
    if is_described:
        assert [place.coordinate["dp"] for place in found] == [0, 1, 0, 1]


@pytest.mark.parametrize("script", [RING, GATHERED], ids=["ring", "gathered"])
def test_ranks_that_do_the_same_keep_one_role(stage: Any, script: str) -> None:
    found = places(stage, script, world=4)
    assert [(place.role, place.is_unknown_stage) for place in found] == [("", False)] * 4


def test_ranks_that_swap_borders_are_not_taken_for_stages(stage: Any) -> None:
    found = places(stage, BORDERS, world=3)
    assert all(place.is_unknown_stage for place in found)
