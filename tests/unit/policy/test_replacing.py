"""A node that is slow for long gives its place to a spare: when it does, and when it must not."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.unit.controller.simulated_job import SimulatedJob
from tests.unit.records.slow_job import slow

from holdfast_sidecar.config.settings import ModeSettings, PolicySettings
from holdfast_sidecar.export.status import judge
from holdfast_sidecar.incidents.explain import sum_up, tell
from holdfast_sidecar.policy import replacement
from holdfast_sidecar.policy.budget import WITHOUT_NODE
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.policy.outcome import LATE_S, Endurance, SlowSince
from holdfast_sidecar.policy.replacement import Beside, obstacle, restart_cost_s
from holdfast_sidecar.records.checkpoint import LedgerEntry
from holdfast_sidecar.records.plan import Incident
from holdfast_sidecar.records.reports import GateVerdict
from holdfast_sidecar.records.steps import SlowCause, Slowness, SlownessReport
from holdfast_sidecar.store.memory_store import MemoryStore

SLOW = slow(
    2,
    node="n1",
    cause=SlowCause.GPU_CLOCK,
    slowdown=0.5,
    since_step=40,
    gain=0.4,
    evidence=["its GPU runs at 60 % of its clock (thermal slowdown)"],
)


def seen(lasted_s: float, gain: float = 0.4, judgements: int = 500) -> SlowSince:
    return dataclasses.replace(SlowSince().longer(lasted_s, gain), judgements=judgements)


LONG = seen(900.0)
POLICY = PolicySettings()


@pytest.mark.parametrize(
    ("slow", "spell", "policy", "why"),
    [
        ({}, LONG, {}, ""),
        ({}, LONG, {"replace_slow_after_s": 0.0}, "policy.replace_slow_after_s is 0"),
        ({"is_persistent": False}, LONG, {}, "it may pass"),
        ({"confidence": 0.89}, LONG, {}, "only 89% sure"),
        ({"node": ""}, LONG, {}, "another node is no help against gpu_clock"),
        ({}, None, {}, "not seen for 10 min yet"),
        ({}, seen(599.0), {}, "not seen for 10 min yet"),
        ({}, seen(900.0, judgements=9), {}, "not seen for 10 min yet"),
        ({}, seen(0.0, judgements=1), {"replace_slow_after_s": 0.001}, "not seen for 1 ms yet"),
        ({}, seen(9000.0, 0.04), {}, "the job would be only 4.0 % faster"),
        ({}, seen(900.0, 0.1), {}, "it cost 1 min 22 s so far, a restart costs 2 min"),
        ({}, seen(1400.0, 0.1), {}, ""),
        ({"gain": 0.01}, seen(1400.0, 0.1), {}, ""),
    ],
)
def test_a_slow_node_is_replaced_only_when_all_speaks_for_it(
    slow: dict[str, object], spell: SlowSince | None, policy: dict[str, float], why: str
) -> None:
    one = dataclasses.replace(SLOW, **slow)  # type: ignore[arg-type]
    settings = dataclasses.replace(POLICY, **policy)  # type: ignore[arg-type]
    assert obstacle(one, spell, 120.0, settings) == why


CARRIED = {
    "gpu_clock",
    "gpu_power",
    "gpu_link",
    "gpu_shared",
    "compute",
    "cpu_contention",
    "memory_pressure",
    "link",
}


@pytest.mark.parametrize("cause", SlowCause)
def test_only_what_stays_with_a_node_is_a_reason(cause: SlowCause) -> None:
    one = dataclasses.replace(SLOW, cause=cause)
    assert (obstacle(one, LONG, 120.0, POLICY) == "") == (cause.value in CARRIED)


GUESS = dataclasses.replace(
    SLOW,
    cause=SlowCause.COMPUTE,
    confidence=0.95,
    cause_confidence=0.57,
    is_guess=True,
    is_host_only=True,
)
ASLEEP = dataclasses.replace(GUESS, is_asleep=True)
ON_GPU = dataclasses.replace(GUESS, is_host_only=False)
A_MATE, ALONE, ALL = Beside(well=1), Beside(), Beside(well=0, slow=2)
TWICE = " (twice, as its cause is a guess)"


@pytest.mark.parametrize(
    ("one", "beside", "spell", "why"),
    [
        (
            ASLEEP,
            A_MATE,
            seen(9000.0),
            "it sleeps or waits by itself, which is not the machine's doing: the other rank on its"
            " node is well",
        ),
        (ASLEEP, ALONE, seen(1300.0), ""),
        (ASLEEP, ALL, LONG, ""),
        (GUESS, A_MATE, LONG, f"not seen for 20 min yet{TWICE}"),
        (
            GUESS,
            A_MATE,
            seen(1300.0, 0.2),
            f"it cost 3 min 37 s so far, a restart costs 2 min{TWICE}",
        ),
        (GUESS, A_MATE, seen(1300.0), ""),
        (GUESS, ALL, LONG, ""),
        (ON_GPU, A_MATE, LONG, ""),
        (dataclasses.replace(SLOW, cause_confidence=0.5), A_MATE, LONG, ""),
    ],
    ids=[
        "asleep beside one who is well",
        "asleep alone",
        "the whole node sleeps",
        "a guess needs longer",
        "a guess must cost more",
        "a guess that is worth it",
        "the whole node computes slowly",
        "a GPU has no signal either",
        "measured",
    ],
)
def test_a_guess_needs_more_than_a_cause_that_was_measured(
    one: Slowness, beside: Beside, spell: SlowSince, why: str
) -> None:
    # What a restart costs is lost already where nothing else is said.
    restart_s = 120.0 if "cost" in why else 100.0
    assert obstacle(one, spell, restart_s, POLICY, beside) == why


def test_a_restart_costs_what_the_last_ones_took_and_a_checkpoint() -> None:
    assert restart_cost_s(Cluster()) == replacement.ASSUMED_RESTART_S
    done = {
        str(took): Incident(
            str(took),
            0,
            "crash",
            detected_unix_s=100.0 + took,
            decided="restart",
            ended_unix_s=100.0,
            recovered_unix_s=100.0 + took,
        )
        for took in (90.0, 10.0, 30.0, 20.0)
    }
    saved = LedgerEntry("c", "/c", 1, 0, 1, "", "complete", 9, 4, 1.0, blocked_s=2.0, write_s=9.0)
    # The newest three: 20, 30 and 90 s.
    assert restart_cost_s(Cluster(incidents=done, ledger={"c": saved})) == 32.0
    backwards = {
        name: dataclasses.replace(one, recovered_unix_s=40.0) for name, one in done.items()
    }
    assert restart_cost_s(Cluster(incidents=backwards)) == replacement.ASSUMED_RESTART_S


def test_before_any_restart_the_first_start_says_what_one_takes() -> None:
    assert restart_cost_s(Cluster(), 5.0) == 10.0


def standing(at: float, *slow: Slowness, attempt: int = 0) -> SlownessReport:
    """All the time until then the job made steps."""
    return SlownessReport(attempt, 100, 4, at, slow=list(slow), watched_s=at - 900.0)


def test_slowness_lasts_from_its_first_judgement_to_its_newest() -> None:
    watch = Endurance()
    for second in range(4):
        spells = watch.follow(standing(1000.0 + second, SLOW), "1 0", 10.0 + second)
    assert spells["n1"] == SlowSince(3.0, pytest.approx(3.0 * 0.4 / 1.4), 4)  # type: ignore[arg-type]
    assert spells["n1"].gain == pytest.approx(0.4)
    for second in range(9):  # nobody judges anew: it grows no older
        spells = watch.follow(standing(1003.0, SLOW), "1 0", 14.0 + second)
    assert spells["n1"].lasted_s == 3.0


def test_an_hour_of_evaluating_is_no_slowness() -> None:
    watch = Endurance()
    watch.follow(standing(1000.0, SLOW), "1 0", 10.0)
    for second in range(3600):
        watch.follow(standing(1000.0, SLOW), "1 0", 10.0 + second)
    goes_on = dataclasses.replace(standing(4600.0, SLOW), watched_s=101.0)
    assert watch.follow(goes_on, "1 0", 3610.0)["n1"].lasted_s == 1.0


def test_what_it_cost_is_not_taken_from_the_newest_frame_alone() -> None:
    watch = Endurance()
    mild, strong = (dataclasses.replace(SLOW, gain=gain) for gain in (0.01, 0.5))
    for second in range(600):
        watch.follow(standing(1000.0 + second, mild), "1 0", float(second))
    spell = watch.follow(standing(1600.0, strong), "1 0", 600.0)["n1"]
    assert spell.lost_s == pytest.approx(599 * 0.01 / 1.01 + 1 * 0.5 / 1.5)
    assert spell.gain < 0.02


@pytest.mark.parametrize(
    ("then", "led", "later"),
    [
        (standing(1005.0), "1 0", 1.0),
        (None, "1 0", 1.0),
        (standing(1005.0, dataclasses.replace(SLOW, cause=SlowCause.UNEVEN_WORK)), "1 0", 1.0),
        (standing(1005.0, SLOW), "2 0", 1.0),
        (standing(1005.0, SLOW), "1 1", 1.0),
        (standing(1005.0, SLOW), "1 0", LATE_S + 1),
    ],
    ids=["nobody slow", "no word", "another cause", "a new lease", "a new attempt", "slept"],
)
def test_a_break_begins_it_anew(then: SlownessReport | None, led: str, later: float) -> None:
    watch = Endurance()
    for second in range(5):
        watch.follow(standing(1000.0 + second, SLOW), "1 0", 10.0 + second)
    watch.follow(then, led, 14.0 + later)
    spells = watch.follow(standing(1006.0, SLOW), led, 15.0 + later)
    assert spells["n1"].lasted_s <= 1.0


def slow_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spares: int = 1, **options: object
) -> SimulatedJob:
    """Its node n1 is slow in every attempt that it is in, as whoever leads judges each tick."""
    monkeypatch.setattr(replacement, "ASSUMED_RESTART_S", 1.0)
    policy = PolicySettings(replace_slow_after_s=5.0, quarantine_share=1.0)
    given = {"policy": policy, "registered": True} | options
    job = SimulatedJob(tmp_path, nodes=2, spares=spares, **given)  # type: ignore[arg-type]

    def judged(now: float) -> SlownessReport | None:
        plan = job.plan
        if plan is None or plan.state != "running":
            return None
        seats = {member.node: member for member in plan.members}
        slow = [dataclasses.replace(SLOW, ranks=[seats["n1"].first_rank])] if "n1" in seats else []
        return standing(now, *slow, attempt=plan.attempt)

    for node in job.nodes.values():
        node.judges = judged
    job.run_until(lambda: job.is_running(0))
    return job


def members(job: SimulatedJob) -> list[str]:
    assert job.plan is not None
    return [member.node for member in job.plan.members]


def test_a_spare_takes_its_place_at_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = slow_job(tmp_path, monkeypatch)
    began = job.now
    job.run_until(lambda: job.is_running(1))
    assert 5.0 < job.now - began < 12.0
    assert members(job) == ["n0", "n2"]
    (incident,) = job.incidents()
    assert (incident.cause, incident.culprit_node, incident.culprit_ranks) == (
        "straggler",
        "n1",
        [2],
    )
    assert incident.escalation == WITHOUT_NODE
    assert {"n0", "n1"} <= set(incident.kept_by)
    assert job.plan is not None
    (one,) = job.plan.outside
    assert (one.node, one.incident) == ("n1", incident.identifier)
    assert one.evidence[0] == (
        "50 % slower than its peers since step 40: heat or a brake holds its GPU's clock down"
    )
    assert one.until_unix_s == pytest.approx(job.now + 86400, abs=5)
    assert (job.plan.restarts, job.plan.message.partition(":")[0]) == (1, "straggler on node n1")
    (saved,) = job.storage.held.values()
    assert saved.requested_by == "straggler:n1"
    assert job.nodes["n0"].resumed == saved.step
    job.run(20)
    assert job.is_running(1)
    story = tell(job.incidents()[0])
    assert story.is_over
    assert sum_up(story).startswith("Rank 2 on node n1 slowed the job: 50 % slower than its peers")
    assert "restarted without the node, from step" in sum_up(story)


@pytest.mark.parametrize(
    "options",
    [
        {"spares": 0},
        {"policy": PolicySettings(replace_slow_after_s=0.0, quarantine_share=1.0)},
        {"policy": PolicySettings(replace_slow_after_s=600.0, quarantine_share=1.0)},
        {"policy": PolicySettings(replace_slow_after_s=5.0, quarantine_share=1.0, budget=0)},
        {"policy": PolicySettings(replace_slow_after_s=5.0, max_restarts=0)},
        {"modes": ModeSettings(quarantine="observe")},
        {"registered": False},
    ],
    ids=[
        "no spare",
        "never",
        "not for long enough",
        "no budget",
        "no restart left",
        "nobody may be kept outside",
        "nothing to save",
    ],
)
def test_else_the_job_goes_on_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, object]
) -> None:
    job = slow_job(tmp_path, monkeypatch, **options)  # type: ignore[arg-type]
    job.run(15)
    assert job.is_running(0)
    assert job.incidents() == []
    assert job.storage.held == {}


def test_an_unfit_spare_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = slow_job(tmp_path, monkeypatch)
    job.nodes["n2"].gate = GateVerdict("unfit", ["gpus: 0 of 8 are there"], job.now)
    job.run(15)
    assert job.is_running(0)
    job.nodes["n2"].gate = GateVerdict("fit", [], job.now)
    job.run_until(lambda: job.is_running(1))
    assert members(job) == ["n0", "n2"]


def test_one_observation_is_never_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = slow_job(tmp_path, monkeypatch)
    once = standing(job.now, SLOW)
    for node in job.nodes.values():
        node.judges = lambda now: once
    job.run(30)
    assert job.is_running(0)


def test_ranks_that_are_slow_on_the_spare_too_are_moved_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is what they do, and not the node: the two nodes would take turns."""
    job = slow_job(tmp_path, monkeypatch, spares=2)

    def judged(now: float) -> SlownessReport | None:
        plan = job.plan
        if plan is None or plan.state != "running":
            return None
        on = next(member.node for member in plan.members if member.first_rank == 2)
        return standing(now, dataclasses.replace(SLOW, node=on), attempt=plan.attempt)

    for node in job.nodes.values():
        node.judges = judged
    job.run_until(lambda: job.is_running(1))
    assert members(job) == ["n0", "n2"]
    job.run(30)
    assert job.is_running(1)
    assert members(job) == ["n0", "n2"]


def test_who_leads_anew_watches_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = slow_job(tmp_path, monkeypatch)
    job.run(4)
    store = MemoryStore(job.server)
    before = store.read().lease
    store.resign(before.candidate)
    began = job.now
    job.run(1)
    assert store.read().lease.epoch > before.epoch
    job.run_until(lambda: job.is_running(1))
    assert job.now - began > 5.0


@pytest.mark.parametrize("mode", ["suggest", "observe"])
def test_where_it_may_not_be_done_it_is_on_record_until_it_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    job = slow_job(tmp_path, monkeypatch, modes=ModeSettings(straggler=mode))
    job.run(15)
    assert job.is_running(0)
    (incident,) = job.incidents()
    assert (incident.cause, incident.decided) == ("straggler", mode)
    assert incident.evidence[-1] == f"would have restarted the job, but the mode is {mode}"
    view = MemoryStore(job.server).read()
    suggested = judge("j", view, view).suggestion
    assert suggested == (
        "`holdfast restart --without n1`, for the slowness of rank 2 on node n1"
        if mode == "suggest"
        else ""
    )
    for node in job.nodes.values():
        node.judges = lambda now: standing(now)
    job.run(1)
    (incident,) = job.incidents()
    assert incident.recovered_unix_s


def test_a_checkpoint_that_came_too_late_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = slow_job(tmp_path, monkeypatch)
    job.misses = 1
    job.run_until(lambda: job.is_running(1))
    assert members(job) == ["n0", "n2"]


def test_without_a_checkpoint_nobody_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = slow_job(tmp_path, monkeypatch, snapshots=True)
    for node in job.nodes.values():
        node.breaks = "No space left on device"
    job.run(15)
    assert job.is_running(0)
    assert job.storage.held == {}


def test_while_somebody_works_on_it_nothing_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = slow_job(tmp_path, monkeypatch)
    job.ask("p", "pause", for_s=20.0)
    job.run(15)
    assert job.is_running(0)
    assert [incident.decided for incident in job.incidents()] == ["paused"]
    job.run_until(lambda: job.is_running(1))
    assert members(job) == ["n0", "n2"]


def test_a_node_on_the_verge_makes_no_series_of_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time it has been saved for it, nobody is replaced after all."""
    job = slow_job(tmp_path, monkeypatch)
    monkeypatch.setattr(replacement, "FRESH_S", -1.0)
    job.run(5.0 + 4 * 5.0)
    assert job.is_running(0)
    assert 2 <= len(job.storage.held) <= 5


def stays(job: SimulatedJob) -> str:
    """What the leader says of the slow node."""
    view = MemoryStore(job.server).read()
    told = judge("j", view, view).staying
    assert set(told) <= {"rank 2 on n1"}
    return told.get("rank 2 on n1", "")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"spares": 0}, "no spare waits that could take its place"),
        ({"policy": PolicySettings(replace_slow_after_s=0.0, quarantine_share=1.0)}, ""),
        (
            {"policy": PolicySettings(replace_slow_after_s=600.0, quarantine_share=1.0)},
            "not seen for 10 min yet",
        ),
        (
            {"policy": PolicySettings(replace_slow_after_s=5.0, quarantine_share=1.0, budget=0)},
            "the budget of restarts for it is used up",
        ),
        (
            {"modes": ModeSettings(quarantine="observe")},
            "the mode for keeping a node outside is observe",
        ),
        ({"modes": ModeSettings(straggler="suggest")}, "the mode for it is suggest"),
        (
            {"registered": False},
            "the job can't be saved before (that takes the three lines and --checkpoint-dir)",
        ),
    ],
    ids=["no spare", "never", "not for long", "no budget", "quarantine", "suggest", "unsaved"],
)
def test_why_a_slow_node_keeps_its_place_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, object], why: str
) -> None:
    job = slow_job(tmp_path, monkeypatch, **options)  # type: ignore[arg-type]
    job.run(15)
    assert job.is_running(0)
    assert stays(job) == why


def test_a_cause_that_goes_along_keeps_it_whoever_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = slow_job(tmp_path, monkeypatch)
    uneven = dataclasses.replace(SLOW, cause=SlowCause.UNEVEN_WORK)
    for node in job.nodes.values():
        node.judges = lambda now: standing(now, uneven)
    job.run(10)
    assert stays(job) == "another node is no help against uneven_work"


def test_a_rank_that_sleeps_beside_one_that_is_well_keeps_its_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = slow_job(tmp_path, monkeypatch)
    for node in job.nodes.values():
        node.judges = lambda now: standing(now, ASLEEP)
    job.run(30)
    assert job.is_running(0)
    assert stays(job).startswith("it sleeps or waits by itself")


def test_what_a_restart_would_cost_is_known_from_the_first_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Minutes are assumed only where nobody saw it start."""
    job = slow_job(tmp_path, monkeypatch)
    monkeypatch.setattr(replacement, "ASSUMED_RESTART_S", 1e6)
    began = job.now
    job.run_until(lambda: job.is_running(1))
    assert job.now - began < 30.0
