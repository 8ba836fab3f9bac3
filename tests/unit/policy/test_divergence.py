"""When the leader sends a job back for its numbers: agreed by all ranks, or not at all."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.controller.simulated_job import SimulatedJob

from holdfast_sidecar.cli.explain import page
from holdfast_sidecar.config.settings import (
    CheckpointSettings,
    ModeSettings,
    NumbersSettings,
    Settings,
)
from holdfast_sidecar.incidents.explain import sum_up, tell
from holdfast_sidecar.policy.budget import EXIT_DO_NOT_REQUEUE
from holdfast_sidecar.policy.cluster import Cluster, parse_cluster
from holdfast_sidecar.policy.numbers import (
    NEAR_STEPS,
    SKIPS_KEPT,
    add_skip,
    find_divergence,
    find_left_alone,
)
from holdfast_sidecar.records.checkpoint import LedgerEntry
from holdfast_sidecar.records.plan import LEFT_ALONE, BatchSkip, Incident, Member, Plan
from holdfast_sidecar.records.reports import NodeReport, RankReport
from holdfast_sidecar.store.memory_store import MemoryStore

SETTINGS = Settings(
    checkpoint=CheckpointSettings(dir="/c"),
    numbers=NumbersSettings(spikes_roll_back=True),
)
PLAN = Plan(
    0,
    1,
    "running",
    members=[Member("a", "x", 0, 0, 2), Member("b", "y", 1, 2, 2)],
    world_size=4,
)

NOW = 1000.0


def well(rank: int) -> RankReport:
    return RankReport(
        rank, rank % 2, 1, 60, "forward", 0.0, 0.1, 0.1, loss=1.0, state_registered=True
    )


def ill(rank: int, onset: int = 50, steps: int = 9) -> RankReport:
    return dataclasses.replace(
        well(rank), loss=None, is_loss_finite=False, onset_step=onset, ill_steps=steps
    )


def silent(rank: int) -> RankReport:
    """An early stage of a pipeline, which has no loss."""
    return dataclasses.replace(well(rank), loss=None)


def spiking(rank: int, onset: int = 50) -> RankReport:
    return dataclasses.replace(well(rank), spike_onset=onset)


def entry(step: int, verdict: str = "good") -> LedgerEntry:
    return LedgerEntry(f"c{step}", "/c", step, 0, 1, "", verdict, 1, 4, 0.0)


def job(*ranks: RankReport, ledger: tuple[LedgerEntry, ...] = (entry(40),)) -> Cluster:
    nodes = {
        name: NodeReport(name, "x", 1, 0, 1, 0, True, ranks=[r for r in ranks if r.rank in held])
        for name, held in (("a", (0, 1)), ("b", (2, 3)))
    }
    return Cluster(nodes=nodes, ledger={e.identifier: e for e in ledger})


def cause(cluster: Cluster, settings: Settings = SETTINGS) -> str:
    found = find_divergence(cluster, PLAN, settings, NOW)
    return "" if found is None else found.cause


@pytest.mark.parametrize(
    ("ranks", "found"),
    [
        ((ill(0), ill(1), ill(2), ill(3)), "nonfinite"),
        ((silent(0), silent(1), ill(2), ill(3)), "nonfinite"),
        ((ill(0), ill(1), ill(2), well(3)), ""),
        ((ill(0), well(1), well(2), well(3)), ""),
        ((ill(0), ill(1), ill(2), ill(3, steps=4)), ""),
        ((ill(0), ill(1), ill(2)), ""),
        ((silent(0), silent(1), silent(2), silent(3)), ""),
        ((spiking(0), spiking(1), spiking(2), well(3)), "spike"),
        ((spiking(0), spiking(1), well(2), well(3)), ""),
        ((spiking(0), silent(1), silent(2), silent(3)), "spike"),
        ((spiking(0), spiking(1), ill(2), spiking(3)), "spike"),
    ],
)
def test_it_is_agreed_by_all_ranks_that_tell_or_not_taken(
    ranks: tuple[RankReport, ...], found: str
) -> None:
    assert cause(job(*ranks)) == found


def test_by_default_a_spike_is_only_told() -> None:
    default = dataclasses.replace(SETTINGS, numbers=NumbersSettings())
    assert cause(job(*map(spiking, range(4))), default) == ""


def test_it_can_be_switched_off() -> None:
    off = dataclasses.replace(SETTINGS, numbers=NumbersSettings(nonfinite_steps=0))
    assert cause(job(*map(ill, range(4))), off) == ""


def test_without_anything_of_before_to_go_back_to_nothing_is_ended() -> None:
    ranks = [*map(ill, range(4))]
    assert cause(job(*ranks, ledger=())) == ""
    assert cause(job(*ranks, ledger=(entry(50), entry(60)))) == ""
    assert cause(job(*ranks, ledger=(entry(40, "poisoned"),))) == ""
    assert cause(job(*ranks), dataclasses.replace(SETTINGS, checkpoint=CheckpointSettings())) == ""
    unregistered = dataclasses.replace(ill(3), state_registered=False)
    assert cause(job(*ranks[:3], unregistered)) == ""


def test_who_was_ill_before_the_others_is_named_and_nobody_else() -> None:
    found = find_divergence(
        job(ill(0, 51), ill(1, 51), ill(2, 51), ill(3, 50)), PLAN, SETTINGS, NOW
    )
    assert found is not None
    assert (found.culprit_node, found.culprit_ranks, found.onset_step) == ("b", [3], 50)
    assert found.evidence == [
        "losses or gradients are not finite on all 4 ranks that tell any, from step 50 on, first "
        "on rank 3"
    ]
    together = find_divergence(job(*map(ill, range(4))), PLAN, SETTINGS, NOW)
    assert together is not None
    assert (together.culprit_node, together.culprit_ranks) == ("", [])
    assert together.confidence > found.confidence


@pytest.mark.parametrize(
    ("cause_before", "onset", "is_same"),
    [
        ("nonfinite", 50, True),
        ("nonfinite", 50 - NEAR_STEPS, True),
        ("nonfinite", 51 + NEAR_STEPS, False),
        ("spike", 50, False),
    ],
)
def test_a_divergence_close_to_an_earlier_one_is_the_same(
    cause_before: str, onset: int, is_same: bool
) -> None:
    before = Incident("i", 0, cause_before, onset_step=onset, signature="as before")
    cluster = dataclasses.replace(job(*map(ill, range(4))), incidents={"i": before})
    found = find_divergence(cluster, PLAN, SETTINGS, NOW)
    assert found is not None
    assert (found.signature == "as before") is is_same


def test_the_batches_around_the_onset_are_passed_over_and_those_of_before_still() -> None:
    settings = Settings(numbers=NumbersSettings(skip_batches=20))
    found = Incident("i", 0, "nonfinite", onset_step=51)
    assert add_skip([], found, 0, settings) == [BatchSkip(40, 20)]
    assert add_skip([], found, 45, settings) == [BatchSkip(45, 20)]
    first = BatchSkip(7, 3)
    assert add_skip([first], found, 0, settings) == [first, BatchSkip(40, 20)]
    again = add_skip([first, BatchSkip(40, 5)], found, 0, settings)
    assert again == [first, BatchSkip(40, 20)]
    assert add_skip([first], Incident("i", 0, "crash", onset_step=51), 0, settings) == [first]
    assert add_skip([first], None, 0, settings) == [first]
    assert add_skip([first], found, 0, Settings()) == [first]
    many = [BatchSkip(step, 1) for step in range(100)]
    assert len(add_skip(many, found, 0, settings)) == SKIPS_KEPT


CHECKPOINTS = CheckpointSettings(dir="/c", every_steps=40, good_after_s=3.0, good_after_steps=5)


def start(folder: Path, numbers: NumbersSettings | None = None) -> SimulatedJob:
    return SimulatedJob(folder, slots=1, registered=True, checkpoint=CHECKPOINTS, numbers=numbers)


def is_good(job: SimulatedJob, step: int) -> bool:
    ledger = parse_cluster(MemoryStore(job.server).read()).ledger
    return any(entry.step == step and entry.verdict == "good" for entry in ledger.values())


def attempt(job: SimulatedJob) -> int:
    return -1 if job.plan is None else job.plan.attempt


def test_a_job_whose_numbers_are_wrong_everywhere_goes_back_without_having_crashed(
    tmp_path: Path,
) -> None:
    job = start(tmp_path, NumbersSettings(skip_batches=10))
    job.run_until(lambda: is_good(job, 40))
    for node in job.nodes.values():
        node.onset = 90
    job.run_until(lambda: attempt(job) == 1)
    plan = job.plan
    assert plan is not None
    assert [candidate.step for candidate in plan.resume] == [40]
    assert plan.skips == [BatchSkip(84, 10)]
    assert "10 batches are passed over before step 84" in plan.message
    (incident,) = job.incidents()
    assert (incident.cause, incident.onset_step, incident.decided) == ("nonfinite", 90, "restart")
    assert sorted(incident.kept_by) == ["n0", "n1"]
    job.run(1.0)
    job.nodes["n0"].crash(0, -9, job.now)
    job.run_until(lambda: attempt(job) == 2)
    assert job.plan is not None
    assert job.plan.skips == plan.skips


def test_the_next_run_of_the_job_passes_them_over_too(tmp_path: Path) -> None:
    job = start(tmp_path, NumbersSettings(skip_batches=10))
    job.run_until(lambda: is_good(job, 40))
    for node in job.nodes.values():
        node.onset = 90
    job.run_until(lambda: job.is_running(1))
    job.ask("stop", "stop")
    job.run_until(lambda: all(node.exit_code is not None for node in job.nodes.values()))
    for name in list(job.nodes):
        job.add(name)
    job.run_until(lambda: attempt(job) == 2)
    assert job.plan is not None
    assert job.plan.skips == [BatchSkip(84, 10)]


def test_one_rank_alone_is_told_about_and_the_job_goes_on(tmp_path: Path) -> None:
    job = start(tmp_path)
    job.run_until(lambda: is_good(job, 40))
    job.nodes["n1"].onset = 90
    job.run(20.0)
    assert attempt(job) == 0
    assert job.incidents() == []


def test_a_divergence_that_comes_back_at_the_same_step_stops_the_job(tmp_path: Path) -> None:
    job = start(tmp_path)
    for node in job.nodes.values():
        node.diverges_at = 90
    job.run_until(lambda: job.plan is not None and job.plan.state == "stopped", seconds=60)
    assert job.plan is not None
    assert (job.plan.attempt, job.plan.exit_code) == (1, EXIT_DO_NOT_REQUEUE)
    assert "the same failure 2 times: numbers not finite from step 90 on" in job.plan.message


def test_where_it_may_only_be_told_what_would_have_been_done_is_on_record(tmp_path: Path) -> None:
    job = SimulatedJob(
        tmp_path,
        slots=1,
        registered=True,
        checkpoint=CHECKPOINTS,
        modes=ModeSettings(numbers="suggest"),
    )
    job.run_until(lambda: is_good(job, 40))
    for node in job.nodes.values():
        node.onset = 90
    job.run(8.0)
    assert attempt(job) == 0
    (incident,) = job.incidents()
    assert (incident.cause, incident.decided) == ("nonfinite", "suggest")
    assert any("would have restarted" in text for text in incident.evidence)
    for node in job.nodes.values():
        node.onset = -1
    job.run(1.0)
    (incident,) = job.incidents()
    assert incident.recovered_unix_s > incident.detected_unix_s


def test_what_the_job_can_t_go_back_for_was_seen_and_left_alone(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, slots=1)
    job.run_until(lambda: job.is_running(0))
    job.run(4.0)
    for node in job.nodes.values():
        node.onset = 30
    job.run(8.0)
    (incident,) = job.incidents()
    assert (incident.cause, incident.decided, incident.onset_step) == ("nonfinite", LEFT_ALONE, 30)
    assert incident.evidence[-1] == (
        "it was left alone: the script registered no state that could go back"
    )
    assert not tell(incident).is_over
    for node in job.nodes.values():
        node.onset = -1
    job.run(1.0)
    (incident,) = job.incidents()
    chapters = [chapter.what for chapter in tell(incident).chapters]
    assert chapters[-2] == "nothing was done (it was seen and left alone)"
    assert chapters[-1] == f"it was over by itself, after step {incident.step_resumed}"
    assert incident.step_resumed > incident.step_reached
    assert sum_up(tell(incident)).startswith("The job computed numbers that are not finite: ")


def test_a_job_that_ends_with_such_numbers_has_them_on_record(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, slots=1)
    job.run_until(lambda: job.is_running(0))
    for node in job.nodes.values():
        node.onset = 20
    job.until = 100
    job.run_until(lambda: job.plan is not None and job.plan.state == "done")
    (incident,) = job.incidents()
    assert incident.ended_unix_s > 0
    assert tell(incident).is_over


@pytest.mark.parametrize(
    ("ranks", "settings", "why"),
    [
        (ill, Settings(numbers=NumbersSettings(nonfinite_steps=0)), "nonfinite_steps is 0"),
        (spiking, Settings(), "spikes_roll_back is off"),
        (ill, Settings(), "no checkpoint directory"),
        (ill, SETTINGS, "no checkpoint from before step 50"),
    ],
)
def test_why_numbers_were_left_alone_is_told(
    ranks: Callable[[int], RankReport], settings: Settings, why: str
) -> None:
    found = find_left_alone(job(*map(ranks, range(4)), ledger=()), PLAN, settings, NOW)
    assert found is not None
    assert why in found.evidence[-1]


def test_a_bad_batch_that_a_script_passes_over_is_no_incident() -> None:
    passing = [ill(rank, steps=2) for rank in range(4)]
    assert find_left_alone(job(*passing, ledger=()), PLAN, Settings(), NOW) is None


def test_spikes_that_come_again_and_again_are_one_incident(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, nodes=3, slots=1)
    job.run_until(lambda: job.is_running(0))
    job.run(4.0)
    for late in ("n0", "n1", "n2"):  # whoever was first is another one every time
        for node in job.nodes.values():
            node.spike_onset = int(node.step) + (node.name != late)
        job.run(1.0)
        for node in job.nodes.values():
            node.spike_onset = -1
        job.run(90.0)
    (incident,) = job.incidents()
    assert (incident.cause, incident.decided, incident.came_back) == ("spike", LEFT_ALONE, 2)
    assert (incident.culprit_node, incident.culprit_ranks) == ("", [])
    assert incident.recovered_unix_s > incident.detected_unix_s
    assert "it came back twice" in tell(incident).reasons


def test_a_spike_that_ends_in_nan_is_followed_by_an_incident_of_that(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, slots=1)
    job.run_until(lambda: job.is_running(0))
    job.run(4.0)

    def follow(spike: int, nonfinite: int) -> dict[str, Incident]:
        for node in job.nodes.values():
            node.spike_onset, node.onset = spike, nonfinite
        job.run(3.0)
        return {incident.cause: incident for incident in job.incidents()}

    follow(30, -1)
    told = follow(30, 34)
    assert tell(told["spike"]).chapters[-1].what == (
        "it went over into another: losses or gradients of all ranks are no numbers any more"
    )
    assert "seen and left alone until it went over into another" in page(
        tell(told["spike"]), [], tmp_path
    )
    assert not tell(told["nonfinite"]).is_over
    again = follow(30, -1)
    assert len(job.incidents()) == 2
    assert not tell(again["spike"]).is_over
    assert tell(again["nonfinite"]).is_over


def test_a_hang_is_on_record_though_the_numbers_are_wrong_too(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, mode="observe")
    job.run_until(lambda: job.is_running(0))
    for node in job.nodes.values():
        node.onset = 20
    job.run(4.0)
    job.nodes["n1"].frozen = {0}
    job.run(3.0)
    assert [i.cause for i in sorted(job.incidents(), key=lambda i: i.detected_unix_s)] == [
        "nonfinite",
        "hang",
    ]


def test_a_spike_rolls_back_where_that_is_asked_for(tmp_path: Path) -> None:
    job = start(tmp_path, NumbersSettings(spikes_roll_back=True))
    job.run_until(lambda: is_good(job, 40))
    for node in job.nodes.values():
        node.spike_onset = 85
    job.run_until(lambda: attempt(job) == 1)
    assert job.plan is not None
    assert [candidate.step for candidate in job.plan.resume] == [40]
    assert "numbers spiked from step 85 on: back to step 40" in job.plan.message


def test_it_began_with_the_first_step_that_told_it() -> None:
    found = find_divergence(job(*map(ill, range(4))), PLAN, SETTINGS, NOW)
    assert found is not None
    assert found.since_unix_s == pytest.approx(NOW - 10 * 0.1)
