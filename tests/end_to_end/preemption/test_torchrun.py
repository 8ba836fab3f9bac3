"""Plain torchrun with sidecars beside it: ranks outlive SIGTERM to be saved, and yet are ended."""

from __future__ import annotations

import signal
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.end_to_end.preemption.conftest import TRAINING

if TYPE_CHECKING:
    from tests.end_to_end.preemption.conftest import Launch, Scheduler
    from tests.servers import Server

pytestmark = pytest.mark.torch


def start(scheduler: Scheduler, server: Server) -> Launch:
    """torchrun with two ranks, and a sidecar that no launcher of ours watches over."""
    environment = {
        "HOLDFAST_REDIS": server.settings.url,
        "HOLDFAST_SET_CHECKPOINT_DIR": str(scheduler.checkpoints),
        "HOLDFAST_SET_SIDECAR_TICK_S": "0.1",
        "HOLDFAST_SET_SIDECAR_HEARTBEAT_S": "0.1",
        "HOLDFAST_SET_POLICY_BACKOFF_S": "0.1",
    }
    module = "holdfast_sidecar.cli.main"
    scheduler.start_command(
        [sys.executable, "-m", module, "sidecar", "--job=job", "--node=a"], "sidecar", **environment
    )
    record = scheduler.folder / "state/job/a/sidecar.json"
    scheduler.await_that(record.exists, "a sidecar watches")
    return scheduler.start_command(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes=1", "--nproc-per-node=2"),
            *("--max-restarts=3", "--rdzv-backend=holdfast", "--rdzv-id=job"),
            *(f"--rdzv-endpoint={server.settings.url}", "--rdzv-conf=node=a", str(TRAINING)),
        ],
        "torchrun",
        **environment,
    )


def test_ranks_that_all_get_sigterm_are_saved_before_they_end(
    scheduler: Scheduler, server: Server
) -> None:
    job = start(scheduler, server)
    scheduler.await_steps(10)
    asked_s = time.monotonic()
    job.signal_all()
    assert job.wait() != 0
    assert len(scheduler.sealed()) == 1, scheduler.story()
    assert time.monotonic() - asked_s < 28, "torchrun kills what is left after 30 s"


def test_a_survivor_does_not_hold_up_torchruns_restart(
    scheduler: Scheduler, server: Server
) -> None:
    job = start(scheduler, server)
    scheduler.await_steps(10)
    first, second = job.rank(0), job.rank(1)
    scheduler.stick(1)
    killed_s = time.monotonic()
    first.send_signal(signal.SIGKILL)
    scheduler.await_that(lambda: not second.is_running(), "the survivor ends")
    assert time.monotonic() - killed_s < 15, "torchrun would kill it after 30 s"
    scheduler.await_steps(5)
    job.process.send_signal(signal.SIGINT)
    job.wait()
