"""The leader through whole failures, in simulated time."""

from __future__ import annotations

import dataclasses
import random
from functools import partial
from pathlib import Path

import pytest
from tests.unit.controller.simulated_job import STEP_S, SimulatedJob

from holdfast_sidecar.config.settings import PolicySettings
from holdfast_sidecar.controller.checkpoint_orders import UNREAD
from holdfast_sidecar.policy.cluster import parse_cluster
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import Request
from holdfast_sidecar.store.memory_store import MemoryStore
from holdfast_sidecar.store.protocol import Section


def running(job: SimulatedJob, attempt: int) -> bool:
    plan = job.plan
    return (
        plan is not None
        and plan.state == "running"
        and plan.attempt == attempt
        and all(
            n.state == "running" and n.attempt == attempt and n.step > n.resumed
            for n in job.nodes.values()
            if n.name in {m.node for m in plan.members}
        )
    )


def run_to_step(job: SimulatedJob, attempt: int, step: int) -> None:
    job.run_until(lambda: running(job, attempt))
    for node in job.nodes.values():
        node.step = step


def started(tmp_path: Path, **options: object) -> SimulatedJob:
    job = SimulatedJob(tmp_path, **options)  # type: ignore[arg-type]
    job.run_until(lambda: running(job, 0))
    return job


def test_the_first_attempt_starts_when_all_nodes_are_there_and_ranks_follow_names(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, nodes=2)
    assert job.plan is not None
    assert [(m.node, m.node_rank, m.first_rank) for m in job.plan.members] == [
        ("n0", 0, 0),
        ("n1", 1, 2),
    ]
    assert job.plan.world_size == 4


def test_fewer_nodes_than_the_minimum_never_start(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, nodes=2)
    del job.nodes["n1"]
    job.run(5)
    assert job.plan is None


def test_a_killed_rank_is_named_and_the_job_restarts_once_in_place(tmp_path: Path) -> None:
    job = started(tmp_path)
    job.nodes["n1"].crash(1, -9, job.now)
    job.run_until(lambda: running(job, 1))
    job.run(1)
    (incident,) = job.incidents()
    assert (incident.cause, incident.culprit_node, incident.culprit_ranks) == ("crash", "n1", [3])
    assert incident.decided == "restart"
    assert incident.recovered_unix_s > 0
    assert job.plan is not None
    assert [m.node for m in job.plan.members] == ["n0", "n1"]
    assert job.plan.restarts == 1


def test_a_survivor_that_reports_first_is_not_blamed(tmp_path: Path) -> None:
    job = started(tmp_path)
    job.nodes["n0"].crash(0, 1, job.now - 0.02, "RuntimeError: gloo Connection closed by peer")
    job.nodes["n1"].crash(0, -11, job.now)
    job.run_until(lambda: running(job, 1))
    (incident,) = job.incidents()
    assert (incident.culprit_node, incident.culprit_ranks) == ("n1", [2])


def test_a_frozen_rank_is_ended_only_after_every_node_kept_its_evidence(tmp_path: Path) -> None:
    job = started(tmp_path)
    job.nodes["n1"].frozen.add(0)
    job.run_until(lambda: job.plan is not None and job.plan.state == "evidence")
    for node in job.nodes.values():
        assert node.state == "running"
    job.run_until(lambda: running(job, 1))
    (incident,) = job.incidents()
    assert (incident.cause, incident.culprit_ranks) == ("hang", [2])
    assert set(incident.kept_by) >= {"n0", "n1"}


def test_a_spare_takes_the_place_of_a_lost_node_and_the_survivor_keeps_its_ranks(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    job.nodes["n0"].dead = True
    job.run_until(lambda: running(job, 1))
    assert job.plan is not None
    assert [(m.node, m.first_rank) for m in job.plan.members] == [("n2", 0), ("n1", 2)]
    (incident,) = job.incidents()
    assert (incident.cause, incident.culprit_node) == ("node_lost", "n0")


def test_without_a_spare_the_job_shrinks_to_its_minimum_and_grows_again(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=2, least=1)
    job.nodes["n1"].dead = True
    job.run_until(lambda: running(job, 1))
    assert job.plan is not None
    assert job.plan.world_size == 2
    job.add("n1")
    job.run_until(lambda: running(job, 2))
    assert job.plan.world_size == 4
    assert job.plan.restarts == 1, "growing uses up no budget"


def test_below_the_minimum_nothing_is_decided_until_the_patience_ends(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=2, policy=PolicySettings(join_timeout_s=20))
    job.nodes["n1"].dead = True
    job.run(15)
    assert job.plan is not None
    assert job.plan.state == "ended"
    job.run(10)
    assert job.plan.state == "stopped"
    assert job.nodes["n0"].exit_code == 75
    (incident,) = job.incidents()
    assert (incident.decided, incident.stopped_for) == ("stop", job.plan.message)


def test_a_launcher_that_its_sidecar_saw_die_is_lost_at_once(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    job.nodes["n1"].launcher_dead = True
    job.nodes["n1"].state = "left"
    before = job.now
    job.run_until(lambda: job.plan is not None and job.plan.attempt == 1)
    assert job.now - before < job.settings.sidecar.node_timeout_s


def test_the_same_exception_at_the_same_step_twice_stops_the_job_for_good(tmp_path: Path) -> None:
    job = started(tmp_path)
    for attempt in (0, 1):
        run_to_step(job, attempt, 7)
        job.run(0.1)
        step = int(job.nodes["n0"].step)
        job.nodes["n0"].crash(0, 1, job.now, f"ValueError: bad sample {attempt}")
        assert step >= 7
    job.run_until(lambda: job.plan is not None and job.plan.state == "stopped")
    assert job.plan is not None
    assert job.plan.exit_code == 65
    assert "ValueError: bad sample 1 at step" in job.plan.message
    last = job.incidents()[-1]
    assert (last.decided, last.stopped_for) == ("stop", job.plan.message)


def test_a_script_that_leaves_with_the_same_code_at_the_same_step_is_stopped_and_says_so(
    tmp_path: Path,
) -> None:
    job = started(tmp_path)
    for attempt in (0, 1):
        run_to_step(job, attempt, 7)
        if attempt == 1:
            assert job.plan is not None
            assert "exited with code 3" in job.plan.message, "the restart says why"
        job.nodes["n1"].crash(0, 3, job.now)
        job.nodes["n0"].crash(0, 1, job.now, "RuntimeError: gloo: Connection closed by peer")
    job.run_until(lambda: job.plan is not None and job.plan.state == "stopped")
    assert job.plan is not None
    assert job.plan.exit_code == 65
    assert "exited with code 3 at step 7" in job.plan.message


def test_a_rank_that_leaves_in_the_middle_of_the_run_again_stops_the_job_and_is_named(
    tmp_path: Path,
) -> None:
    job = started(tmp_path)
    for attempt in (0, 1):
        run_to_step(job, attempt, 7)
        job.nodes["n1"].crash(0, 0, job.now)
        job.nodes["n0"].crash(0, 1, job.now, "RuntimeError: gloo: Connection closed by peer")
    job.run_until(lambda: job.plan is not None and job.plan.state == "stopped")
    assert job.plan is not None
    assert job.plan.exit_code == 65
    assert "left by exit code 0 while others went on at step 7" in job.plan.message
    assert [incident.culprit_node for incident in job.incidents()] == ["n1", "n1"]


def test_the_plan_says_how_long_the_pause_before_the_next_attempt_is_and_why(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, policy=PolicySettings(backoff_s=4.0))
    for attempt in range(3):
        job.run_until(partial(running, job, attempt))
        job.nodes["n0"].crash(0, -9, job.now)
    job.run_until(lambda: job.plan is not None and bool(job.plan.waits))
    assert job.plan is not None
    assert job.plan.state == "ended"
    seconds, rest = job.plan.waits.removeprefix("waiting ").split(" ", 1)
    assert 4.0 <= float(seconds) <= 5.0
    assert rest == "s before attempt 3: restarted 2 times for crash within 3600 s"
    job.run_until(lambda: running(job, 3))
    assert job.plan.waits == ""


def test_a_pause_that_is_over_is_not_told_of_while_a_node_is_missing(tmp_path: Path) -> None:
    job = started(tmp_path, policy=PolicySettings(backoff_s=4.0))
    for attempt in range(3):
        job.run_until(partial(running, job, attempt))
        job.nodes["n0"].crash(0, -9, job.now)
    job.run_until(lambda: job.plan is not None and bool(job.plan.waits))
    job.nodes["n1"].dead = True
    job.run(8)
    assert job.plan is not None
    assert (job.plan.state, job.plan.waits) == ("ended", "")


def test_killings_from_outside_are_no_bug_of_the_job_and_use_up_the_budget_only(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, policy=PolicySettings(budget=3, backoff_s=0.2))
    for attempt in range(4):
        job.run_until(partial(running, job, attempt))
        job.nodes["n0"].crash(0, -9, job.now)
        job.run(0.3)
    job.run_until(lambda: job.plan is not None and job.plan.state == "stopped")
    assert job.plan is not None
    assert job.plan.exit_code == 1


def test_all_ranks_ending_well_ends_the_job_and_sends_the_spare_home(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    job.until = 20
    job.run_until(lambda: all(n.exit_code == 0 for n in job.nodes.values()))
    assert job.plan is not None
    assert job.plan.state == "done"


def test_a_rerun_under_the_same_name_goes_on_counting_attempts(tmp_path: Path) -> None:
    job = started(tmp_path)
    job.until = 20
    job.run_until(lambda: all(n.exit_code == 0 for n in job.nodes.values()))
    job.until = 10**9
    for name in ("n0", "n1"):
        job.add(name)
    job.run_until(lambda: running(job, 1))
    assert job.incidents() == []


def test_a_stop_request_ends_everything_with_zero_and_is_forgotten(tmp_path: Path) -> None:
    job = started(tmp_path)
    store = MemoryStore(job.server)
    store.report(Section.REQUESTS, "r1", encode(Request("r1", "stop", by="someone")))
    job.run_until(lambda: all(n.exit_code == 0 for n in job.nodes.values()))
    job.run(0.5)
    assert not store.read().section(Section.REQUESTS)


def test_a_stop_amid_an_incident_is_its_end(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=2, policy=PolicySettings(join_timeout_s=60))
    job.nodes["n1"].dead = True
    job.run_until(lambda: job.plan is not None and job.plan.state == "ended")
    job.run(1)
    job.ask("r1", "stop")
    job.run_until(lambda: job.nodes["n0"].exit_code == 0)
    (incident,) = job.incidents()
    assert (incident.decided, incident.stopped_for) == ("stop", "asked for by ann@desk")


def test_a_job_that_still_waits_for_nodes_can_be_stopped(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, nodes=2)
    del job.nodes["n1"]
    job.run(1)
    store = MemoryStore(job.server)
    store.report(Section.REQUESTS, "r1", encode(Request("r1", "stop", by="someone")))
    job.run_until(lambda: job.nodes["n0"].exit_code == 0)
    job.run(0.5)
    assert not store.read().section(Section.REQUESTS)


def test_an_emptied_server_gets_the_plan_back_and_nobody_restarts(tmp_path: Path) -> None:
    job = started(tmp_path)
    epoch = job.plan.epoch if job.plan is not None else 0
    job.server.empty()
    job.run(3)
    assert running(job, 0)
    assert job.incidents() == []
    lease = MemoryStore(job.server).read().lease
    assert lease.epoch > epoch, "epochs never go back, not even on an emptied server"


def test_a_paused_server_ends_nothing_however_long_it_takes(tmp_path: Path) -> None:
    job = started(tmp_path)
    job.server.pause()
    job.run(20)
    assert all(n.state == "running" for n in job.nodes.values())
    job.server.resume()
    job.run(5)
    assert running(job, 0)
    assert job.incidents() == []


def test_a_crash_while_the_server_is_away_is_mended_when_it_returns(tmp_path: Path) -> None:
    job = started(tmp_path)
    job.server.pause()
    job.run(1)
    job.nodes["n1"].crash(0, -9, job.now)
    job.run(5)
    assert job.nodes["n0"].attempt == 0
    job.server.resume()
    job.run_until(lambda: running(job, 1))


def test_a_requested_checkpoint_is_saved_at_one_future_step_and_entered(tmp_path: Path) -> None:
    job = started(tmp_path, registered=True)
    store = MemoryStore(job.server)
    store.report(Section.REQUESTS, "r1", encode(Request("r1", "checkpoint")))
    job.run_until(lambda: bool(job.storage.held))
    job.run(0.3)
    assert store.read().section(Section.LEDGER)
    assert not store.read().section(Section.REQUESTS)


@pytest.mark.parametrize("snapshots", [False, True], ids=["direct", "from snapshots"])
def test_a_checkpoint_is_of_the_boundary_to_which_gathered_gradients_put_it_off(
    tmp_path: Path, snapshots: bool
) -> None:
    job = started(tmp_path, registered=True, every_steps=7)
    for node in job.nodes.values():
        node.gathers, node.takes_snapshots = 4, snapshots
    job.run_until(lambda: len(job.storage.held) >= 2)
    for entry in job.storage.held.values():
        assert entry.step % 4 == 0
        assert entry.path.endswith(f"-{entry.step:08d}-{entry.identifier}")


def test_a_request_is_answered_by_the_scheduled_checkpoint_that_is_on_its_way(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, registered=True, every_steps=30)
    store = MemoryStore(job.server)
    job.run_until(lambda: "armed" in store.read().section(Section.CHECKPOINT).get("current", ""))
    store.report(Section.REQUESTS, "r1", encode(Request("r1", "checkpoint")))
    job.run_until(lambda: not store.read().section(Section.REQUESTS))
    assert len(job.storage.held) == 1
    assert '"requested_by":"r1"' in store.read().section(Section.CHECKPOINT)["current"]


def test_a_second_request_joins_the_first(tmp_path: Path) -> None:
    job = started(tmp_path, registered=True)
    store = MemoryStore(job.server)
    for name in ("r1", "r2"):
        store.report(Section.REQUESTS, name, encode(Request(name, "checkpoint", "me", job.now)))
        job.run(0.2)
    job.run_until(lambda: bool(job.storage.held))
    job.run(3)
    assert len(job.storage.held) == 1
    ledger = parse_cluster(store.read()).ledger
    assert [entry.answers for entry in ledger.values()] == [("r1", "r2")]
    assert not store.read().section(Section.REQUESTS)


def test_a_request_that_comes_once_all_is_copied_gets_a_checkpoint_of_its_own(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, registered=True, every_steps=20)
    job.run_until(lambda: job.checkpoint is not None and job.checkpoint.state == "armed")
    order = job.checkpoint
    assert order is not None
    store = MemoryStore(job.server)
    writing = dataclasses.replace(order, state="writing", writers={"0": "n0"})
    store.report(Section.CHECKPOINT, "current", encode(writing))
    store.report(Section.REQUESTS, "r1", encode(Request("r1", "checkpoint", "me", job.now)))
    answered = set()
    for _ in range(20):
        job.tick()
        assert job.checkpoint is not None
        answered.add((job.checkpoint.identifier == order.identifier, job.checkpoint.answers))
    assert (True, ("r1",)) not in answered
    assert (False, ("r1",)) in answered


def test_what_is_refused_is_told_to_who_asked_whatever_is_ordered_next(tmp_path: Path) -> None:
    job = started(tmp_path, registered=False)
    store = MemoryStore(job.server)
    store.report(Section.REQUESTS, "r1", encode(Request("r1", "checkpoint", "me", job.now)))
    job.run(1)
    request = parse_cluster(store.read()).requests["r1"]
    assert "three lines" in request.refused
    before = job.checkpoint
    job.run(2)
    assert job.checkpoint == before, "it is refused once"


def test_refusals_that_nobody_reads_do_not_pile_up(tmp_path: Path) -> None:
    job = started(tmp_path, registered=False)
    store = MemoryStore(job.server)
    for index in range(12):
        name = f"r{index}"
        store.report(Section.REQUESTS, name, encode(Request(name, "checkpoint", "me", job.now)))
        job.run(0.4)
    assert len(store.read().section(Section.REQUESTS)) <= UNREAD + 1


def test_a_step_far_ahead_on_the_grid_does_not_hold_up_a_request(tmp_path: Path) -> None:
    job = started(tmp_path, registered=True, every_steps=10_000)
    store = MemoryStore(job.server)
    job.run(1)
    store.report(Section.REQUESTS, "r1", encode(Request("r1", "checkpoint")))
    job.run_until(lambda: not store.read().section(Section.REQUESTS), 10)
    assert job.storage.held


def test_nor_does_it_while_nobody_knows_yet_how_far_that_is(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, registered=True, every_steps=10_000)
    for node in job.nodes.values():
        node.told_step_s = 0.0
    job.run_until(lambda: running(job, 0))
    job.run(1)
    assert job.checkpoint is None
    for node in job.nodes.values():
        node.told_step_s = STEP_S
    job.ask("r1", "checkpoint")
    job.run_until(lambda: bool(job.storage.held), 10)


def test_the_ledger_holds_what_storage_holds_and_is_rebuilt_when_the_server_was_emptied(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, registered=True, every_steps=20)
    job.run_until(lambda: len(job.storage.tidied) >= 6, 120)
    job.run(0.5)
    store = MemoryStore(job.server)
    assert set(store.read().section(Section.LEDGER)) == set(job.storage.held)
    job.server.empty()
    job.run_until(lambda: set(store.read().section(Section.LEDGER)) >= set(job.storage.held), 5)


def test_a_listing_that_is_older_than_a_checkpoint_does_not_take_it_out_of_the_ledger(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, registered=True, every_steps=20)
    job.storage.lists_late = True
    store = MemoryStore(job.server)
    for checkpoints in range(2, 6):
        job.run_until(partial(lambda count: len(job.storage.tidied) >= count, checkpoints), 60)
        job.run(1.0)
        newest = list(job.storage.held)[-1]
        assert newest in store.read().section(Section.LEDGER)


def test_a_checkpoint_asked_of_a_job_without_state_is_refused_with_the_reason(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, registered=False)
    store = MemoryStore(job.server)
    store.report(Section.REQUESTS, "r1", encode(Request("r1", "checkpoint")))
    job.run(1)
    order = store.read().section(Section.CHECKPOINT)["current"]
    assert "three lines" in order
    (request,) = parse_cluster(store.read()).requests.values()
    assert "three lines" in request.refused


def test_after_a_crash_the_newest_checkpoint_is_resumed_from(tmp_path: Path) -> None:
    job = started(tmp_path, registered=True, every_steps=20)
    job.run_until(lambda: len(job.storage.held) >= 2, 60)
    newest = max(e.step for e in job.storage.held.values())
    job.nodes["n0"].crash(0, -9, job.now)
    job.run_until(lambda: running(job, 1))
    assert job.nodes["n0"].resumed == newest


def test_the_job_grows_only_after_it_saved_for_it(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=3, least=2, registered=True)
    job.nodes["n2"].dead = True
    job.run_until(lambda: running(job, 1))
    job.run(3)
    before = job.nodes["n0"].step
    job.add("n2")
    job.run_until(lambda: running(job, 2))
    assert job.nodes["n0"].resumed >= before


def test_the_job_grows_only_after_a_save_that_came_too_late_was_tried_again(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, nodes=3, least=2, registered=True)
    job.nodes["n2"].dead = True
    job.run_until(lambda: running(job, 1))
    job.run(3)
    before = job.nodes["n0"].step
    job.misses = 1
    job.add("n2")
    job.run_until(lambda: running(job, 2))
    assert job.misses == 0
    assert job.nodes["n0"].resumed >= before


@pytest.mark.parametrize("seed", range(25))
def test_random_faults_never_leave_two_attempts_or_a_stuck_job(tmp_path: Path, seed: int) -> None:
    job = SimulatedJob(
        tmp_path, nodes=3, spares=1, least=2, seed=seed, policy=PolicySettings(budget=99)
    )
    faults = random.Random(seed)
    leaders: dict[int, str] = {}
    for _ in range(6):
        for _ in range(faults.randrange(5, 60)):
            job.tick()
            if (lease := MemoryStore(job.server).read().lease).candidate:
                first = leaders.setdefault(lease.epoch, lease.candidate)
                assert first == lease.candidate, "no epoch is granted twice"
        plant(job, faults)
    job.run_until(lambda: job.plan is not None and running(job, job.plan.attempt), 60)
    for node in job.nodes.values():
        assert node.attempts_run == sorted(set(node.attempts_run)), "no attempt is run twice"


def plant(job: SimulatedJob, faults: random.Random) -> None:
    alive = [n for n in job.nodes.values() if not n.dead]
    victim = faults.choice(alive)
    kind = faults.choice(
        ["crash", "freeze", "node", "pause", "empty", "failover", "slow launcher", "storage"]
    )
    if kind == "crash":
        victim.crash(0, -9, job.now)
    elif kind == "freeze" and victim.state == "running":
        victim.frozen.add(0)
    elif kind == "node" and len(alive) > 2:
        victim.dead = True
        job.add(f"{victim.name}x")
    elif kind == "pause":
        job.server.pause()
        job.run(faults.uniform(0.5, 4.0))
        job.server.resume()
    elif kind == "empty":
        job.server.empty()
    elif kind == "failover":
        job.server.fail_over(lost_writes=faults.randrange(61))
    elif kind == "slow launcher":
        victim.obeys_every = faults.randrange(2, 6)
    elif kind == "storage":
        job.storage.is_away = True
        victim.crash(0, -9, job.now)
        job.run(faults.uniform(0.5, 6.0))
        job.storage.is_away = False
