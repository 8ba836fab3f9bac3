"""A node that cannot reach the store is not a lost node, and a lost node is declared soon."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.controller.simulated_job import TICK_S, SimulatedNode
from tests.unit.controller.troubled_job import TroubledJob

from holdfast_sidecar.config.settings import PolicySettings
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.records.reports import FINISHED


def started(folder: Path, nodes: int = 4, **options: object) -> TroubledJob:
    job = TroubledJob(folder, nodes=nodes, **options)  # type: ignore[arg-type]
    job.run_until(lambda: job.is_running(0))
    job.run(2)
    return job


def leader(job: TroubledJob) -> str:
    return next(n.name for n in job.nodes.values() if n.coordinator.orders().is_leader)


def follower(job: TroubledJob) -> str:
    return max(name for name in job.nodes if name != leader(job))


def told(job: TroubledJob) -> list[Finding]:
    return [one for node in job.nodes.values() for one in node.coordinator.orders().absent]


def is_unharmed(job: TroubledJob) -> bool:
    """Every node still runs the first attempt, and nothing is held against anybody."""
    assert job.plan is not None, job.story()
    ran = [node.attempts_run for node in job.nodes.values() if node.attempts_run]
    return all(one == [0] for one in ran) and job.incidents() == [] and job.plan.outside == []


@pytest.mark.parametrize(
    ("who", "seconds", "spares"),
    [
        ("one", 2.0, 0),
        ("one", 10.0, 1),
        ("one", 60.0, 1),
        ("the leader's", 2.0, 1),
        ("the leader's", 60.0, 0),
        ("several", 2.0, 1),
        ("several", 40.0, 1),
        ("all members", 40.0, 1),
        ("everybody", 10.0, 0),
    ],
)
def test_nodes_that_are_cut_off_from_the_store_train_on(
    who: str, seconds: float, spares: int, tmp_path: Path
) -> None:
    job = started(tmp_path, spares=spares, least=1)
    members = [name for name in job.nodes if job.nodes[name].state == "running"]
    cut = {
        "one": [follower(job)] if not spares else [m for m in members if m != leader(job)][:1],
        "the leader's": [leader(job)],
        "several": [name for name in members if name != leader(job)][:2],
        "all members": members,
        "everybody": list(job.nodes),
    }[who]
    before = {name: job.nodes[name].step for name in members}
    job.cut_until = dict.fromkeys(cut, job.now + seconds)
    job.run(1.8)
    if who != "everybody":
        kinds = {(one.kind, one.node) for one in told(job)}
        assert {node for _, node in kinds} >= set(cut)
        assert {kind for kind, _ in kinds} == {Kind.SIDECAR_LOST}
    job.run(seconds + 1.2)
    assert is_unharmed(job), job.story()
    assert all(job.nodes[name].step >= before[name] + 10 * seconds for name in members)
    assert told(job) == []
    job.check()


@pytest.mark.parametrize("seconds", [2.0, 40.0])
def test_where_no_packet_passes_either_the_steps_of_the_others_speak_for_the_node(
    seconds: float, tmp_path: Path
) -> None:
    job = started(tmp_path, spares=1)
    node = next(n for n in job.nodes if n != leader(job) and job.nodes[n].state == "running")
    job.unreached = {node}
    job.cut_until = {node: job.now + seconds}
    job.run(seconds + 3)
    assert is_unharmed(job), job.story()


def stepping_slowly(job: TroubledJob, seconds: float) -> None:
    """Steps take so long from now on, and ranks say so."""
    job.ticks_per_step = round(seconds / TICK_S)
    for one in job.nodes.values():
        one.told_step_s = seconds
    job.run(6 * seconds)


@pytest.mark.parametrize(("step_s", "seconds"), [(0.3, 3.0), (0.5, 3.0), (1.0, 3.0), (3.0, 8.0)])
def test_where_no_packet_passes_nobody_acts_before_a_step_could_have_spoken(
    step_s: float, seconds: float, tmp_path: Path
) -> None:
    """The way to the store and that of round trips are one: for 1.1 s (0.6 s here) only steps could
    speak, and take longer."""
    job = started(tmp_path, spares=1)
    stepping_slowly(job, step_s)
    node = next(n for n in job.nodes if n != leader(job) and job.nodes[n].state == "running")
    for _ in range(4):  # wherever in a step it strikes
        job.unreached, job.cut_until = {node}, {node: job.now + seconds}
        job.run(seconds + 3.3)
        job.unreached = set()
        job.run(2)
    assert is_unharmed(job), job.story()


@pytest.mark.parametrize(("step_s", "within_s"), [(0.1, 1.1), (0.5, 1.9), (1.0, 2.9)])
def test_a_dead_node_is_acted_on_as_soon_as_its_peers_have_waited_for_a_whole_step(
    step_s: float, within_s: float, tmp_path: Path
) -> None:
    job = hanging(tmp_path, spares=1)
    stepping_slowly(job, step_s)
    node = next(n for n in job.nodes if n != leader(job) and job.nodes[n].state == "running")
    job.nodes[node].dead = True
    before = job.now
    job.run_until(lambda: job.plan is not None and job.plan.state == "ended", within_s)
    assert job.now - before <= within_s


@pytest.mark.parametrize(("nodes", "stands"), [(1, False), (1, True), (4, False), (4, True)])
def test_a_launcher_that_is_silent_beside_ranks_that_live_is_told_and_costs_nothing(
    nodes: int, stands: bool, tmp_path: Path
) -> None:
    """As one that is stopped by Ctrl-Z: its ranks have sessions of their own."""
    job = started(tmp_path, nodes=nodes, spares=int(nodes > 1))
    node = next(
        n for n in job.nodes if nodes == 1 or (n != leader(job) and job.nodes[n].state == "running")
    )
    job.nodes[node].starved = True
    if stands:
        job._train = lambda: None  # type: ignore[method-assign]
    job.run(35)
    assert is_unharmed(job), job.story()
    (finding,) = told(job)
    assert (finding.kind, finding.node) == (Kind.LAUNCHER_LOST, node)
    job.nodes[node].starved = False
    job.run(1)
    assert told(job) == []
    job.check()


def test_a_silent_launcher_whose_sidecar_sees_no_living_rank_is_lost(tmp_path: Path) -> None:
    job = hanging(tmp_path, spares=1)
    node = next(n for n in job.nodes if n != leader(job) and job.nodes[n].state == "running")
    job.nodes[node].starved = True
    job.nodes[node].state = "joining"  # what it would say of its ranks if it could
    job._train = lambda: None  # type: ignore[method-assign]
    job.run(25)
    assert is_unharmed(job), job.story()
    job.run(10)
    assert job.plan is not None
    assert job.plan.attempt == 1


def test_a_restart_does_not_wait_long_for_a_silent_launcher(tmp_path: Path) -> None:
    job = started(tmp_path, spares=1)
    members = [name for name, one in job.nodes.items() if one.state == "running"]
    node = next(name for name in members if name != leader(job))
    job.nodes[node].starved = True
    job.run(20)
    job.nodes[next(name for name in members if name != node)].crash(0, 1, job.now)
    job.run_until(lambda: job.is_running(1), 15)


def test_ranks_that_train_apart_do_not_speak_for_a_node_that_is_gone(tmp_path: Path) -> None:
    job = hanging(tmp_path, spares=1)
    for one in job.nodes.values():
        one.communicates = False
    node = next(n for n in job.nodes if n != leader(job) and job.nodes[n].state == "running")
    job.run(1)
    job.unreached, job.cut_until = {node}, {node: job.now + 60}
    job.run(1.5)
    assert job.plan is not None
    assert job.plan.attempt == 1 or job.plan.state == "ended"


def test_a_node_that_answers_while_its_ranks_stand_still_is_not_lost(tmp_path: Path) -> None:
    job = started(tmp_path, spares=1)
    node = next(n for n in job.nodes if n != leader(job) and job.nodes[n].state == "running")
    job.cut_until = {node: job.now + 60}
    job.nodes[node].frozen.add(0)
    job.run(35)
    assert job.plan is not None
    assert job.plan.attempt == 0
    (finding,) = [one for one in told(job) if one.node == node]
    assert finding.kind is Kind.SIDECAR_LOST
    assert "have stood at step" in finding.evidence[0]


@pytest.mark.parametrize("led", [False, True])
def test_a_dead_node_is_declared_lost_as_soon_as_its_heartbeats_are_late(
    led: bool, tmp_path: Path
) -> None:
    """Its ranks hang rather than crash, as those do that use a GPU."""
    job = started(tmp_path, nodes=4, spares=1)
    job._fail_survivors = lambda peers, plan: None  # type: ignore[method-assign]
    members = [name for name, node in job.nodes.items() if node.state == "running"]
    node = leader(job) if led else next(name for name in members if name != leader(job))
    job.nodes[node].dead = True
    before = job.now
    job.run_until(lambda: job.plan is not None and job.plan.state == "ended", 5)
    assert job.now - before <= job.settings.sidecar.node_timeout_s + 0.5
    job.run_until(lambda: job.is_running(1))
    (incident,) = job.incidents()
    assert (incident.cause, incident.culprit_node) == ("node_lost", node)


def hanging(folder: Path, **options: object) -> TroubledJob:
    """Survivors wait for a dead node instead of crashing."""
    job = started(folder, **options)  # type: ignore[arg-type]
    job._fail_survivors = lambda peers, plan: None  # type: ignore[method-assign]
    return job


def test_without_a_spare_a_lost_node_is_given_up_after_some_seconds(tmp_path: Path) -> None:
    job = hanging(tmp_path, least=2)
    node = follower(job)
    job.nodes[node].dead = True
    job.run(1.5)
    assert (Kind.NODE_LOST, node) in {(one.kind, one.node) for one in told(job)}
    assert job.plan is not None
    assert job.plan.state == "running"
    job.run(5)
    assert job.is_running(1)


def test_a_node_that_comes_back_within_these_seconds_costs_nothing(tmp_path: Path) -> None:
    job = hanging(tmp_path, least=2)
    node = follower(job)
    job.nodes[node].dead = True
    job.run(4)
    job.nodes[node].dead = False
    job.run(5)
    assert is_unharmed(job), job.story()


def test_where_no_witness_could_speak_there_is_patience(tmp_path: Path) -> None:
    job = hanging(tmp_path, least=2, spares=1)
    job.unreached = set(job.nodes)
    for trips in job.round_trips.values():
        trips._heard = {}
    node = next(n for n in job.nodes if n != leader(job) and job.nodes[n].state == "running")
    job.nodes[node].dead = True
    job.run(25)
    assert job.plan is not None
    assert job.plan.attempt == 0
    assert {(one.kind, one.node) for one in told(job)} == {(Kind.SIDECAR_LOST, node)}
    job.run(8)
    assert job.is_running(1)


@pytest.mark.parametrize("apart", [0, 1, 2, 3])
def test_several_that_fall_silent_at_once_mean_the_way_to_the_store_first(
    apart: int, tmp_path: Path
) -> None:
    """apart: so many beats lie between what was heard last of either."""
    job = hanging(tmp_path, least=1, spares=2)
    pair = [n for n in job.nodes if n != leader(job) and job.nodes[n].state == "running"][:2]
    job.nodes[pair[0]].dead = True
    job.run(apart * job.settings.sidecar.heartbeat_s)
    job.nodes[pair[1]].dead = True
    job.run(25)
    assert job.plan is not None
    assert job.plan.attempt == 0
    job.run(10)
    assert job.is_running(1)


def test_an_attempt_that_could_not_be_formed_again_is_not_ended(tmp_path: Path) -> None:
    """The leader's node is cut off from all others with the store on its side."""
    job = hanging(tmp_path, policy=PolicySettings(join_timeout_s=60))
    others = [name for name in job.nodes if name != leader(job)]
    job.unreached = set(others)
    job.cut_until = dict.fromkeys(others, job.now + 45)
    for name in others:
        job.nodes[name].frozen.add(0)  # the network between the ranks is cut, too
    job.run(44)
    assert is_unharmed(job), job.story()
    assert any("too few nodes" in node.coordinator.waiting for node in job.nodes.values())
    assert {one.kind for one in told(job)} == {Kind.NODE_LOST}
    for name in others:
        job.nodes[name].frozen.clear()
    job.run(5)
    assert is_unharmed(job), job.story()


def test_what_can_not_be_formed_again_ends_to_be_requeued(tmp_path: Path) -> None:
    job = hanging(tmp_path, policy=PolicySettings(join_timeout_s=60))
    node = follower(job)
    job.nodes[node].dead = True
    job.run(59)
    assert job.plan is not None
    assert job.plan.state == "running"
    job.run(5)
    assert (job.plan.state, job.plan.exit_code) == ("stopped", 75)
    (incident,) = job.incidents()
    assert (incident.cause, incident.decided) == ("node_lost", "stop")
    assert incident.stopped_for == job.plan.message


def test_a_node_that_dies_while_the_store_comes_and_goes_is_still_found(tmp_path: Path) -> None:
    job = hanging(tmp_path, spares=1)
    node = next(n for n in job.nodes if n != leader(job) and job.nodes[n].state == "running")
    for round_ in range(3):
        job.server.pause()
        job.server_back_at = job.now + 1.0
        if round_ == 1:
            job.nodes[node].dead = True
        job.run(2.0)
    job.run_until(lambda: job.is_running(1))
    (incident,) = job.incidents()
    assert (incident.cause, incident.culprit_node) == ("node_lost", node)


def test_a_node_that_is_cut_off_and_then_dies_is_lost_only_then(tmp_path: Path) -> None:
    job = hanging(tmp_path, spares=1)
    node = next(n for n in job.nodes if n != leader(job) and job.nodes[n].state == "running")
    job.cut_until = {node: job.now + 60}
    job.run(10)
    assert job.plan is not None
    assert job.plan.attempt == 0
    job.nodes[node].dead = True
    before = job.now
    job.run_until(lambda: job.plan is not None and job.plan.state == "ended", 5)
    assert job.now - before <= job.settings.sidecar.node_timeout_s + 0.5


def test_a_cut_off_nodes_launcher_that_its_sidecar_saw_die_is_lost_at_once(
    tmp_path: Path,
) -> None:
    job = hanging(tmp_path, spares=1)
    node = next(n for n in job.nodes if n != leader(job) and job.nodes[n].state == "running")
    job.cut_until = {node: job.now + 60}
    job.run(5)
    job.nodes[node].launcher_dead = True
    job.run_until(lambda: job.plan is not None and job.plan.state == "ended", 2)


@pytest.mark.parametrize("how", ["reclaimed", "asked to go", "lost"])
def test_a_node_that_goes_after_its_ranks_succeeded_is_not_missed(how: str, tmp_path: Path) -> None:
    job = started(tmp_path, nodes=3)
    node = job.nodes[follower(job)]
    job._fail_survivors = lambda peers, plan: None  # type: ignore[method-assign]
    job._train = lambda: None  # type: ignore[method-assign]  # the others only finish what is theirs
    node.state, node.ending = "succeeded", FINISHED
    job.run(1)
    if how == "asked to go":
        node.preempt(job.now)
    elif how == "lost":
        node.dead = True
    else:
        node.preempted_by, node.dead = "SIGTERM", True
    job.run(30)
    assert job.plan is not None
    assert (job.plan.state, job.plan.attempt) == ("running", 0)
    for other in job.nodes.values():
        other.state = "succeeded"
    job.run_until(lambda: job.plan is not None and job.plan.state == "done")
    assert job.incidents() == []


def test_every_sidecar_knows_whose_reports_are_stale_while_the_store_answers(
    tmp_path: Path,
) -> None:
    job = started(tmp_path)
    node = follower(job)
    others = [one for name, one in job.nodes.items() if name != node]
    job.cut_until = {node: job.now + 3}
    job.run(2)
    assert [one.coordinator.orders().stale for one in others] == [{node}] * len(others)
    job.run(2)
    assert [one.coordinator.orders().stale for one in others] == [frozenset()] * len(others)
    job.server.pause()
    job.run(2)
    assert [one.coordinator.orders().stale for one in others] == [frozenset()] * len(others)
    job.server.resume()
    job.run(0.2)
    assert [one.coordinator.orders().stale for one in others] == [frozenset()] * len(others)


def member_besides_the_leader(job: TroubledJob) -> str:
    return next(n for n in job.nodes if n != leader(job) and job.nodes[n].state == "running")


@pytest.mark.parametrize(("spares", "least", "seconds"), [(1, 4, 3.0), (0, 3, 9.0), (1, 4, 20.0)])
@pytest.mark.parametrize("why", ["before the first step", "steps are not seen to communicate"])
def test_where_no_step_has_spoken_yet_ranks_may_be_at_work(
    why: str, spares: int, least: int, seconds: float, tmp_path: Path
) -> None:
    """The way to the store and that of round trips are one, and there is no other witness."""
    job = TroubledJob(tmp_path, nodes=4, spares=spares, least=least)
    if why == "before the first step":
        job.ticks_per_step = 10**6
    for one in job.nodes.values():
        one.communicates = False
    job.run(12)
    node = member_besides_the_leader(job)
    job.unreached, job.cut_until = {node}, {node: job.now + seconds}
    job.run(seconds)
    job.unreached = set()
    job.run(5)
    assert is_unharmed(job), job.story()
    job.check()


def test_long_steps_speak_for_a_node_as_long_as_its_peers_do_not_wait_for_it(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, spares=1)
    stepping_slowly(job, 40.0)
    node = member_besides_the_leader(job)
    job.unreached, job.cut_until = {node}, {node: job.now + 50}
    job.run(50)
    job.unreached = set()
    job.run(5)
    assert is_unharmed(job), job.story()


def test_a_dead_node_is_acted_on_though_others_step_in_groups_of_their_own(tmp_path: Path) -> None:
    job = hanging(tmp_path, spares=1)
    for name, one in job.nodes.items():
        one.groups = (f"inside/{name}/8",)
    job.run(2)
    node = member_besides_the_leader(job)
    job.nodes[node].dead = True

    def go_on(peers: list[SimulatedNode], plan: Plan) -> None:
        for peer in peers:
            job._step(peer)

    job._fail_survivors = go_on  # type: ignore[method-assign]
    job.run_until(lambda: job.is_running(1), 40)
    (incident,) = job.incidents()
    assert (incident.cause, incident.culprit_node) == ("node_lost", node)


@pytest.mark.parametrize("silent", [1, 3])
def test_ranks_at_work_are_not_ended_because_nodes_stay_silent(silent: int, tmp_path: Path) -> None:
    """Too few nodes are heard to go on without: whatever waits for the others will say so."""
    job = started(tmp_path, policy=PolicySettings(join_timeout_s=60))
    for one in job.nodes.values():
        one.communicates = False
    job.run(3)
    nodes = [name for name in job.nodes if name != leader(job)][:silent]
    job.unreached, job.cut_until = set(nodes), dict.fromkeys(nodes, job.now + 90)
    job.run(90)
    assert {one.kind for one in told(job)} == {Kind.NODE_LOST}, "people are told all the same"
    job.unreached = set()
    job.run(5)
    assert is_unharmed(job), job.story()


@pytest.mark.parametrize("message", ["ConnectionError: HTTPError 503", "ValueError: boom"])
def test_a_crash_stays_a_crash_when_another_node_is_not_heard_for_a_moment(
    message: str, tmp_path: Path
) -> None:
    job = started(tmp_path, nodes=3, least=2, spares=1)
    one, other = [n for n, o in job.nodes.items() if n != leader(job) and o.state == "running"][:2]
    job.nodes[one].crash(0, 1, job.now, message)
    job.run(0.5)
    job.cut_until = {other: job.now + 2.0}
    job.run_until(lambda: job.is_running(1), 30)
    (incident,) = job.incidents()
    assert (incident.cause, incident.culprit_node) == ("crash", one), job.story()
    assert bool(incident.signature) is not incident.is_of_surroundings
    assert job.plan is not None
    assert other in {member.node for member in job.plan.members}


def test_a_node_that_stays_away_after_a_crash_of_another_is_done_without(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=3, least=2)
    one, other = [name for name in job.nodes if name != leader(job)]
    job.nodes[one].crash(0, 1, job.now, "ValueError: boom")
    job.nodes[other].dead = True
    job.run_until(lambda: job.is_running(1), 10)
    assert job.plan is not None
    assert other not in {member.node for member in job.plan.members}
