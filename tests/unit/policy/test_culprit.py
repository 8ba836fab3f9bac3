from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.ranks.test_arrival import PAST, STEP, mute, standing, trace

from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.policy.blame import judge_attempt, name_culprit
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.policy.outcome import DecisionContext
from holdfast_sidecar.policy.running import watch
from holdfast_sidecar.policy.withheld import acting_findings
from holdfast_sidecar.ranks.collectives import StuckCause
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.collectives import RankTrace
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.plan import Incident, Member, Plan
from holdfast_sidecar.records.reports import AgentReport, Exit, NodeReport, RankReport
from holdfast_sidecar.store.protocol import Section

PLAN = Plan(0, 1, "running", [Member("a", "i", 0, 0, 2), Member("b", "j", 1, 2, 2)], world_size=4)


def finding(rank: int, kind: Kind = Kind.STALL, confidence: float = 0.4) -> Finding:
    node = "a" if rank < 2 else "b"
    return Finding(kind, node, 0.0, confidence, [rank], [f"rank {rank} is silent"], acts=True)


def waiting(rank: int) -> RankTrace:
    return trace(rank, standing([*PAST, STEP[0]], 12))


def cluster(traces: list[RankTrace], **changes: Any) -> Cluster:
    nodes = {
        member.node: NodeReport(
            node=member.node,
            incarnation=member.incarnation,
            beat=1,
            floor_attempt=0,
            floor_epoch=1,
            attempt=0,
            launcher_alive=True,
            ranks=[RankReport(r, r, 1, 17, "backward", 9.0, 0.1, 0.1) for r in member.ranks],
            traces=[one for one in traces if one.rank in member.ranks],
            **(changes if member.node == "b" else {}),
        )
        for member in PLAN.members
    }
    return Cluster(nodes=nodes, plan=PLAN)


ABSENT = [waiting(0), waiting(1), trace(2, standing(PAST), is_overdue=False), waiting(3)]
PARTED = [waiting(0), waiting(1), trace(2, standing([*PAST, STEP[1]], 12)), waiting(3)]


def named(*acting: Finding, traces: list[RankTrace], **changes: Any) -> Incident:
    incident = name_culprit(acting, cluster(traces, **changes), PLAN)
    assert incident is not None
    return incident


def test_without_a_finding_that_acts_there_is_no_incident() -> None:
    assert name_culprit([], cluster(PARTED), PLAN) is None


def test_the_surest_finding_names_the_culprit_where_nothing_else_is_known() -> None:
    found = named(finding(1), finding(3, confidence=0.6), traces=[])
    assert (found.culprit_node, found.culprit_ranks, found.confidence) == ("b", [3], 0.6)


def test_a_victim_whose_patience_is_over_is_not_named_but_whom_it_waits_for() -> None:
    found = named(finding(0), traces=ABSENT)
    assert (found.culprit_node, found.culprit_ranks, found.cause) == ("b", [2], "stall")
    assert found.evidence[0].endswith("which rank 2 has not entered")
    assert found.evidence[1] == "rank 0 is silent; it waits for others"


def watched(**changes: Any) -> Cluster:
    """A job whose rank 0 waits for rank 2, and whose patience is over."""
    seen = cluster(ABSENT, **changes)
    agents = {
        member.node: AgentReport(
            member.node, member.incarnation, "running", 0, 1, 2, "127.0.0.1", 2, 2
        )
        for member in PLAN.members
    }
    silent = replace(seen.nodes["a"], findings=[finding(0)])
    return replace(seen, agents=agents, nodes={**seen.nodes, "a": silent})


def done_about(seen: Cluster) -> tuple[set[Section], Incident]:
    outcome = watch(seen, PLAN, DecisionContext(1, 9.0, 1009.0, Settings(), new_identifier="x"))
    written = {write.section: write.value for write in outcome.writes}
    incident = decode(Incident, written[Section.INCIDENTS] or "")
    assert incident is not None
    return set(written), incident


def test_who_is_waited_for_on_a_node_that_only_observes_is_named_and_left_alone() -> None:
    sections, incident = done_about(watched(mode="observe"))
    assert sections == {Section.INCIDENTS}
    assert (incident.culprit_node, incident.culprit_ranks) == ("b", [2])
    assert incident.decided == "observe"
    assert incident.evidence[-1] == "would have restarted the job, but the mode is observe"


def test_on_a_node_that_acts_the_same_ends_the_attempt() -> None:
    sections, incident = done_about(watched())
    assert Section.PLAN in sections
    assert (incident.culprit_node, incident.culprit_ranks) == ("b", [2])


def test_where_all_have_come_nobody_is_named_for_having_been_silent() -> None:
    found = named(finding(0), traces=[waiting(rank) for rank in range(4)])
    assert (found.cause, found.culprit_node, found.culprit_ranks) == ("stall", "", [])
    assert "what connects them" in found.evidence[1]


def test_positive_evidence_stands_whatever_the_collectives_say() -> None:
    found = named(finding(0, Kind.HANG, 0.98), traces=ABSENT)
    assert found.culprit_ranks == [0]


def test_the_culprits_own_finding_gains_what_the_collectives_say() -> None:
    found = named(finding(2, Kind.HANG, 0.9), traces=ABSENT)
    assert found.culprit_ranks == [2]
    assert len(found.evidence) == 2
    assert found.signature == ""


def test_collectives_that_part_at_the_same_step_again_are_the_same_failure() -> None:
    found = named(finding(2, Kind.HANG, 0.95), traces=PARTED)
    assert found.signature == (
        "rank 2 entered all_reduce of Float x 8 where others entered all_reduce of Float x 1024"
        " at step 17"
    )


def test_a_rank_that_left_by_exit_code_0_is_one_that_ended() -> None:
    running = cluster([waiting(0), waiting(1), mute(2, size=4), waiting(3)])
    told = judge_attempt(running, PLAN)
    assert told is not None
    assert told.cause is StuckCause.MUTE
    node = running.nodes["b"]
    ranks = [replace(one, alive=False, exit_code=0) for one in node.ranks[:1]]
    left = replace(node, ranks=[*ranks, *node.ranks[1:]])
    told = judge_attempt(replace(running, nodes={**running.nodes, "b": left}), PLAN)
    assert told is not None
    assert (told.cause, told.culprits) == (StuckCause.FINISHED, (2,))


def test_a_hang_is_counted_from_the_culprits_last_progress_not_from_its_victims() -> None:
    late = Finding(Kind.STALL, "b", 7.0, 0.6, [2])
    assert named(finding(0), traces=ABSENT, findings=[late]).since_unix_s == 7.0
    assert named(finding(0), traces=ABSENT).since_unix_s == 0.0


GAVE_UP = "RuntimeError: gloo: Timed out waiting 1800000ms for recv operation to complete"


def gave_up(message: str = GAVE_UP, busy: str = "", **changes: Any) -> Cluster:
    """Rank 0 raises after half an hour; rank 2 of the other node lives, and never arrived."""
    silent = replace(finding(2, confidence=0.6), acts=False)
    told = [] if busy else [silent]
    seen = watched(findings=told, **changes)
    exits = [Exit(0, 0, 1, 1, 1000.0, 0, message, 17)]
    failed = replace(seen.agents["a"], state="failed", exits=exits)
    reports = [RankReport(r, r - 2, 1, 17, "idle", 1800.0, 0.1, 0.1, busy=busy) for r in (2, 3)]
    nodes = {
        "a": replace(seen.nodes["a"], findings=[replace(finding(0), acts=False)]),
        "b": replace(seen.nodes["b"], ranks=[reports[0], replace(reports[1], busy="")]),
    }
    return replace(seen, agents={**seen.agents, "a": failed}, nodes=nodes)


def test_who_had_not_arrived_is_named_when_the_others_gave_up_waiting_for_it() -> None:
    """And its stack is kept first, as it lives."""
    seen = gave_up()
    outcome = watch(seen, PLAN, DecisionContext(1, 9.0, 1009.0, Settings(), new_identifier="x"))
    plans = [decode(Plan, one.value or "") for one in outcome.writes if one.section == Section.PLAN]
    assert [plan.state for plan in plans if plan is not None] == ["evidence"]
    _, incident = done_about(seen)
    assert (incident.cause, incident.culprit_node, incident.culprit_ranks) == ("stall", "b", [2])
    assert incident.evidence[0] == "rank 2 is silent"
    assert incident.evidence[-1] == f"rank 0: {GAVE_UP}"


def test_so_is_one_that_was_busy_as_its_script_said() -> None:
    _, incident = done_about(gave_up(busy="rollout"))
    assert (incident.culprit_node, incident.culprit_ranks) == ("b", [2])
    assert incident.evidence[0] == "rank 2 was busy with 'rollout' for 1800 s"
    assert incident.since_unix_s == 1009.0 - 1800.0


def test_an_error_of_its_own_is_nobody_elses_however_silent_the_others_are() -> None:
    _, incident = done_about(gave_up("ValueError: bad batch"))
    assert (incident.cause, incident.culprit_node, incident.culprit_ranks) == ("crash", "a", [0])
    _, incident = done_about(gave_up("RuntimeError: gloo: Connection closed by peer"))
    assert incident.cause == "crash"


def test_what_a_node_told_before_it_was_cut_off_is_no_evidence_now() -> None:
    told = judge_attempt(cluster(PARTED), PLAN)
    assert told is not None
    assert told.is_hopeless
    cut = replace(cluster(PARTED), cut_off={"b": "its sidecar answers"})
    assert judge_attempt(cut, PLAN) is None
    hang = finding(2, Kind.HANG, 0.95)
    found = cluster(ABSENT, findings=[hang])
    assert [one for one, _ in acting_findings(found, PLAN)] == [hang]
    assert acting_findings(replace(found, cut_off={"b": "it answers"}), PLAN) == []
