"""After a failure, ranks start in interpreters that have torch imported already."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.end_to_end.run.test_faults import await_ranks, await_that, finish, tell

if TYPE_CHECKING:
    from tests.end_to_end.run.conftest import Ground, Launched

pytestmark = pytest.mark.torch

WORK = """
import time
{early}
print("torch was", "warm" if "torch" in sys.modules else "cold", flush=True)
import torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
end = time.time() + 120
while time.time() < end and not os.path.exists(os.path.join(os.environ["OUT"], "finish")):
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
    open(os.path.join(os.environ["OUT"], f"stepped-{{rank}}"), "w").close()
    if attempt == "0" and os.path.exists(os.path.join(os.environ["OUT"], "fail")):
        os._exit(7)
"""


@pytest.fixture
def ground(ground: Ground) -> Ground:
    """As people start it: most other tests keep no warm interpreters."""
    del ground.environment["PET_NO_STANDBY"]
    return ground


def warm_interpreters(node: Launched) -> list[psutil.Process]:
    children = psutil.Process(node.process.pid).children()
    return [child for child in children if "warm_interpreter.py" in " ".join(child.cmdline())]


def ready_interpreters(node: Launched) -> int:
    """How many have imported everything: they use no CPU time any more."""
    found = warm_interpreters(node)
    before = [interpreter.cpu_times() for interpreter in found]
    time.sleep(1)
    after = [interpreter.cpu_times() for interpreter in found]
    return sum(b == a and a.user > 0.3 for b, a in zip(before, after, strict=True))


@pytest.mark.parametrize(
    ("options", "early", "expected"),
    [
        ([], "", "warm"),
        (["--no-standby"], "", "cold"),
        ([], 'os.environ["OMP_NUM_THREADS"] = "2"', "cold"),
    ],
    ids=["by itself", "switched off", "where the script sets up torch's libraries"],
)
def test_a_restart_is_warm(ground: Ground, options: list[str], early: str, expected: str) -> None:
    script = ground.script("work.py", WORK.format(early=early))
    node = ground.start(*options, "--nproc-per-node=2", script)
    await_ranks(ground, 0, 2)
    await_that(lambda: len(list(ground.folder.glob("out/stepped-*"))) == 2, "steps")
    if expected == "warm":
        await_that(lambda: ready_interpreters(node) == 2, "warm interpreters")
    else:
        time.sleep(2)  # four looks at the pages
        assert warm_interpreters(node) == []
    tell(ground, "fail")
    await_ranks(ground, 1, 2)
    finish(ground, node)
    assert node.output.count("torch was cold") == (2 if expected == "warm" else 4)
    assert node.output.count("torch was warm") == (2 if expected == "warm" else 0)
