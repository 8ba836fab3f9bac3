"""What a step of an unmodified script computes: its own word, or parameters and tokens, or torch's
counter where the user asks for it."""

from __future__ import annotations

import socket

import pytest

from holdfast.contract.page import Word, bits_float

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("warm")]

WORDS, WIDTH, BATCH, LENGTH = 32, 16, 4, 8
PARAMETERS = 2 * WORDS * WIDTH + 2 * WIDTH**2
PRODUCTS = 3 * 2 * BATCH * LENGTH * (WORDS * WIDTH + 2 * WIDTH**2)
"""Of a step: the table of words is looked up, which takes no product."""

BEGIN = f"""
import torch
from torch import nn
torch.manual_seed(3)
blocks = [nn.Linear({WIDTH}, {WIDTH}, bias=False) for _ in range(2)]
model = nn.Sequential(nn.Embedding({WORDS}, {WIDTH}), *blocks, nn.Linear({WIDTH}, {WORDS}, False))
words = torch.randint(0, {WORDS}, (4 * 20, {LENGTH}))
loader = torch.utils.data.DataLoader(words, batch_size={BATCH})
"""

LOOP = """
optimizers = [torch.optim.SGD([one], lr=0.1) for one in model.parameters()]
modes = set()
for ids in loader:
    loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    modes.add(torch._C._len_torch_dispatch_stack())
print(modes)
"""

END = "print([one.detach().double().sum().item() for one in model.parameters()])"


def flops(stage, rank: int = 0) -> tuple[float, float]:
    assert stage.word(Word.HOOK_ERRORS, rank) == 0
    words = (Word.MODEL_FLOPS, Word.HARDWARE_FLOPS)
    model, hardware = (bits_float(stage.word(word, rank)) for word in words)
    return model, hardware


def test_without_a_word_of_its_own_they_are_six_for_each_parameter_and_token_id(stage) -> None:
    ended = stage.run(BEGIN + LOOP)
    assert (ended.code, ended.out, ended.err) == (0, "{0}\n", "")
    assert flops(stage) == (6 * PARAMETERS * BATCH * LENGTH, 0)


def test_batches_that_hold_no_token_ids_tell_nothing(stage) -> None:
    images = BEGIN + "loader = torch.utils.data.DataLoader(torch.randn(80, 3), batch_size=4)\n"
    images += "model = nn.Linear(3, 1)\n"
    images += LOOP.replace(
        "cross_entropy(model(ids).flatten(0, 1), ids.flatten())", "relu(model(ids)).sum()"
    )
    assert stage.run(images).code == 0
    assert flops(stage) == (0, 0)


def test_the_script_s_own_number_of_a_token_counts_with_the_tokens_that_it_reports(stage) -> None:
    script = """
    import torch, holdfast
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    job = holdfast.attach(model=model, optimizer=optimizer, flops_per_token=7e6)
    for step in job.steps(range(20)):
        model(torch.ones(2)).sum().backward()
        optimizer.step()
        job.report(tokens=1000)
    """
    ended = stage.run(script)
    assert (ended.code, ended.err) == (0, "")
    assert flops(stage) == (7e9, 0)


@pytest.mark.parametrize(("said", "told"), [("5e9", 5e9), ("0", 0.0)])
def test_what_the_variable_says_counts_for_every_step(stage, said: str, told: float) -> None:
    assert stage.run(BEGIN + LOOP, stage.environment(HOLDFAST_FLOPS=said)).code == 0
    assert flops(stage) == (told, 0)


def test_on_request_torch_counts_one_step_and_weights_stay_the_same(stage) -> None:
    script = BEGIN + LOOP + END
    counted = stage.run(script, stage.environment(HOLDFAST_FLOPS="count"))
    assert (counted.code, counted.err) == (0, "")
    assert flops(stage) == (PRODUCTS, PRODUCTS)
    plain = stage.run(script, stage.environment(HOLDFAST_ATTEMPT="1"))
    assert plain.out.splitlines()[-1] == counted.out.splitlines()[-1]


COMPILED = """
class Compiled(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, ids):
        return self.inner(ids)

model = Compiled(model)
model.compile(backend="aot_eager", fullgraph=True)
"""


def test_compiled_code_that_torch_s_counter_would_fail_is_not_counted(stage) -> None:
    script = BEGIN + COMPILED + LOOP
    ended = stage.run(script, stage.environment(HOLDFAST_FLOPS="count"))
    assert (ended.code, ended.out) == (0, "{0}\n"), ended.err
    assert "no step is counted" in ended.err
    assert flops(stage) == (0, 0)


SHARDED = """
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo")
for block in blocks:
    fully_shard(block)
fully_shard(model)
"""

LEAVE = """
dist.barrier()
del model, optimizers, optimizer, loss
dist.destroy_process_group()
"""


def test_of_a_fully_sharded_model_each_rank_needs_the_whole_for_its_tokens(stage) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    text = BEGIN + SHARDED + LOOP + LEAVE
    ranks = [stage.start(text, stage.environment(rank, 2, **rendezvous)) for rank in range(2)]
    for ended in [stage.end(rank) for rank in ranks]:
        assert ended.code == 0, ended.err
    for rank in range(2):
        assert flops(stage, rank) == (6 * PARAMETERS * BATCH * LENGTH, 0)
