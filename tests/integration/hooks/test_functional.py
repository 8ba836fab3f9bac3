"""Functional collectives and handles with the real torch: counted, awaited in their group, and
nothing at all inside a compiled graph."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.contract.page import Word

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("warm")]

SCRIPT = """
    import json, os, time
    import torch
    import torch.distributed as dist
    import torch.distributed._functional_collectives as functional
    from holdfast.rank import process
    from holdfast.contract.page import Word

    rank = int(os.environ["RANK"])
    store = dist.FileStore("store", 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    pair = dist.new_group([0, 1])
    recorder = process.current()
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer.step()
    found = {}

    def seen(name, call):
        words = [Word.COLLECTIVES_2, Word.SENT_BYTES_2]
        before = [recorder.word(word) for word in words]
        answer = call()
        found[name] = [recorder.word(word) - old for word, old in zip(words, before)]
        return answer

    ones = torch.ones(4, 2)  # 32 bytes
    seen("all_reduce", lambda: functional.all_reduce(ones, "sum", pair) + 0)
    seen("by name", lambda: functional.all_reduce(ones, "sum", pair.group_name) + 0)
    seen("all_gather", lambda: functional.all_gather_single(ones, 0, pair) + 0)
    seen("beside", lambda: functional.all_gather_single(ones, 1, pair) + 0)
    seen("reduce_scatter", lambda: functional.reduce_scatter_single(ones, "sum", 0, pair) + 0)
    seen("all_to_all", lambda: functional.all_to_all_single(ones, None, None, pair) + 0)
    both = seen("coalesced", lambda: functional.all_reduce_coalesced([ones, ones], "sum", pair))
    sums = [tensor + 0 for tensor in both]

    graph = torch.compile(
        lambda told: functional.all_reduce(told * 2, "sum", pair) + 1,
        backend="aot_eager",
        fullgraph=True,
    )
    found["compiled value"] = seen("compiled", lambda: graph(ones))[0].tolist()

    handle = seen("handle", lambda: dist.all_reduce(torch.ones(8), group=pair, async_op=True))
    time.sleep(0.05)
    handle.wait()
    optimizer.step()
    if rank == 1:
        time.sleep(0.5)
    view = functional.all_reduce(ones, "sum", pair).view(-1)
    found["sum"] = view.sum().item()
    found["errors"] = recorder.word(Word.HOOK_ERRORS)
    optimizer.step()
    print(json.dumps(found), flush=True)
    dist.barrier()
    os._exit(0)
"""


def test_each_is_counted_with_the_bytes_of_its_larger_side_and_awaited_in_its_group(
    stage: Any,
) -> None:
    ranks = [stage.start(SCRIPT, stage.environment(rank, 2)) for rank in range(2)]
    for rank, process in enumerate(ranks):
        ended = stage.end(process, timeout_s=100)
        assert ended.code == 0, ended.err
        assert "holdfast" not in ended.err
        assert json.loads(ended.out) == {
            "all_reduce": [1, 32],
            "by name": [1, 32],
            "all_gather": [1, 64],
            "beside": [1, 64],
            "reduce_scatter": [1, 32],
            "all_to_all": [1, 32],
            "coalesced": [1, 64],
            "compiled": [0, 0],
            "compiled value": [5.0, 5.0],
            "handle": [1, 32],
            "sum": 16.0,
            "errors": 0,
        }
        assert stage.word(Word.COLLECTIVES_1, rank) == 1, "the barrier at the end"
    waits_us = []
    for rank in range(2):
        *_, before, record = stage.records(rank)
        assert before.overlapped_us > 45_000
        waits_us.append(record.waits_us[1])
    assert waits_us[0] - waits_us[1] > 250_000
