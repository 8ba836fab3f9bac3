"""`holdfast run` with the three lines: a rank is killed, and every sample is still seen once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from torch.utils.data import DistributedSampler

pytestmark = pytest.mark.torch

STEPS = 400
HELD_AT = 300
"""There ranks wait until a checkpoint is sealed: writing one begins with importing torch."""
RANKS = 2
BATCH = 2
SAMPLES = 64

SCRIPT = f"""
import json, os, time
import torch
from torch import distributed
from torch.utils.data import DataLoader, DistributedSampler
import holdfast

torch.set_num_threads(1)
distributed.init_process_group("gloo")
rank = distributed.get_rank()
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(
    torch.nn.Linear(1, 1), find_unused_parameters=True
)
optimizer = torch.optim.AdamW(model.parameters())
sampler = DistributedSampler(range({SAMPLES}))
loader = DataLoader(range({SAMPLES}), {BATCH}, sampler=sampler)
job = holdfast.attach(model=model, optimizer=optimizer, loader=loader)
job.resume()
attempt = os.environ["HOLDFAST_ATTEMPT"]
sealed = os.path.join(os.environ["OUT"], "sealed")
with open(os.path.join(os.environ["OUT"], f"{{attempt}}-{{rank}}"), "a") as log:
    log.write(json.dumps({{"pid": os.getpid()}}) + "\\n")
    for batch in job.steps(loader, until={STEPS}):
        log.write(json.dumps({{"step": job.step, "indices": batch.tolist()}}) + "\\n")
        log.flush()
        loss = model(batch.reshape(-1, 1).float()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)
        while job.step == {HELD_AT} and not os.path.exists(sealed):
            time.sleep(0.02)
"""


def read(path: Path) -> list[dict[str, object]]:
    """Lines of a rank's log; the last one may be cut off by its end."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def expected(rank: int) -> list[list[int]]:
    """The samples of every step of a rank, as an undisturbed loop would see them."""
    sampler = DistributedSampler(range(SAMPLES), RANKS, rank)
    batches: list[list[int]] = []
    epoch = 0
    while len(batches) < STEPS:
        sampler.set_epoch(epoch)
        order = list(sampler)
        batches += [order[at : at + BATCH] for at in range(0, len(order), BATCH)]
        epoch += 1
    return batches[:STEPS]


def test_every_sample_is_seen_once_and_in_order_although_a_rank_is_killed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    out = tmp_path / "out"
    out.mkdir()
    checkpoints = tmp_path / "checkpoints"
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")},
        "OUT": str(out),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    command = [
        *(sys.executable, "-m", "holdfast_sidecar.cli.main", "run", "--standalone"),
        *("--job", f"once-{os.getpid()}", "--nproc-per-node", str(RANKS)),
        *("--checkpoint-dir", str(checkpoints), "--checkpoint-every", "1s", "train.py"),
    ]
    with (tmp_path / "log").open("w") as log:
        launcher = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            kill_after_a_checkpoint(launcher, checkpoints, out / "0-1")
            assert launcher.wait(90) == 0, (tmp_path / "log").read_text()
        finally:
            launcher.terminate()
            launcher.wait(30)
    for rank in range(RANKS):
        before = read(out / f"0-{rank}")[1:]
        after = read(out / f"1-{rank}")[1:]
        resumed_at = after[0]["step"]
        assert isinstance(resumed_at, int)
        assert 0 < resumed_at <= len(before)
        counted = before[:resumed_at] + after
        assert [line["step"] for line in counted] == list(range(STEPS))
        assert [line["indices"] for line in counted] == expected(rank)


def kill_after_a_checkpoint(
    launcher: subprocess.Popen[bytes], checkpoints: Path, log: Path
) -> None:
    """SIGKILL the rank with this log once a checkpoint is sealed and training has gone on."""
    end_s = time.monotonic() + 60
    steps_then = None
    while launcher.poll() is None and time.monotonic() < end_s:
        lines = read(log)
        if steps_then is None and list(checkpoints.glob("*/manifest.json")):
            steps_then = len(lines)
            (log.parent / "sealed").touch()
        if steps_then is not None and len(lines) > steps_then + 5:
            os.kill(int(str(lines[0]["pid"])), signal.SIGKILL)
            return
        time.sleep(0.02)
    raise AssertionError("no checkpoint was sealed while the job ran")
