"""`holdfast run` when numbers go wrong: back to what proved good, and no more on that branch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

STEPS = 800

SCRIPT = f"""
import json, math, os, pathlib, time
import torch
from torch import distributed
import holdfast

torch.set_num_threads(1)
distributed.init_process_group("gloo")
torch.manual_seed(0)
inner = torch.nn.Linear(4, 1)
model = torch.nn.parallel.DistributedDataParallel(inner, find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
job = holdfast.attach(model=model, optimizer=optimizer)
start = job.resume()
out = pathlib.Path(os.environ["OUT"])
attempt, rank = os.environ["HOLDFAST_ATTEMPT"], distributed.get_rank()
sound = all(bool(torch.isfinite(p).all()) for p in model.parameters())
(out / f"began-{{attempt}}-{{rank}}").write_text(json.dumps({{"step": start, "sound": sound}}))
for _ in job.steps(range({STEPS}), until={STEPS}):
    if attempt == "0" and rank == 0 and (out / "spoil").exists():
        with torch.no_grad():
            inner.weight.fill_(math.nan)
    loss = model(torch.ones(2, 4)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    job.report(loss=loss)
    if not math.isfinite(float(loss)):
        raise FloatingPointError("the loss is no number")
    time.sleep(0.01)
"""


def read_steps(checkpoints: Path, verdict: str) -> set[int]:
    return {int(path.parent.name.split("-")[1]) for path in checkpoints.glob(f"*/{verdict}*.json")}


def spoil(launcher: subprocess.Popen[bytes], checkpoints: Path, out: Path) -> int:
    """Make the weights bad once a good checkpoint is there and a newer one that is not yet good;
    answers the newest good one's step."""
    end_s = time.monotonic() + 80
    while launcher.poll() is None and time.monotonic() < end_s:
        good = read_steps(checkpoints, "good-")
        if good and max(read_steps(checkpoints, "manifest")) > max(good):
            (out / "spoil").touch()
            return max(good)
        time.sleep(0.02)
    raise AssertionError("no checkpoint proved good while the job ran")


def test_after_bad_numbers_the_job_goes_back_to_a_good_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    out, checkpoints = tmp_path / "out", tmp_path / "checkpoints"
    out.mkdir()
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")},
        "OUT": str(out),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    settings = {
        "checkpoint.dir": checkpoints,
        "checkpoint.every_s": 1.5,
        "checkpoint.keep": 20,
        "checkpoint.good_after_s": 2,
    }
    command = [
        *(sys.executable, "-m", "holdfast_sidecar.cli.main", "run", "--standalone"),
        *("--job", f"numbers-{os.getpid()}", "--nproc-per-node", "2"),
        *(f"--set={name}={value}" for name, value in settings.items()),
        "train.py",
    ]
    with (tmp_path / "log").open("w") as log:
        launcher = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            good = spoil(launcher, checkpoints, out)
            assert launcher.wait(100) == 0, (tmp_path / "log").read_text()
        finally:
            launcher.terminate()
            launcher.wait(30)
    told = (tmp_path / "log").read_text()
    for rank in range(2):
        began = json.loads((out / f"began-1-{rank}").read_text())
        assert began["sound"], told
        assert began["step"] in read_steps(checkpoints, "good-"), told
        assert began["step"] >= good
    assert min(read_steps(checkpoints, "poisoned")) > began["step"]
    assert "the newest good checkpoint before" in told
