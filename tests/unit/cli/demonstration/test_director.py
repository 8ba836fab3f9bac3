from __future__ import annotations

import io

import pytest

from holdfast_sidecar.cli.demo import Director
from holdfast_sidecar.cli.demonstration.job import DemonstrationStopped, Nodes, scenario
from holdfast_sidecar.cli.demonstration.screen import LineScreen
from holdfast_sidecar.store.memory_store import MemoryServer, MemoryStore


def test_a_job_that_is_over_before_all_was_done_to_it_is_not_waited_for() -> None:
    store = MemoryStore(MemoryServer(), "demo")
    director = Director(scenario(), Nodes(), store, LineScreen(io.StringIO(), 0.0), [])
    with pytest.raises(DemonstrationStopped, match="ended before it was time to kill a rank"):
        director.play()
