"""Whatever is done or fails is on the page."""

from __future__ import annotations

import re
from pathlib import Path

import holdfast_sidecar
from holdfast_sidecar.export.sidecar_metrics import ACTIONS

RUNS = re.compile(r"(?:runner\.run|self\._run)\(\s*\"(\w+)\"")


def test_every_action_that_is_run_is_counted_from_zero() -> None:
    sources = Path(holdfast_sidecar.__file__).parent.rglob("*.py")
    run = {name for source in sources for name in RUNS.findall(source.read_text())}
    assert len(run) > 5
    assert run == set(ACTIONS)
