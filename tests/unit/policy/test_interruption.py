"""What is open when somebody ends a job by all of its launchers, at once or one after the other."""

from __future__ import annotations

import dataclasses

import pytest

from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.policy.outcome import Decision, DecisionContext
from holdfast_sidecar.policy.reconcile import decide
from holdfast_sidecar.policy.running import TOLD
from holdfast_sidecar.records.codec import decode, encode
from holdfast_sidecar.records.plan import Incident, Member, Plan, Request
from holdfast_sidecar.records.reports import OUTPUT_UNREAD, AgentReport, Exit
from holdfast_sidecar.store.protocol import Section

NOW = 100.0
SEATS = [Member("a", "i", 0, 0, 1), Member("b", "i", 1, 1, 1)]
PLAN = Plan(4, 7, "running", SEATS, 2)
ENDED = dataclasses.replace(PLAN, state="ended", incident="x", cause="crash", culprit_node="b")
LOST_A_PEER = "RuntimeError: gloo: Connection closed by peer"
OWN = "ValueError: timeout of sample 7"
MISMATCH = "RuntimeError: [gloo/transport/tcp/pair.cc:464] op.preamble.length <= op.nbytes"
VICTIM = Incident("x", 4, "crash", "b", [1], 0.5, NOW - 1, NOW, evidence=[f"rank 1: {LOST_A_PEER}"])
CULPRIT = dataclasses.replace(VICTIM, confidence=0.95, evidence=["rank 1: ended by SIGSEGV"])

UNREAD = dataclasses.replace(
    CULPRIT, signature=f"{OUTPUT_UNREAD} at step 9", evidence=[f"rank 1: {OUTPUT_UNREAD}"]
)


def agent(node: str, state: str, leaves: bool = True, *exits: Exit) -> AgentReport:
    return AgentReport(node, "i", state, 4, 1, 1, "", 2, 2, exits=list(exits), leaves=leaves)


def decided(
    plan: Plan, *agents: AgentReport, incident: Incident | None = None, stop: bool = False
) -> Decision:
    incidents = {} if incident is None else {incident.identifier: incident}
    cluster = Cluster(
        agents={each.node: each for each in agents},
        plan=plan,
        plan_text=encode(plan),
        incidents=incidents,
        incident_texts={name: encode(one) for name, one in incidents.items()},
        requests={"r": Request("r", "stop", "ann@desk")} if stop else {},
    )
    return decide(
        cluster, DecisionContext(7, NOW, NOW, Settings(), None, candidates=(), new_identifier="x")
    )


def incident_of(outcome: Decision) -> Incident | None:
    texts = [w.value for w in outcome.writes if w.section is Section.INCIDENTS]
    return decode(Incident, texts[0] or "") if texts else None


def test_a_victim_that_dies_of_it_opens_nothing_that_stays_open() -> None:
    victim = Exit(1, 0, 11, 1, NOW - 1, 0, LOST_A_PEER)
    outcome = decided(PLAN, agent("a", "running"), agent("b", "failed", True, victim))
    incident = incident_of(outcome)
    assert incident is not None
    assert (incident.cause, incident.decided, incident.culprit_ranks) == ("stop", "stop", [])
    assert incident.evidence[0] == TOLD


def test_nor_do_the_launchers_that_leave() -> None:
    incident = incident_of(decided(PLAN, agent("a", "left"), agent("b", "running")))
    assert incident is not None
    assert (incident.cause, incident.decided) == ("stop", "stop")


@pytest.mark.parametrize(
    ("known", "cause"),
    [
        (VICTIM, "stop"),
        (dataclasses.replace(CULPRIT, evidence=["rank 1: ended by SIGTERM"]), "stop"),
        (dataclasses.replace(VICTIM, cause="node_left", confidence=0.95), "stop"),
        (dataclasses.replace(VICTIM, evidence=["rank 1: ended by SIGABRT"]), "stop"),
        (dataclasses.replace(CULPRIT, evidence=["rank 1: KeyboardInterrupt"]), "stop"),
        (UNREAD, "stop"),
        (CULPRIT, "crash"),
        (dataclasses.replace(CULPRIT, confidence=0.23, evidence=[f"rank 1: {OWN}"]), "crash"),
        (dataclasses.replace(VICTIM, evidence=[f"rank 1: {MISMATCH}"]), "crash"),
        (dataclasses.replace(VICTIM, cause="hang"), "hang"),
    ],
    ids=[
        "a victim",
        "ended by order",
        "who left first",
        "aborted by a library",
        "interrupted as the launchers were",
        "what read its output was interrupted first",
        "a fault of before",
        "one of four with the same error of their own",
        "who got something unexpected",
        "a hang of before",
    ],
)
def test_what_is_open_when_all_leave_is_closed(known: Incident, cause: str) -> None:
    gone = (agent("a", "left"), agent("b", "left"))
    incident = incident_of(decided(ENDED, *gone, incident=known))
    assert incident is not None
    assert (incident.cause, incident.decided) == (cause, "stop")
    assert incident.evidence[-1] == known.evidence[-1]
    assert incident_of(decided(ENDED, *gone, incident=incident)) is None


@pytest.mark.parametrize(
    "others",
    [
        [agent("a", "left"), agent("b", "running", False)],
        [agent("a", "left"), agent("b", "left", False)],
        [agent("a", "left"), agent("b", "left"), agent("c", "joining", False)],
        [agent("a", "left"), dataclasses.replace(agent("b", "joining", False), incarnation="j")],
    ],
    ids=["one stays", "one gave up by itself", "a spare waits", "one has come back"],
)
def test_it_stays_open_while_the_job_may_go_on(others: list[AgentReport]) -> None:
    incident = incident_of(decided(ENDED, *others, incident=VICTIM))
    assert incident is None or incident.decided != "stop"


def test_a_spare_that_leaves_too_waits_for_nothing() -> None:
    gone = (agent("a", "left"), agent("b", "left"), agent("c", "joining"))
    incident = incident_of(decided(ENDED, *gone, incident=VICTIM))
    assert incident is not None
    assert incident.decided == "stop"


def test_nothing_is_opened_for_launchers_that_leave_and_still_say_that_they_would_join() -> None:
    waiting = (agent("a", "joining"), agent("b", "joining"))
    closed = incident_of(decided(ENDED, *waiting, incident=VICTIM))
    assert closed is not None
    assert decided(ENDED, *waiting, incident=closed).writes == ()


def test_who_leaves_gets_no_seat_beside_who_stays() -> None:
    over = dataclasses.replace(CULPRIT, decided="restart", ended_unix_s=NOW - 90)
    one_each = [
        dataclasses.replace(agent(node, "joining", node == "a"), min_nodes=1) for node in "ab"
    ]
    plans = [
        decode(Plan, write.value or "")
        for write in decided(ENDED, *one_each, incident=over).writes
        if write.section is Section.PLAN
    ]
    assert [[member.node for member in plan.members] for plan in plans if plan] == [["b"]]


def test_an_asked_for_end_closes_what_was_not_recovered_from() -> None:
    here = (agent("a", "joining", False), agent("b", "running", False))
    outcome = decided(ENDED, *here, incident=CULPRIT, stop=True)
    incident = incident_of(outcome)
    assert incident is not None
    assert (incident.cause, incident.decided) == ("crash", "stop")
    over = dataclasses.replace(CULPRIT, decided="restart")
    assert incident_of(decided(ENDED, *here, incident=over, stop=True)) is None
