"""A rank that mostly sleeps, and suffers what the plan in PLAN says.

Its own work of a step (sleep and a little computing, in the loader, the forward and the backward
pass) is noted beside the plan, so that it is known how slow a planted fault made it.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import random
import statistics
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import holdfast
from bench.stragglers.real_plan import Plan
from holdfast_sidecar.records.steps import SlowCause

LOADING, COMPUTING, BACKWARD = 0.1, 0.1, 0.3
"""Of own time: the loader, what really computes, the backward pass; the rest is the forward's."""
BY_WORK = 1 - LOADING - COMPUTING
"""Of own time, the part that grows with the work of a step."""
TOKENS = 4096
PERIOD_US = 10_000
LEAST_QUOTA_US = 1_000
"""The kernel allows no less."""
AMPLE_QUOTA_US = 100 * PERIOD_US
"""A hundred cores: containers have a quota from the start, and no process uses so much."""
LITTER = 20_000
"""Objects that a garbage collection has to look through, a millisecond; torch's own are kept out of
it, as they would take a tenth of a second."""


class Batches(Sequence[int]):
    """What is loaded takes its time."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank

    def __len__(self) -> int:
        return self._rank.plan.steps

    def __getitem__(self, step: Any) -> Any:
        self._rank.begin(step)
        self._rank.load()
        return step


class Slowly(torch.autograd.Function):  # type: ignore[misc]
    """Its backward pass takes as long as it is told to."""

    @staticmethod
    def forward(ctx: Any, value: Any, rank: Rank) -> Any:
        ctx.rank = rank
        return value.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        ctx.rank.go_back()
        return gradient, None


class Rank:
    """One rank's life, step by step."""

    def __init__(self, plan: Plan, number: int) -> None:
        self.plan = plan
        self.number = number
        self.chance = random.Random(plan.seed * 1000 + number)
        self.own_s: list[float] = [0.0] * plan.steps
        self.begun_s: list[float] = []
        self.computed_s: deque[float] = deque(maxlen=32)
        """What computing took of late while it was well: others may want the cores, too."""
        self.litter: list[list[int]] = []
        group = plan.groups.get(str(number))
        self.group = None if group is None else Path(group)

    def begin(self, step: int) -> None:
        """A step begins: what is the matter with it?"""
        self.step = step
        self.begun_s.append(time.monotonic())
        struck = (one for one in self.plan.episodes if one.strikes(self.number, step))
        self.episode = next(struck, None)
        self.cause = "" if self.episode is None else self.episode.cause
        self.more_s = 0.0 if self.episode is None else self.episode.slowdown * self.plan.own_s
        self.work = math.exp(self.chance.gauss(0.0, self.plan.lengths))
        if self.cause == SlowCause.UNEVEN_WORK.value:
            self.work *= 1 + self.more_s / (BY_WORK * self.plan.own_s)
        if self.group is not None:
            self._set_quota(self.group)

    def load(self) -> None:
        late_s = self.more_s if self.cause == SlowCause.DATA_LOADING.value else 0.0
        self._spend(LOADING, late_s)

    def go_forward(self) -> None:
        if self.cause == SlowCause.COLLECTOR.value:
            self._collect(self.more_s)
        self._compute(COMPUTING * self.plan.own_s)
        late_s = self.more_s if self.cause == SlowCause.COMPUTE.value else 0.0
        self._spend((BY_WORK - BACKWARD) * self.work, late_s)

    def go_back(self) -> None:
        self._spend(BACKWARD * self.work)

    @property
    def tokens(self) -> int:
        return round(TOKENS * self.work)

    def _spend(self, share: float, more_s: float = 0.0) -> None:
        started_s = time.perf_counter()
        usual_s = share * self.plan.own_s * (1 + self.chance.gauss(0.0, self.plan.jitter))
        time.sleep(max(0.0, usual_s + more_s))
        self.own_s[self.step] += time.perf_counter() - started_s

    def _compute(self, cpu_s: float) -> None:
        started_s, until_s = time.perf_counter(), time.thread_time() + cpu_s
        while time.thread_time() < until_s:
            pass
        took_s = time.perf_counter() - started_s
        self.own_s[self.step] += took_s
        if not self.cause:
            self.computed_s.append(took_s)

    def _collect(self, seconds: float) -> None:
        self.litter = self.litter or [[number] for number in range(LITTER)]
        started_s = time.perf_counter()
        while time.perf_counter() - started_s < seconds:
            gc.collect()
        self.own_s[self.step] += time.perf_counter() - started_s

    def _set_quota(self, group: Path) -> None:
        """One by which what is computed in a step takes so much longer; ample while it is well.

        In the last of the periods that it takes nothing is waited for.
        """
        quota_us = AMPLE_QUOTA_US
        if self.cause == SlowCause.CPU_QUOTA.value:
            cpu_s = COMPUTING * self.plan.own_s
            wanted_s = statistics.median(self.computed_s) + self.more_s + PERIOD_US / 1e6
            quota_us = max(LEAST_QUOTA_US, round(PERIOD_US * cpu_s / wanted_s))
        unified = group / "cpu.max"
        if unified.exists():
            unified.write_text(f"{quota_us} {PERIOD_US}")
        else:
            (group / "cpu.cfs_quota_us").write_text(str(quota_us))


def main() -> None:
    plan_file = Path(os.environ["PLAN"])
    plan = Plan.parse(plan_file.read_text())
    torch.set_num_threads(1)
    number = int(os.environ["RANK"])
    rank = Rank(plan, number)
    if rank.group is not None:
        if not (rank.group / "cpu.max").exists():
            (rank.group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (rank.group / "cgroup.procs").write_text(str(os.getpid()))
    dist.init_process_group("gloo")
    width = max(8, math.isqrt(plan.gradient_bytes // 4))
    torch.manual_seed(plan.seed)
    model = DistributedDataParallel(torch.nn.Linear(width, width))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    inputs = torch.randn(2, width)
    saved = {"model": model, "optimizer": optimizer} if plan.saves_every else {}
    job = holdfast.attach(**saved)
    job.resume()
    gc.collect()
    gc.freeze()
    for step in job.steps(Batches(rank)):
        rank.go_forward()
        loss = Slowly.apply(model(inputs), rank).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        job.report(loss=loss.item(), tokens=rank.tokens)
        if plan.evaluates_every and step % plan.evaluates_every == plan.evaluates_every - 1:
            _evaluate(model, inputs)
    told = plan_file.with_name(f"own-{number}.json")
    told.write_text(json.dumps({"own_s": rank.own_s, "begun_s": rank.begun_s}))
    with contextlib.suppress(RuntimeError):
        dist.destroy_process_group()


def _evaluate(model: Any, inputs: Any) -> None:
    model.eval()
    with torch.no_grad():
        for _ in range(20):
            model(inputs)
            time.sleep(0.01)
    model.train()


if __name__ == "__main__":
    main()
