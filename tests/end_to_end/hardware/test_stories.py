"""Hardware that fails under a real job: fake GPUs and ports, real sidecars, real ranks."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.fake_nvml import compiled

LIMIT_S = 300.0
"""A minute here; the rest is for a machine on which everything else runs as well."""

GPUS = 2
"""Each rank takes its share of two cores; the stories are the same as with eight."""


@pytest.mark.timeout(LIMIT_S + 60)
def test_every_story_is_told_tied_to_its_rank_and_acted_on(tmp_path) -> None:
    compiled(tmp_path)  # skipped, or failed, where there is no compiler
    played = subprocess.run(
        [sys.executable, "-m", "testing.demo_hardware", f"--gpus={GPUS}", "--json"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert played.returncode == 0, f"{played.stdout}\n{played.stderr}"
    verdict = json.loads(played.stdout)
    assert [row["told_as"] for row in verdict["rows"]] == [
        "link_flapping",
        "gpu_throttled",
        "nvml_wedged",
        "ecc_storm",
        "gpu_fault",
    ]
    assert verdict["ok"], verdict["problems"]
