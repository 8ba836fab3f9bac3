"""What is counted of slowness."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.export.picture import VIEW, picture
from tests.unit.records.slow_job import QUIET

from holdfast_sidecar.export.exposition import draw
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.reports import NodeReport
from holdfast_sidecar.store.protocol import Section


def slowed(**lost: Any) -> dict[str, float]:
    """Cause -> what is counted of it, of a job in which nobody is slow any more."""
    slow = replace(QUIET, attempt=3, **lost)
    report = encode(NodeReport("a", "x", 1, 3, 4, 3, True, slow=slow))
    view = replace(VIEW, sections={**VIEW.sections, Section.NODES: {"a": report}})
    shown = replace(picture(), orders=replace(picture().orders, view=view))
    samples = [s for s in draw(shown, "job") if s.name == "holdfast_job_slowed_seconds_total"]
    return {s.labels["cause"]: s.value for s in samples if s.value}


def test_what_slowness_cost_stays_counted_for_the_cause_it_was_put_down_to() -> None:
    """A counter that falls is taken for one that began anew: all of it would count twice."""
    told = slowed(lost_s={"gpu_clock": 9.0}, charged_s={"compute": 5.0, "gpu_clock": 4.0})
    assert told == {"compute": 5.0, "gpu_clock": 4.0}


def test_of_a_leader_that_tells_only_what_causes_turned_out_to_be_that_is_counted() -> None:
    assert slowed(lost_s={"gpu_clock": 9.0}) == {"gpu_clock": 9.0}
