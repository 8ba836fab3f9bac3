"""What a script sees differs from torchrun only as docs/harmless.md says."""

from __future__ import annotations

import fnmatch
import json
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.end_to_end.launcher import surroundings

if TYPE_CHECKING:
    from tests.end_to_end.run.conftest import Ground

pytestmark = pytest.mark.torch

SCRIPT = Path(__file__).with_name("sees.py")
DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "harmless.md"
ROW = re.compile(r"^\| ([\w ]+) \| (.+?) \| .+ \|$", re.MULTILINE)
OURS_ALONE = {"HOLDFAST_SET_*", "PET_NO_STANDBY", "OUT"}
"""What this test itself sets."""


def rows() -> dict[str, set[str]]:
    """Kind -> patterns, as the document's table has them."""
    section = DOCUMENT.read_text().split("## What a script can see")[1].split("\n## ")[0]
    found: dict[str, set[str]] = {}
    for kind, patterns in ROW.findall(section):
        found.setdefault(kind, set()).update(re.findall(r"`([^`]+)`", patterns))
    return found


def items(kind: str, seen: Any) -> Counter[str]:
    if isinstance(seen, dict):
        return Counter(f"{name} = {value}" for name, value in seen.items())
    if isinstance(seen, list):
        return Counter(map(str, seen))
    return Counter([str(seen)])


def differences(plain: dict[str, Any], held: dict[str, Any]) -> dict[str, list[str]]:
    """Kind -> what is more (`+…`) or less (`-…`) under Holdfast."""
    found = {}
    for kind in plain:
        without, with_it = items(kind, plain[kind]), items(kind, held[kind])
        changed = [f"+{item}" for item in with_it - without]
        changed += [f"-{item}" for item in without - with_it]
        if changed:
            found[kind] = sorted(changed)
    return found


@pytest.fixture(autouse=True)
def heeds_hangup() -> Iterator[None]:
    """nohup around the tests is no part of what is compared."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("rank", [0, 1])
def test_every_difference_from_torchrun_is_a_row(ground: Ground, rank: int) -> None:
    held = ground.run("--standalone", "--nproc-per-node=2", str(SCRIPT))
    assert held.process.returncode == 0, held.output
    plain_out = ground.folder / "plain"
    plain_out.mkdir()
    kept = {k: v for k, v in surroundings(ground.folder).items() if not k.startswith("HOLDFAST_")}
    subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node=2",
            SCRIPT,
        ],
        env=kept | {"OUT": str(plain_out), "TMPDIR": ground.environment["TMPDIR"]},
        cwd=ground.folder,
        check=True,
        capture_output=True,
        timeout=120,
    )
    own, others = (
        json.loads((folder / f"sees-{rank}.json").read_text())
        for folder in (ground.folder / "out", plain_out)
    )
    known, used = rows(), set()
    strange = []
    for kind, changed in differences(others, own).items():
        for item in changed:
            patterns = known.get(kind, set()) | {f"+{name}" for name in OURS_ALONE}
            fitting = [p for p in patterns if fnmatch.fnmatchcase(item, p)]
            used |= {(kind, pattern) for pattern in fitting}
            if not fitting:
                strange.append(f"{kind}: {item}")
    assert not strange, "not in docs/harmless.md:\n" + "\n".join(strange)
    unused = {(k, p) for k, patterns in known.items() for p in patterns} - used
    assert not unused, f"in docs/harmless.md, but no longer so: {unused}"
