"""`holdfast run` when numbers go wrong: back to what proved good, past the batches that did it, and
to an end when they go wrong at the same step again. The script itself notices nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast_sidecar.policy.budget import EXIT_DO_NOT_REQUEUE

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]  # three starts of a job, and their ends

STEPS = 10**6
"""It lasts until it is ended, however slow the machine is."""
AHEAD = 80
"""So many steps ahead ranks are told which will be bad: nobody is past it when it is written."""
SKIPPED = 20

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

def named(name):
    path = out / name
    return int(path.read_text()) if path.exists() else -1

seen = open(out / f"seen-{{attempt}}-{{rank}}", "w", buffering=1)
for batch in job.steps(range({STEPS})):
    print(job.step, batch, file=seen)
    data = torch.ones(2, 4)
    if rank == 1 and (batch == named("bad-batch") or job.step == named("bad-step")):
        data *= math.nan
    loss = model(data).mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    time.sleep(0.01)
"""


class Run:
    """The job, and what it left so far."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out, self.checkpoints = folder, folder / "out", folder / "checkpoints"
        self.out.mkdir()
        (folder / "train.py").write_text(SCRIPT)
        settings = {
            "checkpoint.dir": self.checkpoints,
            "checkpoint.every_s": 1.5,
            "checkpoint.keep": 20,
            "checkpoint.good_after_s": 2,
            "numbers.skip_batches": SKIPPED,
        }
        command = [
            *(sys.executable, "-m", "holdfast_sidecar.cli.main", "run", "--standalone"),
            *("--job", f"numbers-{os.getpid()}", "--nproc-per-node", "2"),
            *(f"--set={name}={value}" for name, value in settings.items()),
            "train.py",
        ]
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")},
            "OUT": str(self.out),
            "XDG_STATE_HOME": str(folder / "state"),
        }
        with (folder / "log").open("w") as log:
            self.launcher = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT
            )

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        end_s = time.monotonic() + 80
        while not condition():
            assert self.launcher.poll() is None, self.log()
            assert time.monotonic() < end_s, f"no {what}: {self.log()}"
            time.sleep(0.02)

    def verdicts(self, verdict: str) -> set[int]:
        """Steps of checkpoints that have one."""
        found = self.checkpoints.glob(f"*/{verdict}*.json")
        return {int(path.parent.name.split("-")[1]) for path in found}

    def began(self, attempt: int) -> list[dict[str, object]]:
        """What each rank found when this attempt began."""
        files = sorted(self.out.glob(f"began-{attempt}-*"))
        return [json.loads(text) for file in files if (text := file.read_text())]

    def steps(self, attempt: int) -> list[tuple[int, int]]:
        """(step, batch) as rank 0 had them."""
        lines = (self.out / f"seen-{attempt}-0").read_text().splitlines(keepends=True)
        return [tuple(map(int, line.split())) for line in lines if line.endswith("\n")]  # type: ignore[misc]

    def spoil(self, name: str, attempt: int) -> int:
        """Name a step (or batch) not far ahead in which rank 1's data is no number."""
        step = self.steps(attempt)[-1][0] + AHEAD
        partial = self.out / f"{name}.partial"
        partial.write_text(str(step))
        partial.rename(self.out / name)
        return step


def test_bad_numbers_send_the_job_back_past_their_batch_and_end_it_when_they_repeat(
    tmp_path: Path,
) -> None:
    run = Run(tmp_path)
    try:
        run.wait_for(lambda: run.verdicts("good-"), "good checkpoint")
        good, bad_batch = max(run.verdicts("good-")), run.spoil("bad-batch", 0)
        run.wait_for(lambda: len(run.began(1)) == 2, "second attempt")
        for began in run.began(1):
            assert began["sound"], run.log()
            assert began["step"] in run.verdicts("good-"), run.log()
            assert good <= int(str(began["step"])) <= bad_batch
        newer = {step for step in run.verdicts("manifest") if step > bad_batch}
        assert newer <= run.verdicts("poisoned")
        assert "not finite on all 2 ranks that tell any" in run.log()
        assert "the newest good checkpoint before" in run.log()

        run.wait_for(lambda: run.steps(1)[-1:] > [(bad_batch, 0)], "step behind the bad one")
        batches = [batch for _, batch in run.steps(1)]
        assert bad_batch not in batches
        assert batches[-1] - batches[0] == len(batches) - 1 + SKIPPED

        bad_step = run.spoil("bad-step", 1)
        assert run.launcher.wait(120) == EXIT_DO_NOT_REQUEUE, run.log()
        assert "the same failure 2 times: numbers not finite from step" in run.log()
        assert run.steps(2)[-1][0] >= bad_step
        assert not run.began(3)
    finally:
        run.launcher.terminate()
        run.launcher.wait(30)
