"""Replicated models that are compiled, whose compiler runs in the step that is counted."""

from __future__ import annotations

import socket

import pytest

from holdfast.counted_step import COUNTED
from holdfast.page import Word, bits_float

pytestmark = pytest.mark.torch

SCRIPT = """
import torch, torch.distributed as dist
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.registry import lookup_backend
dist.init_process_group("gloo")
torch.manual_seed(3)
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
graphs = []
def backend(graph, inputs):
    graphs.append(graph.print_readable(print_output=False))
    return lookup_backend({backend!r})(graph, inputs)
replicate = torch.nn.parallel.DistributedDataParallel
{order}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for number in range(1, {counted} + 4):
    x = torch.randn(8 if number != {counted} else 5, 16)
    loss = trainee(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item().hex())
from torch._dynamo.utils import counters
print(losses, [one.detach().sum().item().hex() for one in model.parameters()])
print({{key: dict(one) for key, one in counters.items()}})
print("\\n".join(graphs))
dist.barrier()
del trainee, model, optimizer
dist.destroy_process_group()
"""

ORDERS = {
    "compiled inside of DDP": "trainee = replicate(torch.compile(model, backend=backend))",
    "DDP inside of what is compiled": "trainee = torch.compile(replicate(model), backend=backend)",
    "static shapes": ("trainee = replicate(torch.compile(model, backend=backend, dynamic=False))"),
    "compiled autograd": (
        "torch._dynamo.config.compiled_autograd = True\n"
        "torch._dynamo.config.optimize_ddp = 'python_reducer'\n"
        "trainee = torch.compile(replicate(model), backend=backend)"
    ),
}


def run(stage, text: str, attempt: int, **changes: str) -> list[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    # What the run before compiled would be found there, and counted otherwise.
    no_cache = {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
    more = {**address, **no_cache, **changes, "HOLDFAST_ATTEMPT": str(attempt)}
    ranks = [stage.start(text, stage.environment(rank, 2, **more)) for rank in range(2)]
    ended = [stage.end(one, timeout_s=120) for one in ranks]
    assert [one.code for one in ended] == [0, 0], ended[0].err
    return [one.out for one in ended]


@pytest.mark.parametrize(
    ("order", "backend"),
    [(order, "aot_eager") for order in ORDERS] + [("compiled inside of DDP", "inductor")],
)
def test_what_is_compiled_in_the_counted_step_is_compiled_as_it_would_be(
    stage, order: str, backend: str
) -> None:
    text = SCRIPT.format(order=ORDERS[order], backend=backend, counted=COUNTED)
    counted = run(stage, text, 0)
    # The step after the one in which the compiler ran is counted instead.
    assert [bits_float(stage.word(Word.MODEL_FLOPS, rank)) > 0 for rank in range(2)] == [True] * 2
    assert [stage.word(Word.HOOK_ERRORS, rank) for rank in range(2)] == [0, 0]
    assert counted == run(stage, text, 1, HOLDFAST_FLOPS="0")
