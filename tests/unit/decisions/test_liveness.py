"""When a counter counts as silent, and what the judge's own troubles count for."""

from __future__ import annotations

import pytest

from holdfast_sidecar.decisions.liveness import Beat, Heartbeats


def seen_at(*looks: tuple[float, float, int], server: str = "server") -> Heartbeats:
    """A judge after these looks: asked at, answered at, what the counter was."""
    heartbeats = Heartbeats(counted_s=0.6, late_after_s=1.1)
    for asked, answered, count in looks:
        heartbeats.observe({"a": Beat("x", count)}, server, asked, answered)
    return heartbeats


def test_a_counter_that_stands_still_is_measured_on_the_judges_clock() -> None:
    heartbeats = seen_at((0, 0, 1), (0.5, 0.5, 1))
    assert heartbeats.still_for("a", 0.5) == 0.5
    heartbeats.observe({"a": Beat("x", 2)}, "server", 0.8, 0.8)
    assert heartbeats.still_for("a", 0.8) == 0
    assert heartbeats.still_for("never seen", 0.8) == float("inf")


def test_a_writer_that_came_back_as_another_one_has_moved() -> None:
    heartbeats = seen_at((0, 0, 7))
    heartbeats.observe({"a": Beat("y", 7)}, "server", 0.5, 0.5)
    assert heartbeats.still_for("a", 0.5) == 0


@pytest.mark.parametrize(
    ("server", "looked_at"),
    [("another server", 0.5), ("server", 9.0)],
    ids=["the server changed", "the judge was away"],
)
def test_deadlines_start_again_when_the_judge_could_not_have_seen(
    server: str, looked_at: float
) -> None:
    heartbeats = seen_at((0, 0, 1))
    heartbeats.observe({"a": Beat("x", 1)}, server, looked_at, looked_at)
    assert heartbeats.still_for("a", looked_at) == 0


def test_a_look_that_came_late_counts_no_more_than_two_beats() -> None:
    heartbeats = seen_at((0, 0, 1), (1.0, 1.0, 1))
    assert heartbeats.still_for("a", 1.0) == pytest.approx(0.6)
    heartbeats.observe({"a": Beat("x", 1)}, "server", 2.0, 2.0)
    assert heartbeats.still_for("a", 2.0) == pytest.approx(1.2), "late each time, it still judges"


def test_a_store_that_keeps_everybody_waiting_makes_nobody_silent() -> None:
    """What moved may have moved as late as the answer; what did not, stood still when asked."""
    heartbeats = seen_at((0, 0.4, 2), (0.5, 0.9, 2))
    assert heartbeats.still_for("a", 0.5) == pytest.approx(0.1)


def test_the_next_deadline_is_that_of_the_oldest_that_still_counts_as_alive() -> None:
    heartbeats = Heartbeats(0.6, 1.1)
    heartbeats.observe({"a": Beat("x", 1), "b": Beat("x", 1)}, "server", 0, 0)
    heartbeats.observe({"a": Beat("x", 1), "b": Beat("x", 2)}, "server", 0.3, 0.3)
    assert heartbeats.next_due_s(["a", "b"], 1.1, 0.3) == pytest.approx(0.8)
    assert heartbeats.next_due_s(["b"], 1.1, 0.3) == pytest.approx(1.1)
    assert heartbeats.next_due_s(["a", "b"], 0.2, 0.3) == pytest.approx(0.2), "a is lost already"
    assert heartbeats.next_due_s(["never seen"], 1.1, 0.3) == float("inf")
