"""Whatever a rank started ends with the launcher, even when that is killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import pytest
from tests.end_to_end.run.test_faults import await_exit, await_ranks, await_that

if TYPE_CHECKING:
    from tests.end_to_end.run.conftest import Ground

pytestmark = pytest.mark.torch

WORK = """
import time
import torch
from torch.utils.data import DataLoader

def main():
    loaders = [
        DataLoader(range(10**6), num_workers=1, multiprocessing_context=how)
        for how in ("fork", "spawn")
    ]
    iterators = [iter(loader) for loader in loaders]
    for iterator in iterators:
        next(iterator)
    from torch._inductor.async_compile import AsyncCompile
    AsyncCompile.warm_pool()
    AsyncCompile.wait_pool_ready(30)
    open(os.path.join(os.environ["OUT"], f"ready-{rank}"), "w").close()
    while True:
        time.sleep(1)

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("how", ["the launcher is killed", "the rank is killed"])
def test_workers_of_a_dead_rank_end(ground: Ground, how: str) -> None:
    script = ground.script("work.py", WORK)
    node = ground.start("--job=j", "--max-restarts=0", script)
    rank = int(await_ranks(ground, 0, 1)[0]["pid"])
    await_that(lambda: (ground.folder / "out/ready-0").exists(), "the workers start")
    workers = psutil.Process(rank).children(recursive=True)
    assert len(workers) >= 4, workers
    everything = psutil.Process(node.process.pid).children(recursive=True)
    if how == "the launcher is killed":
        node.process.kill()
    else:
        psutil.Process(rank).kill()
        assert node.wait() == 1
    for process in everything:
        await_exit(process.pid)
    await_that(lambda: ground.left_in_shared_memory() == [], "shared memory is swept")
