"""Who leads after a leader is gone, how soon, and under which epoch."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.unit.controller.troubled_job import TroubledJob

from holdfast_sidecar.config.settings import SnapshotSettings
from holdfast_sidecar.policy.cluster import Cluster, Heartbeats, beats, parse_cluster
from holdfast_sidecar.policy.election import is_taken, why_gone
from holdfast_sidecar.policy.start import find_absent
from holdfast_sidecar.records.findings import Kind
from holdfast_sidecar.records.plan import Member, Plan
from holdfast_sidecar.records.reports import AgentReport, NodeReport
from holdfast_sidecar.store.memory_store import MemoryStore
from holdfast_sidecar.store.protocol import Lease

TIMEOUT_S = 1.1


def report(node: str, **changes: object) -> NodeReport:
    fields = {"pid": 7, "launcher_pid": 1, **changes}
    return NodeReport(node, "s", 1, 0, 4, 0, True, **fields)  # type: ignore[arg-type]


def agent(node: str, **changes: object) -> AgentReport:
    fields = {"pid": 1, **changes}
    return AgentReport(node, "i", "running", 0, 1, 1, "", 1, 2, **fields)  # type: ignore[arg-type]


def cluster(*agents: AgentReport, **nodes: NodeReport) -> Cluster:
    members = [Member(a.node, "i", index, index, 1) for index, a in enumerate(agents)]
    plan = Plan(0, 4, "running", members, len(members))
    return Cluster({a.node: a for a in agents}, nodes, plan)


def judged(seen: Cluster, silent_s: float) -> Heartbeats:
    """A judge who has looked all the time, and saw nothing move for so long."""
    heartbeats = Heartbeats(counted_s=9, late_after_s=9)
    heartbeats.observe(beats(seen), "server", 0, 0)
    heartbeats.observe(beats(seen), "server", silent_s, silent_s)
    return heartbeats


@pytest.mark.parametrize(
    ("candidate", "given", "silent_s", "says"),
    [
        ("a/s", cluster(agent("a"), a=report("a")), 1.0, ""),
        ("a/s", cluster(agent("a"), a=report("a")), 1.1, "silent for 1.1 s"),
        ("a/s", cluster(agent("a", ended_sidecar=7), a=report("a")), 0.0, "saw it end"),
        ("a/s", cluster(agent("a", ended_sidecar=6), a=report("a")), 0.0, ""),
        ("a/older", cluster(agent("a"), a=report("a")), 0.0, "another sidecar"),
        ("a/s", cluster(agent("a")), 9.0, ""),
    ],
    ids=[
        "it beats",
        "it is silent",
        "its parent saw it end",
        "another one ended before it",
        "its node has another one",
        "an emptied store has not heard of it yet",
    ],
)
def test_a_leader_is_deposed_only_where_it_can_not_lead(
    candidate: str, given: Cluster, silent_s: float, says: str
) -> None:
    why = why_gone(given, candidate, judged(given, silent_s), TIMEOUT_S, silent_s)
    assert (says in why) if says else not why


@pytest.mark.parametrize(
    ("epoch", "leader", "is_new", "taken"),
    [
        (3, "b/x", True, False),
        (4, "a/s", True, False),
        (4, "b/x", False, True),
        (4, "", True, True),
        (4, "", False, False),
        (5, "a/s", False, True),
    ],
    ids=[
        "an epoch of before",
        "they saw this very leader",
        "they saw another one lead in it",
        "a new lease, and an epoch that somebody remembers from its disk",
        "who has led for a while is meant by it",
        "a later epoch",
    ],
)
def test_an_epoch_that_was_somebody_elses_is_not_led_in(
    epoch: int, leader: str, is_new: bool, taken: bool
) -> None:
    other = NodeReport("c", "s", 1, 0, epoch, 0, True, floor_leader=leader)
    assert is_taken(Lease(4, "a/s"), [other], is_new) is taken


def test_the_leader_tells_of_a_lost_member_and_of_one_that_runs_on_unwatched() -> None:
    seen = cluster(
        agent("a"), agent("b"), agent("c", ended_sidecar=7), a=report("a"), c=report("c")
    )
    lost = Cluster(seen.agents, seen.nodes, seen.plan, lost={"b": 1.2})
    found = list(find_absent(lost, judged(seen, 0.5), TIMEOUT_S, 0.5, 100.0))
    assert [(f.kind, f.node, f.ranks) for f in found] == [
        (Kind.NODE_LOST, "b", [1]),
        (Kind.SIDECAR_LOST, "c", [2]),
    ]
    assert found[0].since_unix_s == pytest.approx(98.8)
    assert not any(finding.acts for finding in found)
    silent = list(find_absent(seen, judged(seen, 1.2), TIMEOUT_S, 1.2, 100.0))
    assert [(f.kind, f.node) for f in silent] == [
        (Kind.SIDECAR_LOST, "a"),
        (Kind.SIDECAR_LOST, "c"),
    ]


def test_nobody_is_missed_once_the_job_has_ended() -> None:
    seen = cluster(agent("a", ended_sidecar=7), a=report("a"))
    for state in ("done", "stopped"):
        over = Cluster(seen.agents, seen.nodes, Plan(0, 4, state, seen.plan.members))  # type: ignore[union-attr]
        assert list(find_absent(over, judged(seen, 5), TIMEOUT_S, 5, 100.0)) == []


def settled(folder: Path) -> TroubledJob:
    job = TroubledJob(folder, nodes=3)
    job.run_until(lambda: job.plan is not None and job.plan.state == "running")
    job.run(2)
    return job


def leader(job: TroubledJob) -> str:
    return MemoryStore(job.server).read().lease.candidate.partition("/")[0]


def test_the_death_of_the_leaders_sidecar_costs_no_lease(tmp_path: Path) -> None:
    job = settled(tmp_path)
    first = leader(job)
    job.lose_sidecar(first)
    job.run(0.3)
    assert leader(job) != first
    kinds = {f.kind for f in job.nodes[leader(job)].coordinator.orders().absent}
    assert kinds == {Kind.SIDECAR_LOST}
    job.run(2)
    assert job.nodes[leader(job)].coordinator.orders().absent == ()
    job.check()


def test_a_node_that_is_lost_with_the_leader_is_lost_as_soon_as_any_other(tmp_path: Path) -> None:
    job = settled(tmp_path)
    lost = leader(job)
    job.nodes[lost].dead = True
    before = job.now

    def is_told() -> bool:
        told = [f for n in job.nodes.values() for f in n.coordinator.orders().absent]
        return (Kind.NODE_LOST, lost) in {(finding.kind, finding.node) for finding in told}

    job.run_until(is_told)
    assert job.now - before <= job.settings.sidecar.node_timeout_s + 0.3
    assert leader(job) not in ("", lost)
    job.check()


def test_who_leads_on_a_new_server_hears_everybody_before_it_acts(tmp_path: Path) -> None:
    job = settled(tmp_path)
    written = len(job.orders)
    job.server.fail_over()
    job.nodes["n0"].crash(0, -9, job.now)
    job.run(0.2)
    assert len(job.orders) == written
    job.run_until(lambda: job.plan is not None and job.plan.attempt == 1)


def test_a_leader_that_a_failover_brings_back_gives_way_to_the_epoch_after_its_own(
    tmp_path: Path,
) -> None:
    """Its successor's grant is lost with the old server, not from the others' memory."""
    job = settled(tmp_path)
    old = MemoryStore(job.server).read().lease
    keys = job.server._jobs["job"]
    newer = MemoryStore(job.server).campaign("elsewhere/x", 9.0, old.epoch, old.candidate)
    job.run(0.2)
    keys.lease, keys.highest = old, old.epoch
    job.run(1)
    assert MemoryStore(job.server).read().lease.epoch > newer.epoch


ORDERS = ("checkpoint", "snapshot", "peer", "trace")


def standing(job: TroubledJob) -> Cluster:
    return parse_cluster(MemoryStore(job.server).read())


def not_heard(job: TroubledJob) -> list[str]:
    """Orders in the store that some node's sidecar takes for stale."""
    held = standing(job)
    return [
        f"{node.name}: {name}"
        for node in job.nodes.values()
        for name in ORDERS
        if getattr(held, name) is not None
        and getattr(node.coordinator.orders(), name) != getattr(held, name)
    ]


@pytest.mark.parametrize("peer", ["sync", "async"])
@pytest.mark.parametrize("seed", range(6))
def test_whoever_leads_and_however_often_the_plan_is_written_every_order_is_obeyed(
    seed: int, peer: str, tmp_path: Path
) -> None:
    """Depositions and rewritten plans in any order; a plan's epoch raises every node's fence."""
    job = TroubledJob(tmp_path, nodes=3, registered=True, snapshots=True, seed=seed)
    object.__setattr__(job.settings, "snapshot", SnapshotSettings(peer=peer))
    for node in job.nodes.values():
        node.peer_address = "127.0.0.1:1"
    job.run_until(lambda: job.is_running(0))
    job.ask("trace", "trace", steps=1, at_step=10**6, for_s=1e6)
    job.run_until(lambda: standing(job).snapshot is not None and standing(job).trace is not None)
    job.run_until(lambda: peer == "async" or standing(job).peer is not None)
    job.ask("save", "checkpoint")
    job.run_until(lambda: (order := job.checkpoint) is not None and order.state == "armed")
    job._train = lambda: None  # type: ignore[method-assign]  # nobody comes to the step
    chance = random.Random(seed)
    epoch = MemoryStore(job.server).read().lease.epoch
    for number in range(8):
        if chance.random() < 0.5:
            job.lose_sidecar(leader(job))
        else:
            job.ask(f"w{number}", chance.choice(["pause", "resume"]), for_s=60.0)
        job.run(chance.choice([0.3, 1.5]))
    job.lose_sidecar(leader(job))
    job.run(2)
    job.ask("last", "pause", for_s=60.0)
    job.run(2)
    assert job.plan is not None
    assert job.plan.epoch > epoch, "the plan was written under a later leader"
    order = job.checkpoint
    assert order is not None
    assert order.state == "armed"
    assert not_heard(job) == []
    job.check()
