"""Real parallel training on gloo, one rank slow: who waited, in which group, and who is slow.

Every rank sleeps a while in its forward pass at each step, the slow one longer: so the others
wait for it, and every rank's steps are as long as the slow one's.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from holdfast.contract import page
from holdfast.contract.page import Record, Word
from holdfast_sidecar.ranks.observation import own_of

pytestmark = pytest.mark.torch

SLOW_S, QUICK_S, STEPS = 0.05, 0.005, 6
TIMEOUT_S = 100
"""Four ranks that import FSDP and pipelines at once take a while on a small machine."""

WAITED_US = 30_000
"""Of the 45 ms that the slow one is slower."""

SETUP = f"""
    import os, time
    import torch
    import torch.distributed as dist

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    slow = int(os.environ["SLOW"])
    store = dist.FileStore("store", world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    torch.manual_seed(0)

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(8, 8)

        def forward(self, batch):
            time.sleep({SLOW_S} if rank == slow else {QUICK_S})
            return self.linear(batch)

    def train(step, parameters):
        optimizer = torch.optim.SGD(parameters, lr=0.01)
        for _ in range({STEPS}):
            optimizer.zero_grad()
            step()
            optimizer.step()
"""

END = """
    dist.barrier()
    os._exit(0)  # torch's own threads end an interpreter with SIGABRT now and then
"""


@pytest.fixture
def job(stage: Any) -> Job:
    return Job(stage)


class Job:
    """Ranks that train together, and what their pages say afterwards."""

    def __init__(self, stage: Any) -> None:
        self.stage = stage
        self.world = 0

    def run(self, script: str, world: int, slow: int) -> None:
        self.world = world
        ranks = [
            self.stage.start(
                SETUP + script + END, self.stage.environment(rank, world, SLOW=str(slow))
            )
            for rank in range(world)
        ]
        for rank, process in enumerate(ranks):
            ended = self.stage.end(process, TIMEOUT_S)
            assert ended.code == 0, ended.err
            assert self.stage.word(Word.HOOK_ERRORS, rank) == 0, ended.err

    def settled(self, rank: int) -> list[Record]:
        """Its steps after the first two, in which connections are made."""
        records = [record for record in self.stage.records(rank) if record.step > 2]
        assert len(records) == STEPS - 2
        return records

    def typical(self, rank: int, part: Callable[[Record], float]) -> float:
        return statistics.median(map(part, self.settled(rank)))

    def own_s(self) -> list[float]:
        """At the least: what the script made it sleep, and not what else this machine did."""
        return [min(map(own_of, self.settled(rank))) for rank in range(self.world)]

    def waits_us(self, rank: int) -> list[float]:
        """In each slot."""
        return [
            self.typical(rank, partial(lambda slot, record: record.waits_us[slot], slot))
            for slot in range(4)
        ]

    def communicating_us(self, rank: int) -> float:
        return self.typical(rank, lambda record: record.communicating_us)

    def groups(self, rank: int) -> dict[str, dict[str, Any]]:
        """By title."""
        told = json.loads(self._beside(rank, page.GROUPS_SUFFIX))
        return {group["title"]: group for group in told.values()}

    def layout(self, rank: int) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self._beside(rank, page.LAYOUT_SUFFIX))
        return told

    def _beside(self, rank: int, suffix: str) -> str:
        path = self.stage.pages / page.page_name(0, rank)
        text: str = path.with_suffix(suffix).read_text()
        return text

    def singles_out(self, slow: int) -> bool:
        own = self.own_s()
        others = [own[rank] for rank in range(self.world) if rank != slow]
        return own[slow] - max(others) > WAITED_US / 1e6


FSDP = """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("dp",))
    model = torch.nn.Sequential(Layer(), torch.nn.Linear(8, 8))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    train(lambda: model(torch.ones(4, 8)).mean().backward(), model.parameters())
"""


def test_fully_sharded_the_others_wait_in_its_mesh(job: Job) -> None:
    job.run(FSDP, world=2, slow=1)
    assert job.waits_us(0)[0] > WAITED_US
    assert job.communicating_us(0) == pytest.approx(sum(job.waits_us(0)), abs=1000)
    assert job.singles_out(1)
    assert job.layout(1) == {
        "dims": ["dp"],
        "shape": [2],
        "coordinate": [1],
        "stage": None,
        "stages": None,
        "micro_batches": None,
        "role": "",
    }


TENSOR = """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel, RowwiseParallel, parallelize_module)

    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("tp",))
    model = torch.nn.Sequential(Layer(), torch.nn.Linear(8, 8))
    plan = {"0.linear": ColwiseParallel(), "1": RowwiseParallel()}
    parallelize_module(model, mesh, plan)
    train(lambda: model(torch.ones(4, 8)).mean().backward(), model.parameters())
"""


def test_tensor_parallel_the_others_wait_for_functional_collectives(job: Job) -> None:
    job.run(TENSOR, world=2, slow=1)
    assert job.waits_us(0)[0] > WAITED_US
    assert job.communicating_us(0) == pytest.approx(sum(job.waits_us(0)), abs=1000)
    assert job.singles_out(1)
    words = page.parse_words(job.stage.read(0))
    assert words[Word.COLLECTIVES_1] >= STEPS
    assert words[Word.SENT_BYTES_1] >= STEPS * 4 * 8 * 4


PIPELINE = """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("pp",))
    stage = PipelineStage(Layer(), rank, world, torch.device("cpu"), group=mesh.get_group())
    schedule = SCHEDULE(stage, 2, loss_fn=lambda out, target: (out - target).square().mean())

    def step():
        whole = torch.ones(4, 8)
        schedule.step(*(whole,) * (rank == 0), **{"target": whole} if rank == world - 1 else {})

    train(step, stage.submod.parameters())
"""


@pytest.mark.parametrize("schedule", ["ScheduleGPipe", "Schedule1F1B"])
def test_in_a_pipeline_the_stages_beside_wait_for_its_messages(job: Job, schedule: str) -> None:
    job.run(PIPELINE.replace("SCHEDULE", schedule), world=2, slow=1)
    assert job.waits_us(0)[0] > WAITED_US
    assert job.communicating_us(0) == pytest.approx(sum(job.waits_us(0)), abs=1000)
    assert job.singles_out(1)
    assert [job.layout(rank)["stage"] for rank in (0, 1)] == [0, 1]
    assert job.layout(0)["stages"] == 2
    assert job.layout(0)["micro_batches"] == 2
    assert page.parse_words(job.stage.read(0))[Word.SENT_BYTES_1] > 0


REPLICATED = """
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(torch.nn.Sequential(Layer(), torch.nn.Linear(8, 8)))
    dist.barrier()
    train(lambda: model(torch.ones(4, 8)).mean().backward(), model.parameters())
"""


def test_replicated_what_the_reducer_sends_and_waits_for_is_in_its_group(job: Job) -> None:
    job.run(REPLICATED, world=2, slow=1)
    assert job.waits_us(0)[0] > WAITED_US
    assert job.singles_out(1)
    words = page.parse_words(job.stage.read(0))
    gradients = 2 * (8 * 8 + 8) * 4
    assert job.groups(0)["default_pg"]["slot"] == 0
    assert words[Word.SENT_BYTES_1] == (1 + STEPS) * gradients
    assert words[Word.COLLECTIVES_1] == 1 + 1 + STEPS + 1


COMBINED = """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp"))
    place = mesh.get_local_rank("pp")
    module = torch.nn.Sequential(Layer())
    fully_shard(module, mesh=mesh["dp"], reshard_after_forward=False)
    stage = PipelineStage(module, place, 2, torch.device("cpu"), group=mesh.get_group("pp"))
    schedule = Schedule1F1B(stage, 2, loss_fn=lambda out, target: (out - target).square().mean())

    def step():
        whole = torch.ones(4, 8)
        schedule.step(*(whole,) * (place == 0), **{"target": whole} if place == 1 else {})

    train(step, module.parameters())
"""


def test_combined_each_wait_is_in_the_group_of_its_dimension(job: Job) -> None:
    job.run(COMBINED, world=4, slow=3)
    groups = [job.groups(rank) for rank in range(4)]
    pipe, data = ([group[title] for group in groups] for title in ("mesh_pp", "mesh_dp"))
    assert [group["ranks"] for group in pipe] == [[0, 2], [1, 3], [0, 2], [1, 3]]
    assert pipe[1]["digest"] == pipe[3]["digest"] != pipe[0]["digest"]
    assert data[2]["digest"] == data[3]["digest"] != data[0]["digest"]
    assert len({pipe[0]["slot"], data[0]["slot"], groups[0]["default_pg"]["slot"]}) == 3
    # The slow one's own stage waits for it to reduce gradients, the stage before it for its answer.
    assert job.waits_us(2)[data[2]["slot"]] > WAITED_US
    assert job.waits_us(1)[pipe[1]["slot"]] > WAITED_US
    assert job.singles_out(3)
    assert [job.layout(rank)["coordinate"] for rank in range(4)] == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert {tuple(job.layout(rank)["dims"]) for rank in range(4)} == {("pp", "dp")}


VARIED = """
    from contextlib import nullcontext
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(torch.nn.Sequential(Layer(), torch.nn.Linear(8, 8)))
    compiled = torch.compile(model, backend="aot_eager")

    def step():
        for micro_batch in range(2):
            with nullcontext() if micro_batch else model.no_sync():
                with torch.autocast("cpu", torch.bfloat16):
                    loss = compiled(torch.ones(4, 8)).mean()
                loss.backward()

    train(step, model.parameters())
"""


def test_compiled_with_accumulated_gradients_in_mixed_precision_it_is_the_same(job: Job) -> None:
    job.run(VARIED, world=2, slow=1)
    assert job.waits_us(0)[0] > WAITED_US
    assert job.singles_out(1)
    words = page.parse_words(job.stage.read(0))
    gradients = 2 * (8 * 8 + 8) * 4
    assert words[Word.SENT_BYTES_1] == (1 + STEPS) * gradients, "one of two passes is reduced"
