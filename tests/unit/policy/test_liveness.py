"""When a counter counts as silent, and what the judge's own troubles count for."""

from __future__ import annotations

import pytest

from holdfast_sidecar.policy.cluster import ANY_GROUP, Beat, Heartbeats, StepBegins, Steps


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


def stepping(*looks: tuple[float, int, int], lag_s: float = 0.0, attempt: int = 1) -> StepBegins:
    """What is known after these looks: asked at, heartbeat of node b, steps that b completed."""
    steps = StepBegins(lag_s)
    for asked, beat, step in looks:
        steps.observe(
            attempt, {"b": Steps(step, {ANY_GROUP: 2 * step})}, {"b": Beat("x", beat)}, asked
        )
    return steps


def test_a_step_began_after_any_look_at_which_the_one_before_was_not_complete() -> None:
    assert stepping((0, 1, 5)).began_elsewhere("a") == float("-inf")
    assert stepping((0, 1, 5), (1, 2, 6)).began_elsewhere("a") == float("-inf"), "when 6 began?"
    # Read at 2 for the first time, 7 may have been written just after the look at 1, when 6 was
    # complete; that it was not yet complete is known of the look at 0.
    assert stepping((-1, 0, 5), (0, 1, 5), (1, 2, 6), (2, 3, 7)).began_elsewhere("a") == -1
    assert stepping((-1, 0, 5), (0, 1, 5), (1, 2, 9)).began_elsewhere("a") == -1


def test_what_a_report_tells_may_be_older_than_the_report() -> None:
    steps = stepping((-1, 0, 5), (0, 1, 5), (1, 2, 9), lag_s=0.5)
    assert steps.began_elsewhere("a") == -1.5


def test_a_node_does_not_speak_for_itself() -> None:
    assert stepping((-1, 0, 5), (0, 1, 5), (1, 2, 9)).began_elsewhere("b") == float("-inf")


def test_a_report_that_is_read_again_says_nothing_new() -> None:
    """Its sidecar stands still: what its ranks do meanwhile nobody knows."""
    steps = stepping((-1, 0, 5), (0, 1, 5), (10, 1, 5), (11, 2, 9))
    assert steps.began_elsewhere("a") == -1


def test_steps_of_an_earlier_attempt_are_forgotten() -> None:
    steps = stepping((-1, 0, 5), (0, 1, 5), (1, 2, 9))
    steps.observe(2, {"b": Steps(30, {ANY_GROUP: 60})}, {"b": Beat("x", 3)}, 2)
    assert steps.began_elsewhere("a") == float("-inf")


def test_steps_without_collectives_show_nothing_of_others() -> None:
    steps = StepBegins(0.0)
    for look in range(9):
        done = Steps(10 * look, {ANY_GROUP: 5 + look})  # they meet at every tenth step alone
        steps.observe(1, {"b": done}, {"b": Beat("x", look)}, float(look))
    assert steps.began_elsewhere("a") == float("-inf")


@pytest.mark.parametrize(
    ("own", "theirs", "speaks"),
    [
        ({"all": 0}, {"all": 1}, True),
        ({"first half": 0}, {"other half": 1}, False),
        ({"first half": 0, "all": 0}, {"other half": 1, "all": 0}, False),
        ({"one of two": 0, "all": 0}, {"one of two": 1, "other": 1}, True),
        ({ANY_GROUP: 0}, {"other half": 1}, True),
        ({"first half": 0}, {ANY_GROUP: 1}, True),
    ],
)
def test_only_steps_with_a_collective_of_a_group_that_a_node_is_in_speak_for_it(
    own: dict[str, int], theirs: dict[str, int], speaks: bool
) -> None:
    """`theirs`: collectives of another node, by group, in each of its steps."""
    steps = StepBegins(0.0)
    for look in range(9):
        done = Steps(look, {group: each * look for group, each in theirs.items()})
        beats = {"a": Beat("x", min(look, 1)), "b": Beat("x", look)}
        steps.observe(1, {"a": Steps(0, own), "b": done}, beats, float(look))
    assert (steps.began_elsewhere("a") > float("-inf")) is speaks
