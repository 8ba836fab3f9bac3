import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from tests.unit.records import slow_job

from holdfast_sidecar.cli import nodes as words
from holdfast_sidecar.cli.nodes import node_lines
from holdfast_sidecar.cli.status import page
from holdfast_sidecar.config.settings import PolicySettings
from holdfast_sidecar.export.status import JobStatus, has_ended, is_settled, judge
from holdfast_sidecar.incidents.explain import tell
from holdfast_sidecar.policy.start import story
from holdfast_sidecar.records.checkpoint import SnapshotOrder, SnapshotReport
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.findings import Finding, Kind, Remedy
from holdfast_sidecar.records.formatting import span
from holdfast_sidecar.records.plan import Incident, Member, Plan
from holdfast_sidecar.records.reports import AgentReport, NodeReport, RankReport
from holdfast_sidecar.records.steps import PaceChange
from holdfast_sidecar.store.protocol import Lease, Section, View

RANK = RankReport(0, 0, 1, 5, "forward", 0.0, 0.1, 0.1)
FINDING = Finding(Kind.HANG, "a", 0.0, 0.9, [0])


def view(
    beat: int, plan: Plan | None = None, leader: str = "a/i", **nodes: Mapping[str, object]
) -> View:
    """Nodes by name; `sidecar` and `launcher` False: that heartbeat stands still."""
    agents, reports = {}, {}
    for name, given in nodes.items():
        report = given.get("report", NodeReport(name, "i", 0, 0, 0, 0, True, ranks=[RANK]))
        assert isinstance(report, NodeReport)
        still = NodeReport(**{**vars(report), "beat": beat if given.get("sidecar", True) else 0})
        reports[name] = encode(still)
        moved = beat if given.get("launcher", True) else 0
        agents[name] = encode(AgentReport(name, "i", "running", 0, moved, 1, "", 1, 1))
    sections = {Section.AGENTS: agents, Section.NODES: reports}
    if plan is not None:
        sections[Section.PLAN] = {"current": encode(plan)}
    return View(Lease(1, leader), "s", sections)


def plan(state: str = "running", **given: object) -> Plan:
    facts = {"attempt": 0, "epoch": 1, "state": state, "members": [Member("a", "i", 0, 0, 1)]}
    return Plan(**(facts | {"world_size": 1} | given))  # type: ignore[arg-type]


def judged(running: Plan | None, leader: str = "a/i", **nodes: Mapping[str, object]) -> list[str]:
    before, after = view(1, running, leader, **nodes), view(2, running, leader, **nodes)
    return judge("j", before, after).trouble


def test_a_running_job_whose_heartbeats_move_is_healthy() -> None:
    assert judged(plan(), a={}) == []


def test_each_kind_of_trouble_is_named() -> None:
    assert judged(None, a={}) == ["no attempt has been formed yet"]
    assert judged(plan(), leader="", a={}) == ["nobody leads"]
    assert judged(plan(), a={"launcher": False}) == [
        "node a: its launcher's heartbeat stands still"
    ]
    assert judged(plan(), a={"sidecar": False}) == ["node a: its sidecar's heartbeat stands still"]
    assert judged(plan()) == ["node a: a member of the attempt, but nobody there reports"]
    assert judged(plan("ended", cause="crash"), a={}) == ["attempt 0 is ending: crash"]
    gone = RankReport(**{**vars(RANK), "alive": False})
    report = NodeReport("a", "i", 0, 0, 0, 0, True, ranks=[gone])
    assert judged(plan(), a={"report": report}) == ["rank 0 on a is gone"]


def test_a_rank_that_finished_is_not_called_gone() -> None:
    finished = RankReport(**{**vars(RANK), "alive": False, "ending": 1})
    report = NodeReport("a", "i", 0, 0, 0, 0, True, ranks=[finished])
    assert judged(plan(), a={"report": report}) == []


def test_a_loss_that_is_no_number_is_shown_to_be_none() -> None:
    diverged = RankReport(**{**vars(RANK), "is_loss_finite": False})
    report = {"report": NodeReport("a", "i", 0, 0, 0, 0, True, ranks=[diverged])}
    standing = judge("j", view(1, plan(), a=report), view(2, plan(), a=report))
    assert "not finite" in page(standing, 0.0)
    assert "not finite" not in page(judge("j", view(1, plan(), a={}), view(2, plan(), a={})), 0.0)


def test_what_a_script_says_that_it_does_is_shown_in_place_of_the_phase() -> None:
    busy = RankReport(**{**vars(RANK), "busy": "rollout", "phase": "idle", "phase_age_s": 900.0})
    report = {"report": NodeReport("a", "i", 0, 0, 0, 0, True, ranks=[busy])}
    standing = judge("j", view(1, plan(), a=report), view(2, plan(), a=report))
    assert standing.trouble == []
    assert "rollout" in page(standing, 0.0)
    assert "idle" not in page(standing, 0.0)


def shown_at(address: str, **given: object) -> str:
    report = NodeReport("a", "i", 0, 0, 0, attempt=0, launcher_alive=True, metrics_address=address)
    told: dict[str, object] = {"report": report}
    running = plan(**given)  # type: ignore[arg-type]
    return page(judge("j", view(1, running, a=told), view(2, running, a=told)), 0.0)


def test_where_a_browser_sees_the_job_is_told_while_it_runs() -> None:
    assert "page        http://127.0.0.1:9750/" in shown_at("127.0.0.1:9750")
    assert "page        https://a:9750/" in shown_at("https://a:9750")
    assert "page  " not in shown_at("")
    assert "page  " not in shown_at("127.0.0.1:9750", state="done")


def test_a_lost_node_that_was_replaced_is_no_trouble_any_more() -> None:
    report = NodeReport("z", "i", 0, 0, 0, 0, True, findings=[FINDING])
    dead = {"launcher": False, "sidecar": False, "report": report}
    running = plan()
    assert judged(running, a={}, z=dead) == []
    before, after = view(1, running, a={}, z=dead), view(2, running, a={}, z=dead)
    standing = judge("j", before, after)
    assert [(node.node, node.node_rank, node.launcher) for node in standing.nodes] == [
        ("a", 0, True),
        ("z", None, False),
    ]
    assert standing.findings == []


def test_the_nodes_of_a_job_that_has_ended_are_not_called_silent() -> None:
    dead = {"launcher": False, "sidecar": False}
    for state, told in (
        ("running", ("node rank 0", "its launcher is silent")),
        ("stopped", ("left", "the job has ended")),
    ):
        before, after = view(1, plan(state), a=dead), view(2, plan(state), a=dead)
        (line,) = node_lines("j", before, after, PolicySettings(), 0.0)
        assert (line.place, words.why(line, 0.0)) == told


def test_a_finding_of_a_living_sidecar_is_trouble() -> None:
    report = NodeReport("a", "i", 0, 0, 0, 0, True, ranks=[RANK], findings=[FINDING])
    assert judged(plan(), a={"report": report}) == ["hang on a"]


def test_a_node_short_of_room_for_snapshots_is_shown_and_is_no_trouble() -> None:
    short = Finding(Kind.NO_SNAPSHOTS, "a", 0.0, 1.0, what="memory", evidence=["1 slot of 3"])
    report = NodeReport("a", "i", 0, 0, 0, 0, True, ranks=[RANK], findings=[short])
    before, after = (view(beat, plan(), a={"report": report}) for beat in (1, 2))
    standing = judge("j", before, after)
    assert (standing.trouble, standing.findings) == ([], [short])
    assert "1 slot of 3" in page(standing, 10.0)


WORTH_KNOWING = [
    Finding(Kind.GPU_FAULT, "a", 0.0, 0.95, evidence=["xid 43"], what="xid 43 on 0000:17:00.0"),
    Finding(Kind.LINK_FLAPPING, "a", 0.0, 0.6, evidence=["it came back"], what="mlx5_0/1"),
    Finding(Kind.LINK_DOWN, "a", 0.0, 0.9, evidence=["no link"], what="eno1"),
    Finding(Kind.NO_PEER_COPY, "a", 0.0, 1.0, evidence=["none takes them"]),
    Finding(Kind.GATE_BLIND, "a", 0.0, 0.9, evidence=["not seen"], what="gpus"),
]


@pytest.mark.parametrize("told", WORTH_KNOWING, ids=lambda one: one.kind.value)
def test_what_nothing_is_done_about_is_shown_and_is_no_trouble(told: Finding) -> None:
    report = NodeReport("a", "i", 0, 0, 0, 0, True, ranks=[RANK], findings=[told])
    before, after = (view(beat, plan(), a={"report": report}) for beat in (1, 2))
    standing = judge("j", before, after)
    assert standing.is_healthy
    assert told.evidence[0] in page(standing, 10.0)


@pytest.mark.parametrize(
    "ill",
    [
        Finding(Kind.GPU_FAULT, "a", 0.0, 0.95, what="xid 31", remedy=Remedy.RESTART_APP),
        Finding(Kind.LINK_FLAPPING, "a", 0.0, 0.85, what="mlx5_0/1"),
        Finding(Kind.LINK_DOWN, "a", 0.0, 0.9, what="mlx5_0/1", remedy=Remedy.REPLACE),
        Finding(Kind.NVML_WEDGED, "a", 0.0, 0.9, what="poll"),
        Finding(Kind.ECC_STORM, "a", 0.0, 0.9),
    ],
    ids=lambda one: one.kind.value,
)
def test_what_asks_for_something_or_foretells_worse_is_trouble(ill: Finding) -> None:
    report = NodeReport("a", "i", 0, 0, 0, 0, True, ranks=[RANK], findings=[ill])
    assert judged(plan(), a={"report": report}) == [f"{ill.kind.value} on a"]


def test_a_slowness_that_may_pass_is_shown_and_no_trouble() -> None:
    found = Finding(Kind.STRAGGLER, "b", 0.0, 0.9, [5])
    passing = dataclasses.replace(slow_job.SLOW, is_persistent=False)
    other = dataclasses.replace(slow_job.SLOW, node="c", ranks=[9])
    for slow, trouble in (
        ([passing], []),
        ([passing, other], []),
        ([slow_job.SLOW], ["straggler on b"]),
        ([], ["straggler on b"]),
    ):
        told = dataclasses.replace(slow_job.STANDING, slow=slow)
        report = NodeReport("a", "i", 0, 0, 0, 0, True, ranks=[RANK], findings=[found], slow=told)
        given = {"report": report}
        standing = judge("j", view(1, plan(), a=given), view(2, plan(), a=given))
        assert (standing.trouble, standing.findings) == (trouble, [found])


@pytest.mark.parametrize(
    ("kind", "acts", "silent_s", "trouble"),
    [
        (Kind.STALL, False, 3.0, []),
        (Kind.STALL, False, 21.0, ["stall on a"]),
        (Kind.STALL, True, 3.0, ["stall on a"]),
        (Kind.HANG, False, 3.0, ["hang on a"]),
        (Kind.DATA_STALL, False, 3.0, ["data_stall on a"]),
    ],
)
def test_a_short_silence_alone_is_shown_and_no_trouble(
    kind: Kind, acts: bool, silent_s: float, trouble: list[str]
) -> None:
    found = Finding(kind, "a", 0.0, 0.4, [RANK.rank], acts=acts)
    rank = dataclasses.replace(RANK, phase_age_s=silent_s)
    report = NodeReport("a", "i", 0, 0, 0, 0, True, ranks=[rank], findings=[found])
    given = {"report": report}
    standing = judge("j", view(1, plan(), a=given), view(2, plan(), a=given))
    assert standing.findings == [found]
    assert [line for line in standing.trouble if not line.startswith("no step for")] == trouble


def test_a_silence_of_a_rank_that_nobody_tells_of_is_trouble() -> None:
    found = Finding(Kind.STALL, "a", 0.0, 0.4, [7])
    report = NodeReport("a", "i", 0, 0, 0, 0, True, ranks=[RANK], findings=[found])
    assert judged(plan(), a={"report": report}) == ["stall on a"]


def test_many_findings_of_one_kind_are_one_line_of_trouble() -> None:
    ill = [
        Finding(Kind.GPU_FAULT, "a", 0.0, 0.9, what=f"xid {n}", remedy=Remedy.RESET_GPU)
        for n in range(5)
    ]
    report = NodeReport("a", "i", 0, 0, 0, 0, True, ranks=[RANK], findings=[*ill, FINDING])
    assert judged(plan(), a={"report": report}) == ["gpu_fault x5 on a", "hang on a"]


def test_the_line_of_trouble_names_the_gpus_and_what_the_driver_told_of_them() -> None:
    def told(what: str, index: int) -> Finding:
        found = Finding(Kind.GPU_FAULT, "a", 0.0, 0.9, what=what, remedy=Remedy.RESET_GPU)
        return dataclasses.replace(found, gpu=f"GPU-{index}", gpu_index=index)

    one = told("xid 31 on 0000:17:00.0", 3)
    report = NodeReport("a", "i", 0, 0, 0, 0, True, ranks=[RANK], findings=[one])
    assert judged(plan(), a={"report": report}) == ["gpu_fault on a: xid 31, GPU 3"]
    more = [one, told("xid 79 on 0000:2a:00.0", 4), told("gpu4-recovery", 4)]
    report = dataclasses.replace(report, findings=more)
    assert judged(plan(), a={"report": report}) == [
        "gpu_fault x3 on a: xid 31, GPU 3; xid 79, GPU 4"
    ]


@pytest.mark.parametrize(
    ("order", "newest", "line"),
    [
        (SnapshotOrder(0, 1, 1), 7, "every step, the newest of step 7, 2.9 KiB of memory"),
        (SnapshotOrder(0, 1, 20), -1, "every 20 steps, none yet, 2.9 KiB of memory"),
        (SnapshotOrder(0, 1, 0, "node a: no room"), -1, "none: node a: no room"),
        (SnapshotOrder(4, 1, 1), 7, ""),
    ],
)
def test_snapshots_are_told_in_one_line(order: SnapshotOrder, newest: int, line: str) -> None:
    report = NodeReport(
        "a", "i", 0, 0, 0, 0, True, snapshot=SnapshotReport(0, 3, newest=newest, slot_bytes=3000)
    )
    found = view(2, plan(), a={"report": report})
    sections = {**found.sections, Section.SNAPSHOT: {"current": encode(order)}}
    told = page(judge("j", found, View(found.lease, "s", sections)), 10.0)
    assert [text[12:] for text in told.splitlines() if text.startswith("snapshots")] == (
        [line] if line else []
    )


def test_who_slows_the_job_is_told_in_one_line() -> None:
    slow = dataclasses.replace(slow_job.STANDING, attempt=0)
    told = NodeReport("a", "i", 0, 0, 0, 0, True, ranks=[RANK], slow=slow)
    before, after = (view(beat, plan(), a={"report": told}) for beat in (1, 2))
    standing = judge("j", before, after)
    assert (
        "slow        rank 5 on b, +31 % since step 1200: cpu_quota; the job would be 18 % faster "
        "without it\n            why: holdfast explain --slow j\n"
    ) in page(standing, 10.0)
    plain = json.loads(json.dumps(dataclasses.asdict(standing)))
    assert plain["slow"]["slow"][0]["cause"] == "cpu_quota"
    later = plan(attempt=1)
    before, after = (view(beat, later, a={"report": told}) for beat in (1, 2))
    assert judge("j", before, after).slow is None
    over = plan("done")
    assert (
        judge("j", view(1, over, a={"report": told}), view(2, over, a={"report": told})).slow
        is None
    )


WHY = "it cost 40 s so far, a restart costs 2 min"


def slow_page(**told: str) -> str:
    slow = dataclasses.replace(slow_job.STANDING, attempt=0)
    report = NodeReport(
        "a", "i", 0, 0, 0, 0, True, ranks=[RANK], slow=slow, staying=told, findings=[FOUND]
    )
    before, after = (view(beat, plan(), a={"report": report}) for beat in (1, 2))
    return page(judge("j", before, after), 5000.0)


FOUND = Finding(
    Kind.STRAGGLER, "b", 4000.0, 0.95, [5], evidence=["throttled in 28% of the time", "raise it"]
)


def test_why_a_slow_node_is_not_replaced_is_told_below_it() -> None:
    told = slow_page(**{"rank 5 on b": WHY})
    assert f"without it\n            not replaced: {WHY}\n            why: holdfast" in told
    assert "not replaced" not in slow_page()


def test_that_all_ranks_became_slower_is_told_and_no_trouble() -> None:
    change = PaceChange(200, 1.8, 0.052, 0.094, "forward")
    slow = dataclasses.replace(slow_job.QUIET, attempt=0, change=change)
    report = NodeReport("a", "i", 0, 0, 0, 0, True, ranks=[RANK], slow=slow)
    standing = judge("j", *(view(beat, plan(), a={"report": report}) for beat in (1, 2)))
    assert standing.is_healthy
    assert "\nchanged     every rank takes 1.8 times as long as before step 200 (" in page(
        standing, 5000.0
    )


def test_a_standing_that_nobody_renews_says_of_when_it_is() -> None:
    slow = dataclasses.replace(slow_job.STANDING, attempt=0)
    report = NodeReport("a", "i", 0, 0, 0, 0, True, ranks=[RANK], slow=slow)
    standing = judge("j", *(view(beat, plan(), a={"report": report}) for beat in (1, 2)))
    assert "(as of 10 min 10 s ago: no step was judged since)" in page(standing, 5600.0)
    assert "as of" not in page(standing, 5000.0)


def test_status_fits_a_narrow_terminal_and_is_whole_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    piped = slow_page(**{"rank 5 on b": WHY})
    assert any(line.startswith("straggler  rank 5 on node b, for ") for line in piped.splitlines())
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    folded = slow_page(**{"rank 5 on b": WHY})
    assert " ".join(folded.split()) == " ".join(piped.split())
    heading, _, _, findings = folded.split("\n\n")
    assert max(map(len, f"{heading}\n{findings}".splitlines())) <= 60, folded


def test_what_the_leader_waits_for_is_said_by_the_leader_alone() -> None:
    few = "waiting for the launchers of b to report"
    waits = {"report": NodeReport("a", "i", 0, 0, 0, 0, True, waiting=few)}
    standing = judge("j", view(1, a=waits), view(2, a=waits))
    assert standing.waiting == few
    assert standing.trouble == [few]
    running = judge("j", view(1, plan(), a=waits), view(2, plan(), a=waits))
    assert f"\nheld up     {few}\n" in page(running, 0.0)
    deposed = judge("j", view(1, leader="b/i", a=waits, b={}), view(2, leader="b/i", a=waits, b={}))
    assert deposed.waiting == ""
    assert "held up" not in page(deposed, 0.0)


def test_ranks_of_an_earlier_attempt_are_not_shown() -> None:
    report = NodeReport("a", "i", 0, 0, 0, 0, True, ranks=[RANK])
    running = plan(attempt=1)
    before, after = view(1, running, a={"report": report}), view(2, running, a={"report": report})
    assert judge("j", before, after).nodes[0].ranks == []


def test_a_reading_settles_once_every_heartbeat_moved_or_the_job_has_ended() -> None:
    assert is_settled(view(1, plan(), a={}), view(2, plan(), a={}))
    dead = {"launcher": False}
    assert not is_settled(view(1, plan(), a={}, b=dead), view(2, plan(), a={}, b=dead))
    done = plan("done")
    assert is_settled(view(1, done, a={}, b=dead), view(1, done, a={}, b=dead))


def between_runs(
    first: int, second: int, state: str = "joining", attempt: int = 0, incarnation: str = "new"
) -> tuple[View, View]:
    """Node b's launcher, with these beats, after the run of node a has ended."""
    views = []
    for beat in (first, second):
        ended = view(1, plan("stopped", exit_code=65, message="boom"), "b/i", a={}, b={})
        report = AgentReport("b", incarnation, state, attempt, beat, 1, "", 3, 3)
        few = NodeReport("b", "i", beat, 0, 0, -1, True, waiting="1 of 3 nodes are here")
        sections = {
            Section.PLAN: ended.section(Section.PLAN),
            Section.AGENTS: {**ended.section(Section.AGENTS), "b": encode(report)},
            Section.NODES: {**ended.section(Section.NODES), "b": encode(few)},
        }
        views.append(View(ended.lease, "s", sections))
    return views[0], views[1]


def test_a_launcher_that_waits_to_begin_the_next_run_makes_the_job_wait() -> None:
    before, after = between_runs(1, 2)
    standing = judge("j", before, after)
    assert not has_ended(before, after)
    assert (standing.state, standing.attempt, standing.message) == ("waiting", None, "")
    assert standing.trouble == ["waiting: 1 of 3 nodes are here"]
    assert [node.node for node in standing.nodes] == ["b"]


def test_only_a_living_launcher_that_knows_of_the_end_waits_for_the_next_run() -> None:
    for views in (
        between_runs(1, 1),
        between_runs(1, 2, state="left"),
        between_runs(1, 2, attempt=-1),
        between_runs(1, 2, incarnation="i"),
    ):
        assert has_ended(*views)
        assert judge("j", *views).trouble == ["stopped with exit code 65: boom"]


def test_whether_a_launcher_that_may_wait_for_the_next_run_lives_takes_two_readings() -> None:
    assert not is_settled(*between_runs(1, 1))
    assert is_settled(*between_runs(1, 2))


def replaced(waiting: str) -> JobStatus:
    waits = {"report": NodeReport("a", "i", 0, 0, 0, 0, True, waiting=waiting)}
    ended = plan("ended", cause="node_lost")
    return judge("j", view(1, ended, a=waits), view(2, ended, a=waits))


def test_a_job_that_waits_for_a_replacement_has_not_ended() -> None:
    standing = replaced("1 of 2 nodes are here")
    assert standing.trouble == ["waiting: 1 of 2 nodes are here (attempt 0 ended: node_lost)"]
    shown = page(standing, 0.0)
    assert shown.startswith("job j: waiting, attempt 0, 1 rank, in trouble\n")
    assert shown.count("1 of 2 nodes are here") == 1
    assert replaced("").trouble == ["attempt 0 is ending: node_lost"]


def test_who_went_without_a_word_is_no_spare() -> None:
    gone: dict[str, object] = {"launcher": False, "sidecar": False}
    before, after = (view(beat, plan(), a={}, b=gone, c={}) for beat in (1, 2))
    told = page(judge("j", before, after), 0.0)
    assert re.search(r"^b +lost +silent +silent", told, re.MULTILINE), told
    assert re.search(r"^c +spare +running +alive", told, re.MULTILINE), told
    places = {one.node: one.place for one in node_lines("j", before, after, PolicySettings(), 0.0)}
    assert (places["b"], places["c"]) == ("away", "spare")
    over = [view(beat, plan("done"), a={}, b=gone, c={}) for beat in (1, 2)]
    assert "lost" not in page(judge("j", *over), 0.0)


def test_what_was_said_of_an_earlier_incident_is_not_said_of_this_one() -> None:
    before = Incident("304f", 0, "crash", "a", evidence=["rank 3: SIGKILL"], confidence=0.9)

    def said(state: str, incident: str) -> str:
        now = plan(state, message=story(before), incident=incident)
        return judge("j", view(1, now, a={}), view(2, now, a={})).message

    assert "holdfast explain 304f" in said("running", "")
    assert "holdfast explain 304f" in said("evidence", "304f")
    assert said("ended", "77aa") == ""
    asked = plan("ended", message="preempted (SIGTERM on a)", incident="77aa")
    assert judge("j", view(1, asked, a={}), view(2, asked, a={})).message == asked.message


@pytest.mark.parametrize(
    ("given", "is_told"),
    [
        ({}, True),
        ({"recovered_unix_s": 21.0}, False),
        ({"cause": "restart"}, False),
        ({"detected_unix_s": 4.0}, False),
        ({"attempt": 1}, False),
        ({"step_reached": 0}, False),
    ],
    ids=["under way", "over", "planned", "of another run", "of this attempt", "without steps"],
)
def test_a_restart_is_told_until_every_rank_has_made_a_step(
    given: dict[str, Any], is_told: bool
) -> None:
    facts: dict[str, Any] = {"attempt": 0, "cause": "crash", "detected_unix_s": 20.0}
    facts |= {"culprit_ranks": [0], "step_reached": 7}
    incident = Incident(**({"identifier": "x", "decided": "restart"} | facts | given))
    begun = plan(attempt=1, began_unix_s=9.0)
    now = view(2, begun, a={})
    now = View(now.lease, "s", {**now.sections, Section.INCIDENTS: {"x": encode(incident)}})
    told = "attempt 1 is starting after the crash of rank 0: not every rank has made a step yet"
    assert (told in judge("j", view(1, begun, a={}), now).trouble) is is_told


def test_a_launcher_that_was_told_to_end_is_not_just_silent() -> None:
    now = view(2, plan(), a={"launcher": False})
    left = AgentReport("a", "i", "left", 0, 0, 1, "", 1, 1, left_for="SIGINT")
    now = View(now.lease, "s", {**now.sections, Section.AGENTS: {"a": encode(left)}})
    told = judge("j", view(1, plan(), a={"launcher": False}), now).trouble
    assert told == ["node a: its launcher received SIGINT and left"]


def test_nobody_of_a_job_that_has_ended_is_called_silent() -> None:
    done = view(1, plan("done"), a={})
    shown = page(judge("j", done, done), 0.0)
    assert "silent" not in shown
    assert ["a", "0", "left", "ended", "act"] in [line.split() for line in shown.splitlines()]


def test_status_and_explain_name_one_cost_of_an_incident() -> None:
    times = {"since_unix_s": 100.0, "detected_unix_s": 100.3, "recovered_unix_s": 111.9}
    incident = Incident("x", 0, "crash", **times)  # type: ignore[arg-type]
    healthy = view(2, plan(), a={})
    sections = {**healthy.sections, Section.INCIDENTS: {"x": encode(incident)}}
    standing = judge("j", view(1, plan(), a={}), View(healthy.lease, "s", sections))
    cost = tell(incident).lost_s
    assert cost is not None
    assert f"recovered in {span(cost)} (" in page(standing, 200.0)


def test_a_job_that_somebody_else_launched_needs_no_plan() -> None:
    dead = RankReport(**{**vars(RANK), "rank": 1, "alive": False})

    def seen(beat: int, ranks: list[RankReport]) -> View:
        report = NodeReport("a", "i", beat, -1, 0, 3, True, ranks=ranks, attached=True)
        return View(Lease(1, "a/i"), "s", {Section.NODES: {"a": encode(report)}})

    healthy = judge("j", seen(1, [RANK]), seen(2, [RANK]))
    assert (healthy.state, healthy.attempt, healthy.world_size) == ("attached", 3, 1)
    assert healthy.trouble == []
    assert "job j: attached, attempt 3, 1 rank, healthy" in page(healthy, 0.0)
    assert judge("j", seen(1, [RANK, dead]), seen(2, [RANK, dead])).trouble == [
        "rank 1 on a is gone"
    ]
    assert "node a: its sidecar's heartbeat stands still" in (
        judge("j", seen(2, [RANK]), seen(2, [RANK])).trouble
    )


def silent(phase: str, age_s: float, step_s: float = 0.064, *, number: int) -> RankReport:
    more = {"rank": number, "phase": phase, "phase_age_s": age_s, "step_s": step_s}
    return RankReport(**{**vars(RANK), **more})


@pytest.mark.parametrize(
    ("ranks", "told"),
    [
        ([("backward", 295.0), ("backward", 297.0)], ["no step for 4 min 55 s, usually 64 ms"]),
        ([("backward", 295.0), ("idle", 0.1)], []),
        ([("backward", 295.0), ("evaluating", 295.0)], []),
        ([("saving", 295.0)], []),
        ([("backward", 19.0)], []),
        ([("backward", 295.0, 20.0)], []),
        ([("forward", 295.0, 0.0)], []),
    ],
)
def test_a_job_of_which_every_rank_stands_still_is_not_called_healthy(
    ranks: list[tuple[Any, ...]], told: list[str]
) -> None:
    reports = [silent(*facts, number=number) for number, facts in enumerate(ranks)]
    report = NodeReport("a", "i", 0, 0, 0, 0, True, ranks=reports)
    assert judged(plan(), a={"report": report}) == told


def test_an_attempt_without_a_step_yet_says_for_how_long() -> None:
    def told(resumed_step: int, attempt: int = 0) -> str:
        rank = RankReport(**{**vars(RANK), "resumed_step": resumed_step})
        report = NodeReport("a", "i", 0, attempt, 0, 0, True, ranks=[rank])
        running = plan(attempt=attempt, restarts=attempt, began_unix_s=100.0)
        found = [view(beat, running, a={"report": report}) for beat in (1, 2)]
        incident = Incident("x", 0, "hang", detected_unix_s=150.0, reopened_unix_s=160.0)
        kept = {Section.INCIDENTS: {"x": encode(incident)}} if attempt else {}
        after = View(found[1].lease, "s", {**found[1].sections, **kept})
        return page(judge("j", found[0], after), 225.0)

    assert "no rank has made a step yet, for 2 min 5 s" in told(RANK.step)
    assert "no rank has made a step yet, for 1 min 5 s" in told(RANK.step, attempt=1)
    assert "no rank has made a step yet" not in told(RANK.step - 1)


def ranks_shown(state: str = "running", found: tuple[Finding, ...] = (), **dead: bool) -> str:
    """Node a leads; of node b `dead` says which heartbeats stand still."""
    members = [Member("a", "i", 0, 0, 1), Member("b", "i", 1, 1, 1)]
    running = plan(state, members=members, world_size=2)
    leads = NodeReport("a", "i", 0, 0, 0, 0, True, ranks=[RANK], findings=list(found))
    other = RankReport(**{**vars(RANK), "rank": 1, "phase_age_s": 0.176})
    report = NodeReport("b", "i", 0, 0, 0, 0, True, ranks=[other])
    nodes: dict[str, dict[str, object]] = {"a": {"report": leads}, "b": {"report": report, **dead}}
    standing = judge("j", view(1, running, "a/i", **nodes), view(2, running, "a/i", **nodes))
    lines = page(standing, 100.0).splitlines()
    return next(line for line in lines if line.split()[:2] == ["1", "b"])


def test_ranks_of_a_lost_node_are_told_as_lost_and_since_when() -> None:
    row = ranks_shown(launcher=False, sidecar=False)
    assert row.split() == ["1", "b", "1", "5", "lost", "-", "-", "-"]
    gone = Finding(Kind.NODE_LOST, "b", 3.0, 0.95, [1])
    shown = ranks_shown(found=(gone,), launcher=False, sidecar=False)
    assert shown.split()[4:9] == ["lost", "1", "min", "37", "s"]


def test_ranks_that_nobody_watches_are_told_with_what_they_did_last() -> None:
    assert "forward (last heard)" in ranks_shown(sidecar=False)
    assert "176 ms" not in ranks_shown(sidecar=False)
    assert "176 ms" in ranks_shown(launcher=False)  # its sidecar tells of them
    assert "176 ms" in ranks_shown("done", launcher=False, sidecar=False)
