"""How far a job had come when an attempt ended: what all ranks had completed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.incidents.explain import tell
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.policy.outcome import DecisionContext
from holdfast_sidecar.policy.reconcile import decide
from holdfast_sidecar.records.codec import decode, encode
from holdfast_sidecar.records.plan import Incident, Member, Plan
from holdfast_sidecar.records.reports import AgentReport, NodeReport, RankReport
from holdfast_sidecar.store.protocol import Section

MEMBERS = [Member("a", "ia", 0, 0, 2), Member("b", "ib", 1, 2, 2)]
ENDED = Plan(3, 7, "ended", MEMBERS, 4, incident="i", cause="crash")


def agent(name: str, steps: Mapping[int, int], attempt: int = 3) -> AgentReport:
    completed = {str(rank): step for rank, step in steps.items()}
    return AgentReport(
        name, f"i{name}", "joining", attempt, 1, 2, "", min_nodes=1, max_nodes=2, steps=completed
    )


def incident_after(
    *agents: AgentReport, cause: str = "crash", lost: Mapping[str, float] | None = None
) -> Incident:
    known = Incident("i", 3, cause, detected_unix_s=99.0, step_reached=70)
    cluster = Cluster(
        agents={one.node: one for one in agents},
        plan=ENDED,
        plan_text=encode(ENDED),
        incidents={"i": known},
        lost=lost or {},
    )
    outcome = decide(cluster, DecisionContext(8, 100.0, 100.0, Settings(), None, candidates=()))
    (text,) = [w.value for w in outcome.writes if w.section is Section.INCIDENTS]
    incident = decode(Incident, text or "")
    assert incident is not None
    return incident


@pytest.mark.parametrize("cause", ["crash", "hang", "grow"])
def test_it_is_what_the_slowest_rank_had_completed(cause: str) -> None:
    a, b = agent("a", {0: 72, 1: 71}), agent("b", {2: 72, 3: 72})
    assert incident_after(a, b, cause=cause).step_reached == 71


def test_what_a_lost_node_had_completed_nobody_knows_so_the_others_count() -> None:
    a, b = agent("a", {0: 72, 1: 72}), agent("b", {2: 60, 3: 60})
    assert incident_after(a, b, lost={"b": 9.0}).step_reached == 72


def test_what_is_told_of_another_attempt_does_not_count() -> None:
    a, b = agent("a", {0: 72, 1: 72}), agent("b", {2: 9, 3: 9}, attempt=2)
    assert incident_after(a, b).step_reached == 72


def test_without_such_words_the_reports_count() -> None:
    assert incident_after(agent("a", {}), agent("b", {})).step_reached == 70


@pytest.mark.parametrize(
    ("resumed", "reached", "lost"),
    [(71, 71, 0), (60, 71, 11), (72, 72, 0)],
    ids=["where all had come to", "behind it", "ahead: killed before it could say so"],
)
def test_what_has_to_be_done_again_is_lost(resumed: int, reached: int, lost: int) -> None:
    incident = incident_after(agent("a", {0: 72, 1: 71}), agent("b", {2: 72, 3: 72}))
    plan = Plan(4, 8, "running", MEMBERS, 4)
    ranks = [
        RankReport(n, n % 2, 9, 73, "forward", 0.1, 0.1, 0.1, resumed_step=resumed)
        for n in range(4)
    ]
    cluster = Cluster(
        agents={
            m.node: AgentReport(m.node, m.incarnation, "running", 4, 1, 2, "", 1, 2)
            for m in MEMBERS
        },
        nodes={
            m.node: NodeReport(
                m.node, "s", 1, 4, 8, 4, True, ranks=ranks[m.first_rank : m.first_rank + 2]
            )
            for m in MEMBERS
        },
        plan=plan,
        plan_text=encode(plan),
        incidents={"i": incident},
        incident_texts={"i": encode(incident)},
    )
    outcome = decide(cluster, DecisionContext(8, 101.0, 101.0, Settings()))
    (write,) = outcome.writes
    recovered = decode(Incident, write.value or "")
    assert recovered is not None
    assert (recovered.step_resumed, recovered.step_reached) == (resumed, reached)
    assert tell(recovered).lost_steps == lost
