"""The hot path makes no system call and leaves nothing behind."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from bench import hot_path

pytestmark = [pytest.mark.torch, pytest.mark.strace]

ROOT = Path(__file__).parents[3]
STEPS = 20_000


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_a_step_with_all_hooks_makes_no_system_call() -> None:
    assert hot_path.count_system_calls(steps=500) == 0


def test_steps_with_all_hooks_leave_nothing_behind() -> None:
    measured = f"hot_path.measure_growth({STEPS})"
    program = f"import json; from bench import hot_path; print(json.dumps({measured}))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    grown = json.loads(done.stdout)
    assert abs(grown["blocks"]) < STEPS / 1000
    assert grown["resident_bytes"] < STEPS  # less than a byte for each
