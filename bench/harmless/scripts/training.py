"""Healthy jobs whose loops are unlike the textbook's: python training.py NAME.

All name their state to Holdfast and ask where to go on, so that each can be killed and compared.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import odd
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset, IterableDataset

import holdfast


class Numbers(Dataset[torch.Tensor]):  # type: ignore[misc]
    """As many samples as steps, for this rank."""

    def __len__(self) -> int:
        return int(odd.STEPS)

    def __getitem__(self, index: int) -> torch.Tensor:
        return odd.batch(index)


class Stream(IterableDataset[torch.Tensor]):  # type: ignore[misc]
    """The same without a length."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        for step in range(odd.STEPS):
            yield odd.batch(step)


def loader(
    data: Dataset[torch.Tensor], workers: int = 0, how: str = "fork"
) -> DataLoader[torch.Tensor]:
    context = how if workers else None
    return DataLoader(data, batch_size=None, num_workers=workers, multiprocessing_context=context)


def square(model: nn.Module, sample: torch.Tensor) -> torch.Tensor:
    return model(sample).square().mean()


def three_lines(data: DataLoader[torch.Tensor]) -> None:
    """The textbook's loop over this loader."""
    odd.begin()
    three_lines_of(data, odd.replicated(odd.network()))


def three_lines_of(data: DataLoader[torch.Tensor], model: nn.Module) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    job = holdfast.attach(model=model, optimizer=optimizer, loader=data)
    step = odd.going_on(job.resume())
    for sample in job.steps(data, until=odd.STEPS):
        optimizer.zero_grad()
        square(model, sample).backward()
        optimizer.step()
        odd.pause()
        odd.tell_step(step)
        step += 1
    odd.finish(model.module)


def textbook() -> None:
    three_lines(loader(Numbers()))


class Growing:
    """Memory that rank 0 takes: most of its control group's limit at once, then little by little,
    as a cache does, until almost nothing is left but what snapshots hold, under Holdfast."""

    FIRST_STEP = 60
    """Snapshots have their memory by then."""
    AT_ONCE, IN_THE_END = 0.8, 0.92
    BYTES_A_STEP = 1_000_000

    def __init__(self) -> None:
        self._group = Path(os.environ["ODD_MEMORY_GROUP"])
        self._limit = int((self._group / "memory.limit_in_bytes").read_text())
        self._taken: list[torch.Tensor] = []
        self.is_grown = odd.rank() != 0

    def __call__(self, step: int) -> None:
        if self.is_grown or step < self.FIRST_STEP:
            return
        used = self._used()
        size = self.BYTES_A_STEP if self._taken else int(self.AT_ONCE * self._limit) - used
        self._taken.append(torch.ones(max(0, size), dtype=torch.uint8))
        self.is_grown = used >= self.IN_THE_END * self._limit

    def _used(self) -> int:
        stat = (self._group / "memory.stat").read_text().split()
        return int(stat[stat.index("total_rss") + 1])


def grows_into_its_limit() -> None:
    """State of 50 MB, so that what snapshots hold is more than what is left in the end."""
    odd.begin()
    torch.manual_seed(odd.SEED)
    model = odd.replicated(nn.Linear(2048, 2048))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    job = holdfast.attach(model=model, optimizer=optimizer)
    grow = Growing()
    for step in job.steps(range(job.resume(), odd.STEPS)):
        optimizer.zero_grad()
        model(odd.batch(step).repeat(1, 2048 // odd.WIDTH)).square().mean().backward()
        optimizer.step()
        odd.pause()
        odd.tell_step(step)
        grow(step)
    odd.finish(model.module, more=grow.is_grown)


def fork_workers() -> None:
    three_lines(loader(Numbers(), 2))


def spawn_workers() -> None:
    three_lines(loader(Numbers(), 1, "spawn"))


def stream() -> None:
    three_lines(loader(Stream()))


def stateful_stream() -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    three_lines(StatefulDataLoader(Stream(), batch_size=None, num_workers=0))


def accumulation() -> None:
    """Four micro-batches per optimizer step."""
    odd.begin()
    model = odd.replicated(odd.network())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = loader(Numbers())
    job = holdfast.attach(model=model, optimizer=optimizer, loader=data)
    step = odd.going_on(job.resume())
    for sample in job.steps(data, until=odd.STEPS):
        (square(model, sample) / 4).backward()
        if step % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
        odd.pause()
        odd.tell_step(step)
        step += 1
    odd.finish(model.module)


def skipped_by_the_scaler() -> None:
    """fp16's scaler passes over the steps whose gradients overflow."""
    odd.begin()
    model = odd.replicated(odd.network())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=5)
    data = loader(Numbers())
    job = holdfast.attach(model=model, optimizer=optimizer, scaler=scaler, loader=data)
    step = odd.going_on(job.resume())
    for sample in job.steps(data, until=odd.STEPS):
        optimizer.zero_grad()
        loss = square(model, sample)
        if step % 7 == 3:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        odd.pause()
        odd.tell_step(step)
        step += 1
    odd.finish(model.module, more=scaler.get_scale())


class Average:
    """Weights' moving average, whose load assigns."""

    def __init__(self, model: nn.Module) -> None:
        self.shadow = {name: value.clone() for name, value in model.state_dict().items()}

    def update(self, model: nn.Module) -> None:
        for name, value in model.state_dict().items():
            self.shadow[name].mul_(0.9).add_(value, alpha=0.1)

    def state_dict(self) -> dict[str, torch.Tensor]:
        return self.shadow

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        self.shadow = state


def moving_average() -> None:
    """Evaluated with its average's weights at each step, which are swapped in and out."""
    odd.begin()
    model = odd.replicated(odd.network())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    average, data = Average(model.module), loader(Numbers())
    job = holdfast.attach(model=model, optimizer=optimizer, ema=average, loader=data)
    step = odd.going_on(job.resume())
    for sample in job.steps(data, until=odd.STEPS):
        own = copy.deepcopy(model.module.state_dict())
        model.module.load_state_dict(average.shadow)
        with torch.no_grad():
            model.module(sample)
        model.module.load_state_dict(own)
        optimizer.zero_grad()
        square(model, sample).backward()
        optimizer.step()
        average.update(model.module)
        odd.pause()
        odd.tell_step(step)
        step += 1
    shadow = odd.network()
    shadow.load_state_dict(average.shadow)
    odd.finish(model.module, shadow)


def sharpness_aware() -> None:
    """SAM: weights move between two backward passes of one step."""
    odd.begin()
    model = odd.replicated(odd.network())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    data = loader(Numbers())
    job = holdfast.attach(model=model, optimizer=optimizer, loader=data)
    step = odd.going_on(job.resume())
    for sample in job.steps(data, until=odd.STEPS):
        optimizer.zero_grad()
        square(model, sample).backward()
        with torch.no_grad():
            moves = [(p, 0.05 * p.grad) for p in model.parameters() if p.grad is not None]
            for weights, move in moves:
                weights.add_(move)
        optimizer.zero_grad()
        square(model, sample).backward()
        with torch.no_grad():
            for weights, move in moves:
                weights.sub_(move)
        optimizer.step()
        odd.pause()
        odd.tell_step(step)
        step += 1
    odd.finish(model.module)


def two_optimizers() -> None:
    """A generator and a critic in turns."""
    odd.begin()
    first, second = odd.replicated(odd.network(1)), odd.replicated(odd.network(2))
    one = torch.optim.Adam(first.parameters(), lr=1e-3)
    two = torch.optim.RMSprop(second.parameters(), lr=1e-3)
    data = loader(Numbers())
    job = holdfast.attach(first=first, second=second, one=one, two=two, loader=data)
    step = odd.going_on(job.resume())
    for sample in job.steps(data, until=odd.STEPS):
        model, optimizer = (first, one) if step % 3 else (second, two)
        optimizer.zero_grad()
        square(model, sample).backward()
        optimizer.step()
        odd.pause()
        odd.tell_step(step)
        step += 1
    odd.finish(first.module, second.module)


def line_search() -> None:
    """LBFGS calls the loss several times per step."""
    odd.begin()
    model = odd.replicated(odd.network())
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1e-2, max_iter=3)
    data = loader(Numbers())
    job = holdfast.attach(model=model, optimizer=optimizer, loader=data)
    step = odd.going_on(job.resume())
    for sample in job.steps(data, until=odd.STEPS):

        def closure(sample: torch.Tensor = sample) -> torch.Tensor:
            optimizer.zero_grad()
            loss = square(model, sample)
            loss.backward()
            return loss

        optimizer.step(closure)
        odd.pause()
        odd.tell_step(step)
        step += 1
    odd.finish(model.module)


def scheduled() -> None:
    """A learning rate that is a tensor, and a scheduler."""
    odd.begin()
    model = odd.replicated(odd.network())
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(1e-3), foreach=False)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, odd.STEPS)
    data = loader(Numbers())
    job = holdfast.attach(model=model, optimizer=optimizer, schedule=schedule, loader=data)
    step = odd.going_on(job.resume())
    for sample in job.steps(data, until=odd.STEPS):
        optimizer.zero_grad()
        square(model, sample).backward()
        optimizer.step()
        schedule.step()
        odd.pause()
        odd.tell_step(step)
        step += 1
    odd.finish(model.module, more=float(optimizer.param_groups[0]["lr"]))


def compiled() -> None:
    """Step and optimizer compiled."""
    odd.begin()
    model = odd.replicated(torch.compile(odd.network(), backend="aot_eager"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    take_step = torch.compile(optimizer.step, backend="aot_eager")
    data = loader(Numbers())
    job = holdfast.attach(model=model, optimizer=optimizer, loader=data)
    step = odd.going_on(job.resume())
    for sample in job.steps(data, until=odd.STEPS):
        optimizer.zero_grad()
        square(model, sample).backward()
        take_step()
        odd.pause()
        odd.tell_step(step)
        step += 1
    odd.finish(model.module)


def compiled_by_inductor() -> None:
    """Compiled as by default, in subprocesses, with a C++ compiler."""
    odd.begin()
    model = odd.replicated(torch.compile(odd.network()))
    three_lines_of(loader(Numbers()), model)


def sharded_with_evaluation() -> None:
    """FSDP2, evaluated before every boundary."""
    odd.begin()
    model = odd.network()
    fully_shard(model[0])
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = loader(Numbers())
    job = holdfast.attach(model=model, optimizer=optimizer, loader=data)
    step = odd.going_on(job.resume())
    for sample in job.steps(data, until=odd.STEPS):
        optimizer.zero_grad()
        square(model, sample).backward()
        optimizer.step()
        with torch.no_grad():
            model(sample)
        odd.pause()
        odd.tell_step(step)
        step += 1
    odd.finish(model)


def weight_noise() -> None:
    """Embeddings that are renormalised as they are read, and noise on the weights."""
    odd.begin()
    table = nn.Embedding(64, odd.WIDTH, max_norm=1.0)
    with torch.no_grad():
        table.weight.copy_(odd.batch(0)[0].repeat(64, 1) * torch.arange(64).unsqueeze(1))
        torch.distributed.broadcast(table.weight, 0)
    model = odd.replicated(nn.Sequential(table, odd.network()))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    data = loader(Numbers())
    job = holdfast.attach(model=model, optimizer=optimizer, loader=data)
    step = odd.going_on(job.resume())
    for sample in job.steps(data, until=odd.STEPS):
        optimizer.zero_grad()
        words = (sample[0].abs() * 20).long().clamp(max=63)
        model(words).square().mean().backward()
        optimizer.step()
        odd.pause()
        odd.tell_step(step)
        step += 1
    odd.finish(model.module)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
