"""The parts of a step of unmodified scripts, with the real torch, run as ranks."""

from __future__ import annotations

import statistics

import pytest

from holdfast.contract.page import Record, RecordFlag, Word

pytestmark = pytest.mark.torch

SLEEP_US = 60_000

TWO_RANKS = """
    import os, time
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.checkpoint import checkpoint

    rank = int(os.environ["RANK"])
    store = dist.FileStore("store", 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    sleeps_in = ""

    class Work(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            if sleeps_in == "forward" and rank == 1:
                time.sleep(0.06)
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            if sleeps_in == "backward" and rank == 1:
                time.sleep(0.06)
            return gradient

    layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(3))
    normalized = torch.nn.BatchNorm1d(8)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = layers
            self.normalized = normalized
            self.keeps = True

        def forward(self, x):
            first, second, third = self.layers
            x = self.normalized(Work.apply(first(x)))
            x = second(x) if self.keeps else checkpoint(second, x, use_reentrant=False)
            return third(x).mean()

    model = DistributedDataParallel(Model(), bucket_cap_mb=0.0001)
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.01)
    x = torch.ones(2, 8)
    for step in range(4):
        model(x).backward()
        optimizer.step()
    for sleeps_in in ("backward", "forward"):
        for step in range(3):
            model(x).backward()
            optimizer.step()
    for step in range(3):
        with model.no_sync():
            model(x).backward()
        model(x).backward()
        optimizer.step()
    model.module.keeps = False
    sleeps_in = "backward"
    for step in range(3):
        model(x).backward(retain_graph=True)
        optimizer.step()
    sleeps_in = ""
    for step in range(3):
        if rank == 0:
            time.sleep(0.06)  # as if its batch came late: its peers wait for it in their forward
        model(x).backward()
        optimizer.step()
    del model
    dist.destroy_process_group()
    """


def middle(records: list[Record], part: str) -> float:
    return float(statistics.median(getattr(record, part) for record in records))


def test_a_slow_peer_is_waited_for_and_makes_nobodys_own_backward_pass_longer(stage) -> None:
    processes = [stage.start(TWO_RANKS, stage.environment(rank, 2)) for rank in range(2)]
    for process in processes:
        ended = stage.end(process)
        assert ended.code == 0, ended.err
    healthy, slow = stage.records(0), stage.records(1)
    assert len(healthy) == len(slow) == 19
    for rank, records in enumerate((healthy, slow)):
        assert stage.word(Word.HOOK_ERRORS, rank) == 0
        assert all(record.flags & RecordFlag.WAITS_SEEN for record in records[4:])
        for record in records[4:]:
            parts = record.forward_us + record.backward_us + record.communicating_us
            assert abs(parts + record.optimizer_us + record.other_us - record.total_us) < 10
            assert abs(sum(record.waits_us) - record.communicating_us) < 1000
    blocks = {"backward": slice(4, 7), "forward": slice(7, 10), "kept": slice(13, 16)}
    for name, block in blocks.items():
        slow_in = "forward_us" if name == "forward" else "backward_us"
        assert middle(slow[block], slow_in) > SLEEP_US * 0.9, name
        assert middle(slow[block], "communicating_us") < SLEEP_US * 0.5, name
        assert middle(healthy[block], "communicating_us") > SLEEP_US * 0.7, name
        for part in ("forward_us", "backward_us"):
            assert middle(healthy[block], part) < SLEEP_US * 0.5, (name, part)
    late = slice(16, 19)
    assert middle(slow[late], "forward_us") < SLEEP_US * 0.5
    assert middle(slow[late], "communicating_us") > SLEEP_US * 0.7
    accumulated = slice(10, 13)
    assert [record.backwards for record in healthy[accumulated]] == [2, 2, 2]
    assert middle(slow[accumulated], "forward_us") > 2 * SLEEP_US * 0.9
    assert middle(healthy[accumulated], "communicating_us") > 2 * SLEEP_US * 0.8


def test_work_evaluation_saves_and_the_garbage_collector_are_seen(stage) -> None:
    ended = stage.run(
        """
        import gc, time
        import torch
        import torch.distributed.checkpoint as checkpoint
        from torch.utils.data import DataLoader

        model = torch.nn.Linear(10, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        loader = DataLoader([{"ids": torch.arange(10)} for _ in range(20)], batch_size=4)
        batches = iter(loader)

        def train():
            model(next(batches)["ids"].float()).mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        gc.disable()
        train()
        torch.save(model.state_dict(), "model.pt")
        checkpoint.save({"model": model.state_dict()}, checkpoint_id="saved", no_dist=True)
        train()
        with torch.no_grad():
            for batch in loader:
                time.sleep(0.01)
        train()
        kept = [[[] for _ in range(100)] for _ in range(1000)]
        gc.collect()
        train()
        """,
        stage.environment(HOLDFAST_FLOPS="0"),
    )
    assert ended.code == 0, ended.err
    first, saved, evaluated, collected = stage.records()
    assert stage.word(Word.HOOK_ERRORS) == 0
    for record in (first, saved, evaluated, collected):
        assert (record.tokens, record.squares) == (40, 400.0)
        assert not record.flags & RecordFlag.WORK_REPORTED
    assert first.saving_us == first.evaluating_us == first.collector_us == 0
    assert saved.saving_us > 1000
    assert evaluated.evaluating_us >= 50_000
    assert evaluated.data_us < 10_000
    assert collected.collector_us > 500
