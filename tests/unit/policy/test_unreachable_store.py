"""Nodes that cannot reach the store of their attempt: who is named for it."""

from __future__ import annotations

import dataclasses

import pytest

from holdfast_sidecar.config.settings import PolicySettings, Settings
from holdfast_sidecar.policy import budget
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.policy.outcome import DecisionContext
from holdfast_sidecar.policy.reconcile import decide
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.plan import Incident, Member, Plan
from holdfast_sidecar.records.reports import AgentReport


def incident(there: str, away: str, silent: str = "") -> Incident | None:
    """What an attempt is ended for, whose node `a` opened the store."""
    nodes = sorted(f"a{there}{away}{silent}")
    members = [Member(node, "i", rank, rank, 1) for rank, node in enumerate(nodes)]
    agents = {}
    for node in nodes:
        runs = node == "a" or node in there
        state, attempt = ("running", 3) if runs else ("joining", 2)
        cut_off = {"unreachable": "10.0.0.1:99", "unreachable_in": 3} if node in away else {}
        agents[node] = AgentReport(
            node,
            "i",
            state,
            attempt,
            1,
            1,
            "",
            1,
            len(nodes),
            **cut_off,  # type: ignore[arg-type]
        )
    plan = Plan(3, 1, "running", members, len(members))
    outcome = decide(Cluster(agents=agents, plan=plan), DecisionContext(1, 9.0, 9.0, Settings()))
    found = [decode(Incident, write.value or "") for write in outcome.writes]
    return next((one for one in found if one is not None and one.cause), None)


@pytest.mark.parametrize(
    ("there", "away", "culprit"),
    [
        ("", "b", ""),  # of two nobody can tell
        ("", "bc", "a"),  # all but the one whose store it is
        ("b", "c", "c"),
        ("b", "cd", ""),
    ],
)
def test_the_attempt_is_ended_and_the_pair_is_named(there: str, away: str, culprit: str) -> None:
    told = incident(there, away)
    assert told is not None
    assert (told.cause, told.culprit_node) == ("unreachable", culprit)
    for node in away:
        words = f"{node} cannot reach the attempt's store at 10.0.0.1:99 of a"
        assert words in told.evidence


def test_nothing_is_decided_before_it_is_known_how_each_member_fared() -> None:
    assert incident("", "b", silent="c") is None
    assert incident("bc", "") is None


def test_a_network_that_stays_shut_is_waited_for_ever_longer_and_then_ends_the_job_with_75() -> (
    None
):
    found = incident("", "b")
    assert found is not None
    policy = PolicySettings()
    row = [
        dataclasses.replace(found, identifier=f"i{n}", attempt=n, decided="restart")
        for n in range(policy.stepless_limit)
    ]
    judged = [
        budget.decide(row[n], row[:n], n, -1, policy, 0.0) for n in range(policy.stepless_limit)
    ]
    pauses = [one.pause_s for one in judged if isinstance(one, budget.Restart)]
    assert pauses == [10, 30, 120, *[300] * (policy.stepless_limit - 4)]
    assert isinstance(judged[-1], budget.Stop)
    assert judged[-1].exit_code == budget.EXIT_REQUEUE
