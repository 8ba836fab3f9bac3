"""`holdfast trace` of a real gloo job whose one rank has more to multiply than the others."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.end_to_end.run.test_faults import await_that

if TYPE_CHECKING:
    from tests.end_to_end.run.conftest import Ground

pytestmark = pytest.mark.torch

SLOW = 2

WORK = """
import time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
        self.ballast = torch.ones(400, 400) / 400
    def forward(self, x):
        for _ in range(200 if dist.get_rank() == {slow} else 0):
            self.ballast = self.ballast @ self.ballast
        time.sleep(0.05)
        return self.layer(x)
model = DistributedDataParallel(Model())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
goes_on, end = torch.ones(1), time.time() + 120
while goes_on.item():
    {profiles}
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    open(os.path.join(os.environ["OUT"], f"stepped-{{dist.get_rank()}}"), "w").close()
    finish = os.path.exists(os.path.join(os.environ["OUT"], "finish")) or time.time() > end
    goes_on.fill_(0.0 if finish else 1.0)
    dist.all_reduce(goes_on, op=dist.ReduceOp.MIN)
"""

THREE_LINES = """
import time
import torch, torch.distributed as dist
import holdfast
dist.init_process_group("gloo")
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
job = holdfast.attach(model=model, optimizer=optimizer)
job.resume()
end = time.time() + 120
for step in job.steps(range(100_000)):
    time.sleep(0.02)
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    open(os.path.join(os.environ["OUT"], f"stepped-{dist.get_rank()}"), "w").close()
    if os.path.exists(os.path.join(os.environ["OUT"], "finish")) or time.time() > end:
        break
"""


def trace(ground: Ground, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast_sidecar.cli.main", "trace", "--timeout=50s", *options],
        cwd=ground.folder,
        env=ground.environment,
        capture_output=True,
        text=True,
        timeout=90,
    )


def launch(ground: Ground, body: str, ranks: int) -> Any:
    node = ground.start(f"--nproc-per-node={ranks}", ground.script("work.py", body))
    stepped = [ground.folder / "out" / f"stepped-{rank}" for rank in range(ranks)]
    await_that(lambda: all(path.exists() for path in stepped), "all ranks step")
    return node


def finish(ground: Ground, node: Any) -> None:
    (ground.folder / "out" / "finish").touch()
    assert node.wait() == 0, node.output


def events(path: str | Path) -> list[dict[str, Any]]:
    with gzip.open(path) as file:
        found: list[dict[str, Any]] = json.load(file)["traceEvents"]
        return found


def marks(path: str | Path) -> list[str]:
    named = (str(event.get("name", "")) for event in events(path))
    return sorted({name for name in named if name.startswith("ProfilerStep#")})


def test_the_slow_rank_is_found_and_its_step_stands_beside_a_healthy_peers(
    ground: Ground,
) -> None:
    node = launch(ground, WORK.format(slow=SLOW, profiles=""), 3)
    told = trace(ground, "--out=traces")
    assert told.returncode == 0, told.stderr + told.stdout
    assert f"rank {SLOW} has the longest own time" in told.stdout or (
        f"rank {SLOW} is" in told.stdout.splitlines()[0]
    )
    verdict = next(line for line in told.stdout.splitlines() if "ms longer than" in line)
    assert verdict.startswith(f"rank {SLOW} takes")
    assert "in forward" in verdict
    assert "aten::mm (+" in verdict
    files = sorted((ground.folder / "traces").iterdir())
    assert len(files) == 2
    assert marks(files[0]) == marks(files[1]) != []
    assert files[1].name.endswith(f"rank-{SLOW}.json.gz")
    finish(ground, node)


def test_three_lines_are_traced_at_the_step_that_was_named(ground: Ground) -> None:
    node = launch(ground, THREE_LINES, 2)
    told = trace(ground, "--ranks=1,0", "--steps=3", "--at=400", "--json")
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)
    assert (found["step"], found["compared"]) == (400, [1, 0])
    for one in found["ranks"]:
        assert marks(one["collected"]) == [f"ProfilerStep#{step}" for step in (400, 401, 402)]
    refused = trace(ground, "--at=3")
    assert refused.returncode == 1
    assert "step 3 is too soon" in refused.stderr
    finish(ground, node)


def test_a_script_that_profiles_itself_is_left_alone(ground: Ground) -> None:
    own = (
        'profile = globals().get("profile") or torch.profiler.profile(\n'
        "        activities=[torch.profiler.ProfilerActivity.CPU]).__enter__()"
    )
    body = WORK.format(slow=9, profiles=own)
    tail = (  # one write, as two unbuffered ranks share the pipe
        "\nprofile.__exit__(None, None, None)\n"
        'sys.stdout.write(f"own {len(profile.key_averages()) > 3}\\n")\n'
    )
    node = launch(ground, body + tail, 2)
    told = trace(ground)
    assert told.returncode == 1
    assert "the script's own profiler is active" in told.stderr
    finish(ground, node)
    assert node.output.count("own True") == 2
