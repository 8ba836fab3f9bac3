"""One job through its life, with the torch that is here: start, kill, resume, checkpoint, stop.

Part of `make matrix`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.run.conftest import Ground, Launched

pytestmark = [pytest.mark.torch, pytest.mark.timeout(900)]

PATIENCE_S = 240.0
"""For each part of its life: torch that is not in the page cache takes a minute to be imported."""

TRAIN = """
import time
from pathlib import Path
import torch
import torch.distributed as dist
import holdfast

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
job = holdfast.attach(model=model, optimizer=optimizer)
start = job.resume()
out = Path(os.environ["OUT"])
(out / f"start-{attempt}-{rank}").write_text(str(start))
for step in job.steps(range(1_000_000)):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    (out / f"step-{attempt}-{rank}").write_text(str(step))
    time.sleep(0.02)
"""


def await_that(holds: Callable[[], Any], what: str, launched: Launched) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert launched.process.poll() is None, f"ended before {what}: {launched.wait()}"
        assert time.monotonic() < until, f"waited for {what}"
        time.sleep(0.1)


def number(path: Path) -> int:
    text = path.read_text() if path.exists() else ""
    return int(text) if text else -1


def test_a_job_starts_survives_a_kill_resumes_is_saved_and_stops(ground: Ground) -> None:
    ground.script("train.py", TRAIN)
    out, saved = ground.folder / "out", ground.folder / "saved"
    launched = ground.start(
        "--nproc-per-node=2", "--job=life", f"--checkpoint-dir={saved}",
        "--checkpoint-every=20steps", "train.py",
    )  # fmt: skip

    def complete() -> list[int]:
        manifests = saved.rglob("manifest.json")
        return sorted(int(path.parent.name.split("-")[1]) for path in manifests)

    await_that(complete, "a checkpoint", launched)
    os.kill(launched.facts(0, 1)["pid"], signal.SIGKILL)
    await_that(lambda: number(out / "start-1-1") > 0, "the resumed rank", launched)
    resumed = number(out / "start-1-1")
    assert resumed == number(out / "start-1-0") > 0
    await_that(lambda: number(out / "step-1-0") > resumed + 5, "steps", launched)
    await_that(lambda: complete()[-1] > resumed, "another checkpoint", launched)
    stop = [sys.executable, "-m", "holdfast_sidecar.cli.main", "stop", "--job=life"]
    subprocess.run(stop, env=ground.environment, cwd=ground.folder, check=True, timeout=PATIENCE_S)
    launched.wait()
    assert "Traceback" not in launched.output
    assert "resum" in launched.output or "from" in launched.output
