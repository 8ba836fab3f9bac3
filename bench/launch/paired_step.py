"""A training process that steps with Holdfast's hooks on and off in turn; prints its blocks."""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from bench.stepped_model import make_model
from holdfast.contract.page import Word
from holdfast.rank import attachment, process

WARM_UP_STEPS = 50


class Switch:
    """Whatever attaching changes in torch, found by comparing before and after."""

    def __init__(self, attach: Callable[[], None]) -> None:
        from torch.optim import optimizer

        self._hooks = (
            optimizer._global_optimizer_pre_hooks,
            optimizer._global_optimizer_post_hooks,
        )
        before = [(owner, dict(vars(owner))) for owner in owners()]
        hooks_before, self._collector_off = [dict(hooks) for hooks in self._hooks], [*gc.callbacks]
        attach()
        self._changes = [
            (owner, name, was[name], value)
            for owner, was in before
            for name, value in list(vars(owner).items())
            if name in was and was[name] is not value and callable(value)
        ]
        self._hooks_on, self._collector_on = [dict(hooks) for hooks in self._hooks], [*gc.callbacks]
        self._hooks_off = hooks_before
        if not self._changes or self._hooks_on == self._hooks_off:
            raise SystemExit("attaching changed nothing in torch")

    def turn(self, on: bool) -> None:
        """Put torch as it is with hooks, or as it was without."""
        for owner, name, was, now in self._changes:
            setattr(owner, name, now if on else was)
        wanted = self._hooks_on if on else self._hooks_off
        for hooks, content in zip(self._hooks, wanted, strict=True):
            hooks.clear()
            hooks.update(content)
        gc.callbacks[:] = self._collector_on if on else self._collector_off


def owners() -> list[Any]:
    """All modules of torch that are loaded, and their classes: a list by hand grows old, and what
    it lacks would be paid with hooks off as well."""
    modules = [
        module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "torch"
    ]
    classes = {
        value
        for module in modules
        for value in list(vars(module).values())
        if issubclass(type(value), type) and str(value.__module__).partition(".")[0] == "torch"
    }
    return [*modules, *classes]


def main(pairs: int, steps_per_block: int) -> None:
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    samples = torch.utils.data.TensorDataset(torch.randn(4096, 256))
    switch = Switch(attachment.arm)

    def batches() -> Any:
        while True:
            yield from torch.utils.data.DataLoader(samples, batch_size=32)

    source = batches()

    def block(steps: int) -> int:
        started = time.perf_counter_ns()
        for _ in range(steps):
            (inputs,) = next(source)
            loss = model(inputs).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return time.perf_counter_ns() - started

    for on in (True, False):
        switch.turn(on)
        block(WARM_UP_STEPS)
    times: dict[bool, list[int]] = {True: [], False: []}
    recorded = _steps_recorded()
    for pair in range(pairs):
        for on in (True, False) if pair % 2 else (False, True):
            switch.turn(on)
            times[on].append(block(steps_per_block))
    _check(_steps_recorded() - recorded, pairs * steps_per_block)
    print(json.dumps({"on_ns": times[True], "off_ns": times[False]}))


def _steps_recorded() -> int:
    recorder = process.current()
    if recorder is None:
        raise SystemExit("the hooks did not attach")
    return recorder.word(Word.PUBLISHED)


def _check(recorded: int, expected: int) -> None:
    """The hooks must have worked in all blocks that are called on, and in none that are off."""
    if recorded != expected:
        raise SystemExit(f"{recorded} steps were recorded with hooks on, not {expected}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
