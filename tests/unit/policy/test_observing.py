"""Jobs that somebody else launched: what is recorded of them, and what is done at most."""

from __future__ import annotations

import dataclasses
from typing import Any

from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.policy.attached import attached_plan, attached_run
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.policy.outcome import DecisionContext
from holdfast_sidecar.policy.reconcile import decide
from holdfast_sidecar.records.codec import decode, encode
from holdfast_sidecar.records.findings import Finding, Kind, Remedy
from holdfast_sidecar.records.plan import Incident
from holdfast_sidecar.records.reports import AgentReport, NodeReport, RankReport


def rank(number: int, step: int = 50, **given: Any) -> RankReport:
    facts: dict[str, Any] = {"phase": "forward", "phase_age_s": 0.1, "step_s": 0.1, "own_s": 0.1}
    return RankReport(number, number % 2, 100 + number, step, **(facts | given))


def node(name: str, *findings: Finding, ranks: tuple[RankReport, ...] = (), **given: Any) -> Any:
    here = ranks or ((rank(0), rank(1)) if name == "a" else (rank(2), rank(3)))
    facts: dict[str, Any] = {"mode": "observe", "attached": True, "ranks": list(here)}
    report = NodeReport(name, "i", 1, -1, 0, 0, True, findings=list(findings))
    return dataclasses.replace(report, **(facts | given))


def found(
    kind: Kind, number: int, *evidence: str, confidence: float = 0.9, **given: Any
) -> Finding:
    name = "a" if number < 2 else "b"
    facts: dict[str, Any] = {"acts": True, "ranks": [number], "evidence": list(evidence)}
    return Finding(kind, name, 90.0, confidence, **(facts | given))


def look(*nodes: NodeReport, known: Incident | None = None) -> Incident | None:
    """What the leader writes of an incident, if anything."""
    cluster = Cluster(nodes={one.node: one for one in nodes}, incidents=incidents(known))
    circumstances = DecisionContext(1, 0.0, 100.0, Settings(), new_identifier="new")
    outcome = decide(cluster, circumstances)
    texts = [write.value for write in outcome.writes if write.section.value == "incidents"]
    return decode(Incident, texts[0]) if texts and texts[0] else None


def incidents(known: Incident | None) -> dict[str, Incident]:
    return {} if known is None else {known.identifier: known}


HANG = found(Kind.HANG, 3, "process 103 has been stopped (state T) for 1.0 s")


XID = found(
    Kind.GPU_FAULT,
    3,
    "NVRM: Xid …: 79",
    gpu="GPU-3",
    remedy=Remedy.REBOOT_NODE,
    what="xid 79",
)


def test_an_ill_gpu_explains_what_its_rank_does_here_too() -> None:
    known = look(node("a"), node("b", HANG))
    assert known is not None
    told = look(node("a"), node("b", HANG, XID), known=known)
    assert told is not None
    assert (told.cause, told.gpu, told.remedy) == ("gpu", "GPU-3", "reboot_node")
    assert (told.culprit_node, told.culprit_ranks, told.decided) == ("b", [3], "observe")
    assert look(node("a"), node("b", HANG, XID), known=told) is None
    # It ends no attempt, as nobody here restarts any.
    assert look(node("a"), node("b", XID)) is None


def test_who_was_ended_stays_who_is_named_though_another_s_gpu_is_ill() -> None:
    known = look(node("a", mode="act"), node("b", HANG, mode="act"))
    assert known is not None
    assert known.decided == "end"
    guess = dataclasses.replace(known, confidence=0.5)
    other = dataclasses.replace(XID, ranks=[2])
    assert look(node("a"), node("b", HANG, other), known=guess) is None


def test_a_hang_is_recorded_with_its_culprit_and_left_at_that() -> None:
    incident = look(node("a"), node("b", HANG))
    assert incident is not None
    assert (incident.identifier, incident.cause, incident.decided) == ("new", "hang", "observe")
    assert (incident.culprit_node, incident.culprit_ranks) == ("b", [3])
    assert (incident.since_unix_s, incident.detected_unix_s) == (90.0, 100.0)
    assert incident.step_reached == 50
    assert look(node("a"), node("b", HANG), known=incident) is None


def test_a_healthy_job_and_one_of_ours_have_no_such_incident() -> None:
    assert look(node("a"), node("b")) is None
    assert look(node("a"), node("b", HANG, attached=False)) is None
    cluster = Cluster(
        nodes={"b": node("b", HANG)},
        agents={"b": AgentReport("b", "i", "running", 0, 1, 2, "", 1, 1)},
    )
    outcome = decide(cluster, DecisionContext(1, 0.0, 100.0, Settings(), new_identifier="new"))
    assert not [write for write in outcome.writes if write.section.value == "incidents"]


def test_who_only_waits_for_another_is_not_blamed() -> None:
    victim = found(Kind.STALL, 0, confidence=0.2, acts=False)
    assert look(node("a", victim), node("b")) is None
    incident = look(node("a", victim), node("b", found(Kind.STALL, 2, confidence=0.6, acts=False)))
    assert incident is not None
    assert incident.culprit_ranks == [2]


def test_a_rank_that_died_of_a_peers_death_is_not_the_culprit() -> None:
    killed = found(Kind.CRASH, 3, "process 103 is gone in backward", confidence=1.0)
    victim = found(
        Kind.CRASH, 0, "gone", "last words: RuntimeError: Connection reset", confidence=1.0
    )
    incident = look(node("a", victim), node("b", killed))
    assert incident is not None
    assert (incident.culprit_ranks, incident.confidence) == ([3], 1.0)
    assert incident.decided == "leave"
    aborted = found(Kind.CRASH, 0, "process 100 was ended by SIGABRT", confidence=1.0)
    either = look(node("a", aborted), node("b", killed))
    assert either is not None
    assert either.culprit_ranks == [3]
    early = look(node("a", victim), node("b"))
    assert early is not None
    assert (early.culprit_ranks, early.confidence) == ([0], 0.5)
    amended = look(node("a", victim), node("b", killed), known=early)
    assert amended is not None
    assert (amended.identifier, amended.culprit_ranks) == (early.identifier, [3])


def test_ranks_that_were_told_to_end_are_no_incident() -> None:
    told = found(Kind.CRASH, 2, "process 102 was ended by SIGTERM in forward, step 50", acts=False)
    assert look(node("a"), node("b", told)) is None
    left = found(Kind.CRASH, 2, "process 102 exited with code 143 in forward, step 50", acts=False)
    cut = found(Kind.CRASH, 2, "process 102 exited with code 1", "last words: KeyboardInterrupt: ")
    assert [look(node("a"), node("b", one)) for one in (left, cut)] == [None, None]
    killed = found(Kind.CRASH, 1, "process 101 was ended by SIGKILL in forward, step 50")
    incident = look(node("a", killed), node("b", told))
    assert incident is not None
    assert incident.culprit_ranks == [1]


def test_it_is_over_once_every_rank_has_stepped_on() -> None:
    known = look(node("a"), node("b", HANG))
    ahead = (rank(2, 51), rank(3, 51))
    assert look(node("a"), node("b", ranks=ahead), known=known) is None
    over = look(node("a", ranks=(rank(0, 51), rank(1, 51))), node("b", ranks=ahead), known=known)
    assert over is not None
    assert (over.recovered_unix_s, over.step_resumed) == (100.0, 50)


def test_after_a_crash_it_is_over_once_a_new_start_steps() -> None:
    known = look(node("a"), node("b", found(Kind.CRASH, 3, "gone", confidence=1.0)))
    dead = (rank(2, 50, alive=False), rank(3, 50, alive=False))
    assert look(node("a"), node("b", ranks=dead), known=known) is None
    new = (rank(2, 3), rank(3, 3))
    over = look(node("a", ranks=(rank(0, 3), rank(1, 3))), node("b", ranks=new), known=known)
    assert over is not None
    assert over.recovered_unix_s == 100.0


def test_with_the_newest_incident_those_of_earlier_starts_are_over() -> None:
    crashed = Incident("one", 0, "crash", detected_unix_s=50.0, decided="leave")
    again = dataclasses.replace(crashed, identifier="two", attempt=1, detected_unix_s=70.0)
    stopped = dataclasses.replace(crashed, identifier="three", decided="stop")
    known = {one.identifier: one for one in (crashed, again, stopped)}
    cluster = Cluster(
        nodes={name: node(name) for name in "ab"},
        incidents=known,
        incident_texts={name: encode(one) for name, one in known.items()},
    )
    outcome = decide(cluster, DecisionContext(1, 0.0, 100.0, Settings(), new_identifier="new"))
    over = [decode(Incident, write.value or "") for write in outcome.writes]
    assert {one.identifier: one.recovered_unix_s for one in over if one is not None} == {
        "one": 100.0,
        "two": 100.0,
    }


def test_numbers_that_are_wrong_on_all_ranks_are_recorded_and_nobody_is_ended_for_them() -> None:
    ill = {"is_loss_finite": False, "onset_step": 44, "ill_steps": 6}
    ranks = [rank(number, **ill) for number in range(4)]
    here, there = tuple(ranks[:2]), tuple(ranks[2:])
    incident = look(node("a", ranks=here, mode="act"), node("b", ranks=there, mode="act"))
    assert incident is not None
    assert (incident.cause, incident.culprit_ranks, incident.decided) == (
        "nonfinite",
        [],
        "observe",
    )
    assert "from step 44 on" in incident.evidence[0]
    known = incident
    assert look(node("a", ranks=here), node("b", ranks=there), known=known) is None
    healed = (rank(0, 51), rank(1, 51)), (rank(2, 51), rank(3, 51))
    over = look(node("a", ranks=healed[0]), node("b", ranks=healed[1]), known=known)
    assert over is not None
    assert over.recovered_unix_s == 100.0
    alone = (rank(0, **ill), rank(1, loss=0.5))
    assert look(node("a", ranks=alone), node("b", ranks=(rank(2, loss=0.5),))) is None


def test_every_node_keeps_evidence_and_who_observes_ends_nobody() -> None:
    known = look(node("a"), node("b", HANG))
    cluster = Cluster(nodes={"a": node("a"), "b": node("b", HANG)}, incidents=incidents(known))
    plan = attached_plan(cluster, epoch=4)
    assert plan is not None
    assert (plan.state, plan.incident, plan.epoch, plan.attempt) == ("evidence", "new", 4, 0)
    assert [member.node for member in plan.members] == ["a", "b"]
    assert plan.culprit_ranks == []


def test_who_has_kept_evidence_is_noted_and_once_all_have_where_their_ranks_stood() -> None:
    known = look(node("a"), node("b", HANG))
    waiting = {"0": "in all_reduce (train.py:9)", "1": "in all_reduce (train.py:9)"}
    first_node = node("a", evidence_for="new", where_ranks_stood=waiting)
    first = look(first_node, node("b", HANG), known=known)
    assert first is not None
    assert (first.kept_by, first.evidence) == (["a"], HANG.evidence)
    other = node("b", HANG, evidence_for="new", where_ranks_stood={"3": "in load (train.py:4)"})
    both = look(first_node, other, known=first)
    assert both is not None
    assert both.kept_by == ["a", "b"]
    stood = "rank 3 in load (train.py:4); ranks 0-1 in all_reduce (train.py:9)"
    assert both.evidence == [*HANG.evidence, stood]
    assert look(first_node, other, known=both) is None


def test_told_to_act_it_ends_the_culprit_of_a_hang_once_that_is_sure() -> None:
    silent = found(Kind.STALL, 3, acts=False, confidence=0.6)
    known = look(node("a"), node("b", silent, mode="act"))
    assert known is not None
    assert known.decided == ""
    sure = found(Kind.STALL, 3, confidence=0.6)
    ended = look(node("a"), node("b", sure, mode="act"), known=known)
    assert ended is not None
    assert (ended.identifier, ended.decided) == ("new", "end")
    cluster = Cluster(nodes={"b": node("b", sure, mode="act")}, incidents=incidents(ended))
    plan = attached_plan(cluster, epoch=1)
    assert plan is not None
    assert (plan.culprit_node, plan.culprit_ranks) == ("b", [3])
    died = found(Kind.CRASH, 2, "gone", confidence=1.0)
    assert look(node("a"), node("b", died, mode="act"), known=ended) is None


def test_silence_that_turns_out_to_be_a_hang_is_called_one_and_not_a_crash_once_it_is_ended() -> (
    None
):
    silent = found(Kind.STALL, 3, "silent", acts=False, confidence=0.6)
    known = look(node("a"), node("b", silent, mode="act"))
    assert known is not None
    proof = found(Kind.HANG, 3, "rank 3 entered barrier as no. 7 of g", confidence=0.95)
    hang = look(node("a"), node("b", silent, proof, mode="act"), known=known)
    assert hang is not None
    assert (hang.identifier, hang.cause, hang.decided) == ("new", "hang", "end")
    assert hang.detected_unix_s == known.detected_unix_s
    watched = dataclasses.replace(hang, decided="observe")
    dead = found(Kind.CRASH, 3, "process 103 was ended by SIGKILL", confidence=1.0)
    assert look(node("a"), node("b", dead), known=watched) is None
    assert look(node("a"), node("b", silent), known=watched) is None


def test_without_an_open_incident_there_is_nothing_to_obey() -> None:
    cluster = Cluster(nodes={"a": node("a")})
    assert attached_plan(cluster, epoch=1) is None
    known = look(node("a"), node("b", HANG))
    assert known is not None
    over = dataclasses.replace(known, recovered_unix_s=120.0)
    assert attached_plan(dataclasses.replace(cluster, incidents=incidents(over)), epoch=1) is None


def test_ranks_that_somebody_else_launched_are_a_run_that_can_be_asked_something() -> None:
    nodes = {"a": node("a", attempt=1), "b": node("b", attempt=1), "old": node("old", attempt=0)}
    run = attached_run(Cluster(nodes=nodes))
    assert run is not None
    assert (run.attempt, run.state, run.world_size) == (1, "running", 4)
    assert [member.node for member in run.members] == ["a", "b"]
    assert attached_run(Cluster(nodes={"a": node("a", ranks=(rank(0),), attached=False)})) is None
    assert attached_run(Cluster()) is None
