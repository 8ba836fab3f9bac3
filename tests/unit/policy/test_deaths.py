"""The leader ends an attempt on a sidecar's word that a rank died, and completes it from exits."""

from __future__ import annotations

import dataclasses
import signal

import pytest

from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.policy.outcome import Decision, DecisionContext
from holdfast_sidecar.policy.reconcile import decide
from holdfast_sidecar.records.codec import decode, encode
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.plan import Incident, Member, Plan
from holdfast_sidecar.records.reports import AgentReport, Exit, NodeReport, RankReport
from holdfast_sidecar.store.protocol import Section

SEATS = [Member("a", "i", 0, 0, 1), Member("b", "i", 1, 1, 1)]
PLAN = Plan(4, 7, "running", SEATS, 2)
NOW = 100.0
OWN, OF_A_PEER = "ValueError: bad sample 7", "RuntimeError: gloo: Connection closed by peer"


def agent(node: str, state: str = "running", *exits: Exit) -> AgentReport:
    return AgentReport(node, "i", state, 4, 1, 1, "", 2, 2, exits=list(exits))


def exited(rank: int, code: int, message: str = "") -> Exit:
    return Exit(rank, 0, 10 + rank, code, NOW - 1, 0, message, step=30)


def alive(rank: int, **changes: object) -> RankReport:
    report = RankReport(rank, 0, 10 + rank, 30, "forward", 0.1, 0.1, 0.1)
    return dataclasses.replace(report, **changes)  # type: ignore[arg-type]


def died(rank: int, code: int, exception: str = "") -> RankReport:
    return alive(rank, alive=False, exit_code=code, exception=exception)


def node(name: str, report: RankReport, acts: bool = True, attempt: int = 4) -> NodeReport:
    finding = Finding(Kind.CRASH, name, NOW - 1, 1.0, [report.rank], ["seen by its sidecar"], acts)
    findings = [] if report.alive else [finding]
    return NodeReport(name, "s", 1, 0, 0, attempt, True, [report], findings)


def decided(
    *nodes: NodeReport,
    agents: tuple[AgentReport, ...] = (),
    plan: Plan = PLAN,
    incidents: tuple[Incident, ...] = (),
) -> Decision:
    reports = {"a": agent("a"), "b": agent("b"), **{each.node: each for each in agents}}
    cluster = Cluster(
        agents=reports,
        nodes={each.node: each for each in nodes},
        plan=plan,
        plan_text=encode(plan),
        incidents={i.identifier: i for i in incidents},
        incident_texts={i.identifier: encode(i) for i in incidents},
    )
    circumstances = DecisionContext(
        7, NOW, NOW, Settings(), None, candidates=(), new_identifier="new"
    )
    return decide(cluster, circumstances)


def incident_of(outcome: Decision) -> Incident:
    (text,) = (w.value for w in outcome.writes if w.section is Section.INCIDENTS)
    incident = decode(Incident, text or "")
    assert incident is not None
    return incident


def plan_of(outcome: Decision) -> Plan | None:
    texts = [w.value for w in outcome.writes if w.section is Section.PLAN]
    return decode(Plan, texts[0] or "") if texts else None


def test_a_death_that_no_launcher_can_reap_yet_ends_the_attempt() -> None:
    outcome = decided(node("a", alive(0)), node("b", died(1, -signal.SIGKILL)))
    plan, incident = plan_of(outcome), incident_of(outcome)
    assert plan is not None
    assert (plan.state, plan.culprit_node, plan.culprit_ranks) == ("ended", "b", [1])
    assert (incident.cause, incident.confidence) == ("crash", 0.95)
    assert incident.since_unix_s == NOW - 1
    assert incident.evidence == ["seen by its sidecar"]


def test_a_death_is_signed_like_the_exit_that_comes_later() -> None:
    by_sidecar = incident_of(decided(node("a", alive(0)), node("b", died(1, 1, OWN))))
    failed = agent("b", "failed", exited(1, 1, OWN))
    by_launcher = incident_of(decided(node("a", alive(0)), agents=(failed,)))
    assert by_sidecar.signature == by_launcher.signature != ""


@pytest.mark.parametrize(
    "silent",
    [
        node("b", died(1, -signal.SIGTERM), acts=False),
        node("b", died(1, -signal.SIGKILL), attempt=3),
        node("b", died(1, 1, OF_A_PEER)),
    ],
    ids=["not sure enough", "of another attempt", "may be a victim"],
)
def test_nothing_is_ended_on_a_word_that(silent: NodeReport) -> None:
    assert plan_of(decided(node("a", alive(0)), silent)) is None


def test_ranks_that_a_leaving_launcher_kills_are_no_crash() -> None:
    """Somebody pressed Ctrl-C twice: they are killed at once, and the attempt was not ended."""
    leaving = dataclasses.replace(agent("b"), leaves=True)
    killed = node("b", died(1, -signal.SIGKILL))
    assert plan_of(decided(node("a", alive(0)), killed, agents=(leaving,))) is None


def test_a_victim_that_was_quicker_out_of_the_door_is_not_blamed() -> None:
    """Rank 0 said what ends it and still clears up; rank 1 lost its peer and is gone."""
    failed = agent("b", "failed", exited(1, 1, OF_A_PEER))
    clearing_up = node("a", alive(0, ending=2, exception=OWN))
    incident = incident_of(decided(clearing_up, node("b", died(1, 1, OF_A_PEER)), agents=(failed,)))
    assert (incident.culprit_node, incident.culprit_ranks) == ("a", [0])
    assert incident.since_unix_s == NOW


@pytest.mark.parametrize("leaver", [died(1, 0), alive(1, ending=1)], ids=["gone", "about to go"])
def test_who_left_by_exit_code_0_is_blamed_for_those_that_lost_it(leaver: RankReport) -> None:
    """Its own launcher has nothing to report of it: all went well there."""
    failed = agent("a", "failed", exited(0, 1, OF_A_PEER))
    left = dataclasses.replace(node("b", leaver), findings=[])
    incident = incident_of(decided(left, agents=(failed,)))
    assert (incident.culprit_node, incident.culprit_ranks) == ("b", [1])
    assert incident.evidence == ["rank 1: left by exit code 0 at step 30 while others went on"]
    again = agent("a", "joining", exited(0, 1, OF_A_PEER))
    ended = dataclasses.replace(ENDED, incident="new")
    kept = dataclasses.replace(incident, identifier="new")
    agents = (again, agent("b", "joining", exited(1, 0)))
    final = incident_of(decided(agents=agents, plan=ended, incidents=(kept,)))
    assert (final.culprit_ranks, final.evidence) == ([1], incident.evidence)
    assert final.signature == "left by exit code 0 while others went on at step 30"


def test_a_rank_that_was_aborted_is_signed_where_gloo_alone_can_have_done_it() -> None:
    aborted = dataclasses.replace(died(1, -signal.SIGABRT), is_gloo_alone=True)
    failed = agent("a", "failed", exited(0, 1, OF_A_PEER))
    incident = incident_of(decided(node("b", aborted), agents=(failed,)))
    assert (incident.culprit_ranks, incident.signature) == ([1], "ended by SIGABRT at step 30")


def test_of_deaths_seen_and_exits_reaped_the_likeliest_cause_is_blamed() -> None:
    failed = agent("a", "failed", exited(0, 1, OF_A_PEER))
    incident = incident_of(decided(node("b", died(1, -signal.SIGSEGV)), agents=(failed,)))
    assert incident.culprit_ranks == [1]


ENDED = dataclasses.replace(PLAN, state="ended", incident="x", cause="crash")
SEEN = Incident(
    "x",
    4,
    "crash",
    "b",
    [1],
    0.95,
    NOW - 1,
    NOW,
    ended_unix_s=NOW,
    evidence=["process 11 was killed by the kernel's OOM killer"],
)


def completed(*exits_of_b: Exit, seen: Incident = SEEN) -> Incident:
    agents = (agent("a", "joining"), agent("b", "joining", *exits_of_b))
    return incident_of(decided(agents=agents, plan=ENDED, incidents=(seen,)))


def test_the_exit_completes_what_the_sidecar_saw() -> None:
    seen = dataclasses.replace(SEEN, evidence=["process 11 exited with code 1", "last words: …"])
    incident = completed(exited(1, 1, OWN), seen=seen)
    assert incident.decided == "restart"
    assert incident.evidence == [f"rank 1: {OWN}", *seen.evidence]


def test_the_oom_killer_is_named_before_the_signal_that_it_sent() -> None:
    incident = completed(exited(1, -signal.SIGKILL))
    assert incident.evidence == [*SEEN.evidence, "rank 1: ended by SIGKILL, not by Holdfast"]


def test_without_an_exit_what_the_sidecar_saw_stands() -> None:
    incident = completed()
    assert (incident.culprit_ranks, incident.evidence) == ([1], SEEN.evidence)


def test_the_exit_of_a_victim_does_not_take_the_place_of_the_culprit() -> None:
    agents = (agent("a", "joining", exited(0, 1, OF_A_PEER)), agent("b", "joining"))
    incident = incident_of(decided(agents=agents, plan=ENDED, incidents=(SEEN,)))
    assert (incident.culprit_node, incident.culprit_ranks) == ("b", [1])


def test_where_a_node_is_lost_too_what_was_seen_of_the_crash_is_still_told() -> None:
    again = dataclasses.replace(agent("a", "joining"), incarnation="another")
    agents = (again, agent("b", "joining"))
    incident = incident_of(decided(agents=agents, plan=ENDED, incidents=(SEEN,)))
    assert (incident.cause, incident.culprit_node) == ("node_lost", "a")
    assert incident.evidence[1:] == SEEN.evidence


def test_what_nothing_was_done_about_does_not_hide_the_crash_that_was_given_its_name() -> None:
    """Whoever ended the attempt died between the plan and the record."""
    hang = Incident("x", 4, "hang", "a", [0], 0.9, NOW - 60, NOW - 50, decided="paused")
    crash = completed(exited(1, 1, OWN), seen=hang)
    assert (crash.cause, crash.culprit_node, crash.culprit_ranks) == ("crash", "b", [1])
    assert (crash.decided, crash.withheld, crash.ended_unix_s) == ("", "paused", NOW)
    assert (crash.since_unix_s, crash.detected_unix_s) == (NOW - 50, NOW - 50)
    assert crash.signature == "ValueError: bad sample # at step 30"
    assert completed(exited(1, 1, OWN), seen=crash).decided == "restart"


def test_a_surer_exit_takes_the_place_of_a_guess() -> None:
    guess = dataclasses.replace(
        SEEN, culprit_node="a", culprit_ranks=[0], confidence=0.5, evidence=["a guess"]
    )
    incident = completed(exited(1, -signal.SIGSEGV), seen=guess)
    assert (incident.culprit_ranks, incident.evidence) == ([1], ["rank 1: ended by SIGSEGV"])


def test_a_rank_that_had_hung_before_it_was_killed_cost_the_job_that_time_too() -> None:
    hung = dataclasses.replace(died(1, -signal.SIGKILL), stood_since_unix_s=NOW - 30)
    by_sidecar = incident_of(decided(node("a", alive(0)), node("b", hung)))
    assert by_sidecar.since_unix_s == NOW - 30
    agents = (agent("a", "joining"), agent("b", "joining", exited(1, -signal.SIGKILL)))
    final = decided(node("b", hung), agents=agents, plan=ENDED, incidents=(SEEN,))
    assert incident_of(final).since_unix_s == NOW - 30


def test_a_loss_of_a_node_that_was_first_taken_for_a_crash_began_with_its_last_heartbeat() -> None:
    cluster = Cluster(
        agents={
            "a": dataclasses.replace(agent("a", "joining"), min_nodes=1),
            "b": agent("b"),
        },
        plan=ENDED,
        plan_text=encode(ENDED),
        incidents={"x": SEEN},
        incident_texts={"x": encode(SEEN)},
        lost={"b": 5.0},
    )
    circumstances = DecisionContext(7, NOW, NOW, Settings(), None, candidates=())
    incident = incident_of(decide(cluster, circumstances))
    assert (incident.cause, incident.since_unix_s) == ("node_lost", NOW - 5)


def test_a_loss_is_told_as_one_while_its_node_is_waited_for_and_stays_one_when_it_is_back() -> None:
    """A page that goes out meanwhile names it."""
    agents = {"a": agent("a", "joining"), "b": agent("b")}
    waiting = Cluster(
        agents=agents,
        plan=ENDED,
        plan_text=encode(ENDED),
        incidents={"x": SEEN},
        incident_texts={"x": encode(SEEN)},
        lost={"b": 5.0},
    )
    circumstances = DecisionContext(7, NOW, NOW, Settings(), None, candidates=())
    told = incident_of(decide(waiting, circumstances))
    assert (told.cause, told.culprit_node, told.decided) == ("node_lost", "b", "")
    assert told.evidence == ["nothing was heard of it for 5.0 s", *SEEN.evidence]

    knowing = dataclasses.replace(
        waiting, incidents={"x": told}, incident_texts={"x": encode(told)}
    )
    assert not decide(knowing, circumstances).writes

    back = {**agents, "b": dataclasses.replace(agent("b", "joining"), incarnation="another")}
    reopened = incident_of(
        decide(dataclasses.replace(knowing, agents=back, lost={}), circumstances)
    )
    assert (reopened.cause, reopened.decided) == ("node_lost", "restart")
    assert reopened.evidence == told.evidence


def test_a_node_that_came_back_unseen_is_told_as_that_and_not_as_silent_for_no_time() -> None:
    """It was away while the job was paused, or nobody led."""
    back = dataclasses.replace(agent("b", "joining"), incarnation="another")
    plan = dataclasses.replace(ENDED, state="running", incident="", cause="")
    cluster = Cluster(agents={"a": agent("a"), "b": back}, plan=plan, plan_text=encode(plan))
    told = incident_of(
        decide(cluster, DecisionContext(7, NOW, NOW, Settings(), None, candidates=()))
    )
    assert (told.cause, told.culprit_node) == ("node_lost", "b")
    assert told.evidence == ["its launcher is gone, another one runs there now"]
