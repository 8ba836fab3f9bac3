"""How often a node or a GPU was to blame, fading with time."""

from __future__ import annotations

import dataclasses

import pytest

from holdfast_sidecar.config.settings import PolicySettings
from holdfast_sidecar.policy.budget import (
    WITHOUT_NODE,
    find_lemons,
    held_against,
    is_repeat_offender,
    score,
)
from holdfast_sidecar.records.plan import Incident

DAY_S = 86400.0
NOW = 100 * DAY_S
POLICY = PolicySettings()


def failure(days_ago: float, node: str = "a", cause: str = "crash", **given: object) -> Incident:
    facts = {
        "identifier": f"{node}{days_ago}{cause}",
        "attempt": 1,
        "cause": cause,
        "culprit_node": node,
        "culprit_ranks": [0],
        "confidence": 0.95,
        "detected_unix_s": NOW - days_ago * DAY_S,
        "decided": "restart",
        "culprit_part": f"m-{node}",
    }
    return Incident(**(facts | given))  # type: ignore[arg-type]


def ill(days_ago: float, gpu: str = "GPU-1", **given: object) -> Incident:
    facts = {"gpu": gpu, "remedy": "reset_gpu", "fault_unix_s": NOW - days_ago * DAY_S}
    return failure(days_ago, cause="gpu", **(facts | given))  # type: ignore[arg-type]


def is_out(*days_ago: float) -> bool:
    row = [failure(days) for days in days_ago]
    held = held_against(row[-1], row[:-1])
    return is_repeat_offender(held, POLICY, NOW)


def test_a_failure_counts_half_after_each_half_life() -> None:
    assert score([failure(0)], POLICY, NOW) == 1.0
    assert score([failure(3)], POLICY, NOW) == 0.5
    assert score([failure(6), failure(0)], POLICY, NOW) == 1.25
    # The leader's clock was set back since.
    assert score([failure(-1)], POLICY, NOW) == 1.0


@pytest.mark.parametrize(
    ("days_ago", "expected"),
    [
        ((0.2, 0.1, 0.0), True),
        ((1.6, 0.8, 0.0), True),
        ((4, 2, 0.0), False),
        ((10, 8, 6, 4, 2, 0.0), True),
        ((0.1, 0.0), False),
        ((40, 30, 20, 10, 0.0), False),
    ],
    ids=["at once", "a day", "every other day", "and for long", "twice", "now and then"],
)
def test_three_failures_in_a_row_or_one_every_other_day_make_a_lemon(
    days_ago: tuple[float, ...], expected: bool
) -> None:
    assert is_out(*days_ago) is expected


def test_what_a_reset_answered_is_held_against_a_node_and_a_full_quarantine_is_not() -> None:
    resets = [ill(1.0, escalation=WITHOUT_NODE), ill(0.5, escalation=WITHOUT_NODE)]
    assert len(held_against(ill(0.0), resets)) == 3
    replaced = ill(0.2, escalation=WITHOUT_NODE, remedy="replace")
    assert len(held_against(ill(0.0), [*resets, replaced])) == 1
    blamed = failure(0.2, escalation=WITHOUT_NODE)
    assert len(held_against(ill(0.0), [*resets, blamed])) == 1


def test_a_fault_that_became_known_late_and_ended_two_attempts_is_one() -> None:
    known_late = ill(1.0, identifier="first", remedy="")
    assert len(held_against(ill(1.0, identifier="second"), [known_late])) == 1
    assert len(held_against(ill(0.5), [ill(1.0, identifier="first")])) == 2


def test_a_gpu_that_needs_no_more_than_new_ranks_does_not_count_against_its_node() -> None:
    contained = [ill(days, remedy="") for days in (3.0, 2.0, 1.0)]
    assert held_against(ill(0.0, remedy=""), contained) == []
    assert len(held_against(ill(0.0), contained)) == 1


def test_ill_hardware_does_not_follow_a_rank() -> None:
    """Two nodes one after the other in the same place: each had its own fault."""
    elsewhere = ill(0.5, node="b", culprit_part="m-b")
    assert len(held_against(ill(0.0), [elsewhere])) == 1


def test_nodes_and_gpus_are_listed_with_the_worst_first() -> None:
    incidents = [
        failure(0, "b"),
        ill(1.0),
        ill(0.5),
        ill(0.2, gpu="GPU-2"),
        failure(0, "c", is_of_script=True),
        failure(0, "d", "preempted"),
        failure(0, "e", confidence=0.5),
    ]
    nodes = find_lemons(incidents, POLICY, NOW)
    assert [(one.node, one.part, one.blamed) for one in nodes] == [
        ("a", "m-a", {"gpu": 3}),
        ("b", "m-b", {"crash": 1}),
    ]
    assert nodes[0].score == pytest.approx(2.6, abs=0.1)
    assert nodes[1].score == 1.0
    assert nodes[0].last_unix_s == NOW - 0.2 * DAY_S
    gpus = find_lemons(incidents, POLICY, NOW, of_gpus=True)
    assert [(one.node, one.part, one.blamed) for one in gpus] == [
        ("a", "GPU-1", {"gpu": 2}),
        ("a", "GPU-2", {"gpu": 1}),
    ]


def test_who_was_kept_outside_in_full_begins_anew_and_stays_counted() -> None:
    out = failure(0.1, escalation=WITHOUT_NODE)
    (lemon,) = find_lemons([failure(0.3), failure(0.2), out], POLICY, NOW)
    assert (lemon.score, lemon.blamed) == (0.0, {"crash": 3})


def test_a_machine_is_one_lemon_under_all_its_names() -> None:
    renamed = dataclasses.replace(failure(0.0), culprit_node="a2", identifier="z")
    (lemon,) = find_lemons([failure(1.0), renamed], POLICY, NOW)
    assert (lemon.node, lemon.blamed) == ("a2", {"crash": 2})
