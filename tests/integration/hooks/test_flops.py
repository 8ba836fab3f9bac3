"""Unmodified scripts whose operations are counted: compiled, sharded or accumulated."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from tests.unit.hooks.small_transformer import BATCH, LAYERS, LENGTH, MODEL_FLOPS, WIDTH

from holdfast.page import Word, bits_float

pytestmark = pytest.mark.torch

WARM = pytest.mark.usefixtures("warm")

ROOT = str(Path(__file__).parents[3])

BEGIN = f"""
import sys, torch
sys.path[:0] = [{ROOT!r}]
from tests.unit.hooks.small_transformer import Transformer, batch, loss_of
torch.manual_seed(3)
model = Transformer()
"""

LOOP = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    for _ in range({passes}):
        loss_of(model, batch()).backward()
    optimizer.step()
    optimizer.zero_grad()
"""

END = """
print([one.detach().double().sum().item() for one in model.parameters()])
"""


def flops(stage, rank: int = 0) -> float:
    assert stage.word(Word.HOOK_ERRORS, rank) == 0
    return bits_float(stage.word(Word.MODEL_FLOPS, rank))


@WARM
@pytest.mark.parametrize("passes", [1, 3])
def test_an_accumulated_step_counts_all_its_backward_passes(stage, passes: int) -> None:
    ended = stage.run(BEGIN + LOOP.format(passes=passes))
    assert (ended.code, ended.err) == (0, "")
    assert flops(stage) == pytest.approx(passes * MODEL_FLOPS, rel=0.05)


COMPILED = BEGIN + "model.compile(backend={!r}, fullgraph=True)" + LOOP.format(passes=1) + END
COMPILED += """
from torch._dynamo.utils import counters
print(counters["frames"], counters["stats"])
"""


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_compiled_model_counts_as_much_and_is_neither_compiled_again_nor_run_eagerly(
    stage, request: pytest.FixtureRequest, backend: str
) -> None:
    if backend != "inductor":  # which starts processes of its own to compile in
        request.getfixturevalue("warm")
    text = COMPILED.format(backend)
    counted = stage.run(text)
    assert (counted.code, counted.err) == (0, "")
    assert flops(stage) == pytest.approx(MODEL_FLOPS, rel=0.05)
    plain = stage.run(text, stage.environment(HOLDFAST_FLOPS="0", HOLDFAST_ATTEMPT="1"))
    assert plain.out == counted.out


GATHER = """
import torch.distributed as dist
dist.init_process_group("gloo")
"""

SHARDED = {
    "replicated": """
model = torch.nn.parallel.DistributedDataParallel(model)
""",
    "fully sharded": """
from torch.distributed.fsdp import fully_shard
for block in model.blocks:
    fully_shard(block)
fully_shard(model)
""",
    "tensor parallel": """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel, RowwiseParallel, parallelize_module,
)
mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
for block in model.blocks:
    parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
""",
}

LEAVE = """
dist.barrier()
del model, optimizer
dist.destroy_process_group()
"""

UP_AND_DOWN = 3 * BATCH * LAYERS * 2 * LENGTH * 8 * WIDTH**2
"""The products that are split among ranks here."""


@WARM
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("replicated", MODEL_FLOPS),
        ("fully sharded", MODEL_FLOPS),
        ("tensor parallel", MODEL_FLOPS - UP_AND_DOWN / 2),
    ],
)
def test_of_a_sharded_model_each_rank_counts_its_own_part(
    stage, kind: str, expected: float
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    text = BEGIN + GATHER + SHARDED[kind] + LOOP.format(passes=1) + LEAVE
    ranks = [stage.start(text, stage.environment(rank, 2, **rendezvous)) for rank in range(2)]
    for ended in [stage.end(rank) for rank in ranks]:
        assert ended.code == 0, ended.err
    for rank in range(2):
        assert flops(stage, rank) == pytest.approx(expected, rel=0.05)
