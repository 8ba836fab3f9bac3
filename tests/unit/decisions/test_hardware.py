"""Ill hardware: what ends an attempt, whose death it explains, what becomes of the node."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from simulated_job import SimulatedJob

from holdfast_sidecar.coordination.memory_store import MemoryStore
from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.decisions.escalation import WITHOUT_NODE
from holdfast_sidecar.decisions.hardware import (
    STILL_RAN,
    began_unix_s,
    explained,
    find_faults,
    name_fault,
    unanswered,
)
from holdfast_sidecar.decisions.leader import decide
from holdfast_sidecar.decisions.outcome import Circumstances
from holdfast_sidecar.decisions.quarantine import add, is_too_much
from holdfast_sidecar.decisions.restart import EXIT_REQUEUE
from holdfast_sidecar.findings import Finding, Kind
from holdfast_sidecar.records.agent import AgentReport
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.gate import GateVerdict
from holdfast_sidecar.records.incident import Incident
from holdfast_sidecar.records.node import NodeReport
from holdfast_sidecar.records.plan import Member, Plan
from holdfast_sidecar.records.quarantine import Quarantine
from holdfast_sidecar.remedy import Remedy, parse_remedy
from holdfast_sidecar.settings import ModeSettings, PolicySettings, Settings
from holdfast_sidecar.standing import judge

NOW = 5000.0

LINE = "NVRM: Xid (PCI:0000:17:00): 79, pid=123, GPU has fallen off the bus."


def fault(
    remedy: Remedy = Remedy.REBOOT_NODE,
    node: str = "a",
    rank: int = 1,
    since: float = NOW,
    **given: object,
) -> Finding:
    facts = {
        "kind": Kind.GPU_FAULT,
        "node": node,
        "since_unix_s": since,
        "confidence": 0.95,
        "ranks": [rank],
        "evidence": [LINE],
        "acts": remedy.blames_hardware,
        "what": "xid 79",
        "gpu": f"GPU-{node}{rank}",
        "remedy": remedy,
    }
    return Finding(**(facts | given))  # type: ignore[arg-type]


PLAN = Plan(3, 1, "running", [Member("a", "i", 0, 0, 2), Member("b", "i", 1, 2, 2)], 4)


def cluster(
    *findings: Finding, incidents: tuple[Incident, ...] = (), mode: str = "act", spare: bool = False
) -> Cluster:
    names = ("a", "b", "c")[: 2 + spare]
    return Cluster(
        agents={
            name: AgentReport(
                name,
                "i",
                "running" if name != "c" else "joining",
                3,
                1,
                2,
                "",
                2,
                2,
                machine=f"m-{name}",
            )
            for name in names
        },
        nodes={
            name: NodeReport(
                name,
                "i",
                1,
                3,
                1,
                attempt=3 if name != "c" else -1,
                launcher_alive=True,
                findings=[f for f in findings if f.node == name],
                mode=mode,
                boot=f"boot-{name}",
            )
            for name in names
        },
        plan=PLAN,
        incidents={one.identifier: one for one in incidents},
        incident_texts={one.identifier: encode(one) for one in incidents},
    )


def crash(**given: object) -> Incident:
    facts = {
        "identifier": "x",
        "attempt": 3,
        "cause": "crash",
        "culprit_node": "a",
        "culprit_ranks": [1],
        "confidence": 0.95,
        "since_unix_s": NOW,
        "detected_unix_s": NOW,
        "signature": "ended by SIGSEGV at step 9",
        "evidence": ["rank 1: ended by SIGSEGV"],
        "culprit_part": "m-a",
    }
    return Incident(**(facts | given))  # type: ignore[arg-type]


def test_a_fault_names_the_gpu_the_rank_and_what_it_needs() -> None:
    named = name_fault(find_faults(cluster(fault()), PLAN), PLAN)
    assert named is not None
    assert (named.cause, named.culprit_node, named.culprit_ranks) == ("gpu", "a", [1])
    assert (named.gpu, named.remedy, named.fault_unix_s) == ("GPU-a1", "reboot_node", NOW)
    assert named.evidence == ["xid 79, GPU GPU-a1, rank 1: its node needs a reboot", LINE]


def test_what_came_up_in_the_attempt_is_named_before_what_was_there_before() -> None:
    """A line of minutes ago, for which the driver's word of now asks for as much."""
    old = fault(Remedy.RESET_GPU, since=NOW - 200, what="xid 31")
    asked = fault(Remedy.RESET_GPU, what="gpu1-recovery")
    began = dataclasses.replace(PLAN, began_unix_s=NOW - 20)
    named = name_fault(unanswered(cluster(old, asked), began), began, NOW - 20)
    assert named is not None
    assert named.evidence[0].startswith("gpu1-recovery")
    assert (named.since_unix_s, named.fault_unix_s) == (NOW, NOW)
    alone = name_fault(unanswered(cluster(old), began), began, NOW - 20)
    assert alone is not None
    assert (alone.since_unix_s, alone.fault_unix_s) == (NOW - 20, NOW - 200)


def test_an_attempt_began_with_its_run_or_with_the_restart_before_it() -> None:
    first = dataclasses.replace(PLAN, began_unix_s=NOW - 500)
    assert began_unix_s(cluster(), first) == NOW - 500
    before = crash(attempt=2, decided="restart", reopened_unix_s=NOW - 90)
    own = crash(identifier="y", decided="restart", reopened_unix_s=NOW + 90)
    assert began_unix_s(cluster(incidents=(before, own)), first) == NOW - 90


@pytest.mark.parametrize(
    "finding",
    [
        fault(Remedy.NONE, acts=True),
        fault(Remedy.RESTART_APP, acts=True),
        fault(acts=False),
        fault(ranks=[]),
        fault(ranks=[3]),
        fault(kind=Kind.NVML_WEDGED, acts=True),
        fault(kind=Kind.LINK_FLAPPING, gpu="", acts=True),
        fault(kind=Kind.GPU_THROTTLED, acts=True),
    ],
    ids=[
        "asks for nothing",
        "the application's",
        "not sure enough",
        "a GPU that nobody uses",
        "a rank of another node",
        "a driver that does not answer",
        "a link that flaps",
        "a GPU that is hot",
    ],
)
def test_what_ends_no_attempt(finding: Finding) -> None:
    assert unanswered(cluster(finding), PLAN) == []
    assert decide(cluster(finding), Circumstances(1, NOW, NOW, Settings())).writes == ()


def test_a_lost_link_is_of_all_ranks_of_its_node() -> None:
    lost = fault(Remedy.REPLACE, node="b", kind=Kind.LINK_DOWN, gpu="", ranks=[], what="mlx5_0")
    named = name_fault(unanswered(cluster(lost), PLAN), PLAN)
    assert named is not None
    assert (named.cause, named.culprit_ranks) == ("link", [2, 3])
    assert named.evidence[0] == "link down (mlx5_0), node b, ranks 2-3: it needs to be replaced"


def test_what_the_driver_asks_for_a_moment_later_counts() -> None:
    """XID 48 asks for a reset, the recovery action that follows it for a reboot."""
    first = fault(Remedy.RESET_GPU, what="xid 48")
    later = fault(Remedy.REBOOT_NODE, since=NOW + 1, what="recovery action")
    named = name_fault(unanswered(cluster(first, later), PLAN), PLAN)
    assert named is not None
    assert named.remedy == "reboot_node"
    assert named.evidence[0].startswith("xid 48")
    known = dataclasses.replace(named, remedy="reset_gpu", identifier="x")
    assert explained(known, cluster(first, later), PLAN).remedy == "reboot_node"


@pytest.mark.parametrize("since", [NOW - 50, NOW - 0.1, NOW + 0.1, NOW + 50])
@pytest.mark.parametrize("cause", ["crash", "hang", "stall"])
def test_a_fault_of_the_rank_s_gpu_explains_it_before_and_after(since: float, cause: str) -> None:
    told = explained(crash(cause=cause), cluster(fault(since=since)), PLAN)
    assert (told.cause, told.culprit_node, told.culprit_ranks) == ("gpu", "a", [1])
    assert told.signature == ""
    assert told.evidence[0].startswith("xid 79, GPU GPU-a1")
    assert told.evidence[-1] == "rank 1: ended by SIGSEGV"
    assert explained(told, cluster(fault(since=since)), PLAN) == told


def test_an_exception_at_the_time_of_a_fault_is_not_the_script_s() -> None:
    raised = crash(is_of_script=True, signature="RuntimeError: # at step 9")
    assert explained(raised, cluster(fault(since=NOW + 3)), PLAN).is_of_script is False


@pytest.mark.parametrize(
    ("incident", "finding"),
    [
        (crash(), fault(since=NOW + 61)),
        (crash(), fault(since=NOW - 61)),
        (crash(is_of_script=True, signature=""), fault(since=NOW - 61)),
        (crash(signature=""), fault(since=NOW - 61, kind=Kind.GPU_MEMORY_FAILING, acts=False)),
        (crash(), fault(rank=0)),
        (crash(), fault(node="b", rank=3)),
        (crash(cause="preempted"), fault()),
        (crash(cause="nonfinite"), fault()),
        (crash(cause="node_lost"), fault()),
        (crash(), fault(Remedy.NONE)),
        (crash(), fault(Remedy.RESTART_APP, since=NOW - 61)),
    ],
)
def test_what_a_fault_does_not_explain(incident: Incident, finding: Finding) -> None:
    assert explained(incident, cluster(finding), PLAN) == incident


def test_a_gpu_that_was_never_mended_explains_deaths_that_no_program_does() -> None:
    old = fault(since=NOW - 5000)
    assert explained(crash(signature=""), cluster(old), PLAN).cause == "gpu"


def test_where_who_is_to_blame_is_a_guess_the_ill_gpu_is() -> None:
    """Its peers raise first: they lost a connection, while its own rank hangs in the driver."""
    victim = crash(culprit_ranks=[3], culprit_node="b", confidence=0.5, signature="")
    told = explained(victim, cluster(fault(since=NOW + 2)), PLAN)
    assert (told.cause, told.culprit_node, told.culprit_ranks) == ("gpu", "a", [1])
    assert told.culprit_part == "m-a"
    nobody = crash(cause="hang", culprit_ranks=[], culprit_node="", confidence=0.0)
    assert explained(nobody, cluster(fault()), PLAN).culprit_ranks == [1]


def test_what_an_application_did_to_its_gpu_blames_no_machine() -> None:
    like_hardware = crash(signature="", evidence=["rank 1: CUDA error: unspecified launch failure"])
    mmu_fault = fault(Remedy.RESTART_APP, what="xid 31", since=NOW + 1)
    told = explained(like_hardware, cluster(mmu_fault), PLAN)
    assert (told.cause, told.is_of_script, told.remedy) == ("crash", True, "")
    assert told.evidence[-1] == (
        "xid 31, GPU GPU-a1, rank 1: it is the application's, and no machine is to blame"
    )
    assert explained(told, cluster(mmu_fault), PLAN) == told


def test_what_may_be_the_application_or_its_gpu_is_told_so_and_acquits_nobody() -> None:
    like_hardware = crash(signature="", evidence=["rank 1: CUDA error: unspecified launch failure"])
    again = fault(Remedy.RESTART_APP, what="xid 13", since=NOW + 1, check=True)
    told = explained(like_hardware, cluster(again), PLAN)
    assert (told.cause, told.is_of_script) == ("crash", False)
    assert told.evidence[-1].endswith("a test tells (`holdfast nodes test`)")
    assert explained(told, cluster(again), PLAN) == told


def test_a_restart_that_reckoned_with_a_fault_answers_it_until_more_is_asked_for() -> None:
    reset = fault(Remedy.RESET_GPU)
    answered = crash(
        cause="gpu", gpu="GPU-a1", remedy="reset_gpu", fault_unix_s=NOW, decided="restart"
    )
    assert unanswered(cluster(reset, incidents=(answered,)), PLAN) == []
    worse = dataclasses.replace(reset, remedy=Remedy.REBOOT_NODE)
    assert unanswered(cluster(worse, incidents=(answered,)), PLAN) != []
    again = dataclasses.replace(reset, since_unix_s=NOW + 90)
    assert unanswered(cluster(again, incidents=(answered,)), PLAN) != []
    late = dataclasses.replace(answered, remedy="")
    assert unanswered(cluster(reset, incidents=(late,)), PLAN) != []


def test_the_exit_of_a_rank_whose_gpu_is_ill_is_no_bug_that_repeats(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=2)
    for attempt in range(2):
        job.run_until(lambda: job.is_running(attempt))  # noqa: B023
        while int(job.nodes["n1"].step) < 30:
            job.tick()
        mmu = fault(Remedy.RESET_GPU, rank=0, since=job.now, acts=False)
        job.nodes["n1"].ill = [mmu]
        job.nodes["n1"].crash(0, -11, job.now)
        job.run_until(lambda: job.plan is not None and job.plan.state != "running")
        job.run(1)
        job.nodes["n1"].ill = []
        if job.plan is not None and job.plan.state == "stopped":
            break
    assert job.plan is not None
    # Not the exit code of a bug: the GPU was tried once in place, and no other node is there.
    assert job.plan.exit_code == EXIT_REQUEUE
    assert {incident.cause for incident in job.incidents()} == {"gpu"}


def started(tmp_path: Path, **options: object) -> SimulatedJob:
    job = SimulatedJob(tmp_path, **options)  # type: ignore[arg-type]
    job.run_until(lambda: job.is_running(0))
    job.run(0.5)
    return job


def ill(remedy: Remedy, job: SimulatedJob, local_rank: int = 0, **given: object) -> Finding:
    """As SimulatedNode.ill wants it."""
    uuid = {"gpu": f"GPU-{local_rank}"} | given
    return fault(remedy, rank=local_rank, since=job.now, **uuid)


def members(job: SimulatedJob) -> list[str]:
    assert job.plan is not None
    return [member.node for member in job.plan.members]


def test_a_gpu_off_the_bus_ends_the_attempt_while_its_rank_hangs_and_a_spare_takes_over(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    job.nodes["n1"].ill = [ill(Remedy.REBOOT_NODE, job, 1)]
    job.run_until(lambda: job.is_running(1))
    assert members(job) == ["n0", "n2"]
    (incident,) = job.incidents()
    assert (incident.cause, incident.culprit_node, incident.culprit_ranks) == ("gpu", "n1", [3])
    assert (incident.gpu, incident.culprit_part) == ("GPU-1", "machine-of-n1")
    assert incident.escalation == WITHOUT_NODE
    assert {"n0", "n1"} <= set(incident.kept_by)
    assert STILL_RAN in incident.evidence
    assert job.plan is not None
    (one,) = job.plan.outside
    assert (one.node, one.gpu, one.remedy, one.boot) == (
        "n1",
        "GPU-1",
        "reboot_node",
        "boot-of-n1",
    )
    assert one.incident == incident.identifier
    assert one.evidence[0] == "node n1 needs a reboot for its GPU GPU-1"
    job.run(20)
    assert job.is_running(1)


def test_a_reboot_ends_its_quarantine_and_another_start_of_the_sidecar_does_not(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    job.nodes["n1"].ill = [ill(Remedy.REBOOT_NODE, job)]
    job.run_until(lambda: job.is_running(1))
    job.nodes["n1"].ill = []
    job.run(5)
    assert job.plan is not None
    assert [one.node for one in job.plan.outside] == ["n1"]
    job.nodes["n1"].reboot()
    job.run(1)
    assert job.plan.outside == []
    job.nodes["n0"].dead = True
    job.run_until(lambda: job.is_running(2))
    assert sorted(members(job)) == ["n1", "n2"]


def test_a_gpu_that_was_reset_is_let_in_once_a_check_finds_it_fit(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    node = job.nodes["n1"]
    node.ill, node.gate = [ill(Remedy.RESET_GPU, job)], GateVerdict("fit", checked_unix_s=job.now)
    job.run_until(lambda: job.is_running(1))
    node.ill = []
    job.run(2)
    assert job.plan is not None
    assert len(job.plan.outside) == 1  # the check is of before
    node.gate = GateVerdict("unfit", ["GPU 0 needs a reset"], job.now, after=job.plan.incident)
    job.run(2)
    assert len(job.plan.outside) == 1
    incident = job.plan.outside[0].incident
    node.gate = GateVerdict("fit", checked_unix_s=job.now, after=incident)
    node.ill = [fault(Remedy.RESET_GPU, rank=0, gpu="GPU-0", since=job.now, acts=False)]
    job.run(2)
    assert len(job.plan.outside) == 1  # its engine still says so
    node.ill = []
    job.run(1)
    assert job.plan.outside == []


def test_a_later_check_does_without_the_word_that_it_was_meant_for_the_blame(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    job.nodes["n1"].ill = [ill(Remedy.RESET_GPU, job)]
    job.run_until(lambda: job.is_running(1))
    job.nodes["n1"].ill = []
    job.nodes["n1"].gate = GateVerdict("fit", checked_unix_s=job.now + 61)
    job.run(1)
    assert job.plan is not None
    assert job.plan.outside == []


def test_where_its_own_check_finds_a_node_unfit_nothing_is_tried_in_place(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=1)
    node = job.nodes["n0"]
    node.ill = [ill(Remedy.RESET_GPU, job)]
    node.gate = GateVerdict("unfit", ["GPU 0 needs a reset"], job.now)
    job.run_until(lambda: node.exit_code is not None)
    assert job.plan is not None
    assert (job.plan.exit_code, job.plan.attempt) == (EXIT_REQUEUE, 0)


def test_a_gpu_that_needs_a_reset_is_tried_in_place_though_its_gate_knows_of_it(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, nodes=1)
    node = job.nodes["n0"]
    node.ill = [ill(Remedy.RESET_GPU, job)]
    node.gate = GateVerdict("unfit", ["gpu faults: Xid 95 (reset gpu)"], job.now, works=True)
    job.run_until(lambda: job.is_running(1))


def test_what_is_tried_in_place_goes_on_from_the_snapshots_in_memory(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=1, snapshots=True, registered=True, every_steps=0)
    node = job.nodes["n0"]
    job.run(5)
    reached = int(node.step)
    node.ill = [ill(Remedy.RESET_GPU, job, what="gpu0-recovery")]
    node.gate = GateVerdict("unfit", ["recovery: GPU 0 needs a reset"], job.now, works=True)
    job.run_until(lambda: job.is_running(1))
    assert job.plan is not None
    assert job.plan.resume[0].tier == "snapshot"
    assert node.resumed >= reached > 0


def test_no_sign_of_trouble_is_told_from_before_the_attempt(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    assert job.plan is not None
    began = job.plan.began_unix_s
    old = dataclasses.replace(ill(Remedy.RESET_GPU, job), since_unix_s=job.now - 200)
    job.nodes["n1"].ill = [old, ill(Remedy.RESET_GPU, job, what="gpu0-recovery")]
    job.run_until(lambda: job.is_running(1))
    (incident,) = job.incidents()
    assert incident.evidence[0].startswith("gpu0-recovery")
    assert incident.since_unix_s >= began > 0


def test_a_spare_that_only_works_takes_the_place_of_a_node_that_is_ill(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    job.nodes["n2"].gate = GateVerdict("unfit", ["pcie: GPU 0 is slow"], job.now, works=True)
    job.nodes["n1"].ill = [ill(Remedy.REBOOT_NODE, job)]
    job.run_until(lambda: job.is_running(1))
    assert members(job) == ["n0", "n2"]
    assert job.plan is not None
    assert [one.node for one in job.plan.outside] == ["n1"]


def test_a_quarantine_is_lifted_for_want_of_nodes_though_the_node_only_works(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    job.nodes["n1"].ill = [ill(Remedy.REPLACE, job)]
    job.run_until(lambda: job.is_running(1))
    assert members(job) == ["n0", "n2"]
    job.run(0.5)
    job.nodes["n1"].ill = []
    job.nodes["n1"].gate = GateVerdict("unfit", ["pcie: GPU 0 is slow"], job.now, works=True)
    job.nodes["n2"].dead = True
    job.run_until(lambda: job.is_running(2))
    assert members(job) == ["n0", "n1"]


def test_where_no_other_node_is_there_a_lost_link_is_gone_on_with(tmp_path: Path) -> None:
    """It may be any of the node's: the one to its leader, at least, is up."""
    job = started(tmp_path, nodes=2)
    node = job.nodes["n1"]
    lost = ill(Remedy.REPLACE, job, kind=Kind.LINK_DOWN, gpu="", acts=False, what="eth3")
    node.ill = [dataclasses.replace(lost, ranks=[])]
    node.gate = GateVerdict("unfit", ["links: eth3 has no link"], job.now, works=True)
    node.crash(0, -9, job.now)
    job.run_until(lambda: job.is_running(1))
    (incident,) = job.incidents()
    assert (incident.cause, incident.remedy) == ("link", "replace")
    assert "too few nodes would be left" in incident.evidence[-1]


def failing_memory(job: SimulatedJob) -> Finding:
    kind = Kind.HOST_MEMORY_ERRORS
    found = ill(Remedy.REPLACE, job, kind=kind, gpu="", acts=False, what="uncorrected-1")
    return dataclasses.replace(found, ranks=[])


def test_a_rank_that_dies_of_its_hosts_memory_is_replaced_with_its_node(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    node = job.nodes["n1"]
    node.ill = [failing_memory(job)]
    job.run(2)
    assert job.is_running(0), "nobody has read what is lost"
    node.crash(0, -7, job.now)
    job.run_until(lambda: job.is_running(1))
    (incident,) = job.incidents()
    assert (incident.cause, incident.culprit_node, incident.remedy) == ("host", "n1", "replace")
    assert members(job) == ["n0", "n2"]


def test_a_node_that_can_t_be_spared_goes_on_with_the_memory_that_it_has_left(
    tmp_path: Path,
) -> None:
    """The kernel uses the page no more."""
    job = started(tmp_path, nodes=1)
    job.nodes["n0"].ill = [failing_memory(job)]
    job.nodes["n0"].crash(0, -7, job.now)
    job.run_until(lambda: job.is_running(1))
    (incident,) = job.incidents()
    assert (incident.cause, incident.decided) == ("host", "restart")


def test_memory_that_failed_long_before_explains_no_death(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=1)
    old = failing_memory(job)
    job.nodes["n0"].ill = [old, dataclasses.replace(old, remedy=Remedy.NONE, what="uncorrected")]
    job.run(61)
    job.nodes["n0"].crash(0, -7, job.now)
    job.run_until(lambda: job.is_running(1))
    assert [incident.cause for incident in job.incidents()] == ["crash"]


def test_people_are_told_the_number_of_a_gpu_where_it_is_known(tmp_path: Path) -> None:
    known = fault(gpu_index=3)
    named = name_fault(unanswered(cluster(known), PLAN), PLAN)
    assert named is not None
    assert named.evidence[0] == "xid 79, GPU 3, rank 1: its node needs a reboot"
    assert named.gpu == "GPU-a1"
    job = started(tmp_path, nodes=2, spares=1)
    job.nodes["n1"].ill = [ill(Remedy.RESET_GPU, job, gpu_index=3)]
    job.run_until(lambda: job.is_running(1))
    assert job.plan is not None
    (one,) = job.plan.outside
    assert (one.evidence[0], one.gpu) == ("GPU 3 of node n1 needs a reset", "GPU-0")


def test_a_link_that_leads_nowhere_in_this_job_explains_nothing() -> None:
    lost = fault(Remedy.REPLACE, kind=Kind.LINK_DOWN, ranks=[], gpu="", acts=False, what="wlan0")
    alone = dataclasses.replace(PLAN, members=PLAN.members[:1])
    assert explained(crash(), cluster(lost), PLAN).cause == "link"
    assert explained(crash(), cluster(lost), alone).cause == "crash"


def test_what_a_person_drained_stays_drained_whatever_falls_ill_there() -> None:
    drained = Quarantine("m", "a", 0.0, 9.0, by="ann", is_drained=True)
    blamed = Quarantine("m", "a", 1.0, 9.0, gpu="GPU-1", remedy="reset_gpu")
    assert add([drained], blamed) == [drained]
    assert add([blamed], drained) == [drained]


def test_what_has_to_be_replaced_no_reboot_mends(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    job.nodes["n1"].ill = [ill(Remedy.REPLACE, job)]
    job.run_until(lambda: job.is_running(1))
    job.nodes["n1"].reboot()
    job.run(1)
    assert job.plan is not None
    assert [one.remedy for one in job.plan.outside] == ["replace"]


def test_a_gpu_that_may_work_until_its_reset_is_tried_once_in_place_and_then_the_job_stops(
    tmp_path: Path,
) -> None:
    """One node of two GPUs, and no other: what else could be done?"""
    job = started(tmp_path, nodes=1)
    job.nodes["n0"].ill = [ill(Remedy.RESET_GPU, job)]
    job.run_until(lambda: job.is_running(1))
    (first,) = job.incidents()
    assert first.evidence[-1] == (
        "would have kept node n0 outside (GPU GPU-0 of node n0 needs a reset), but too few nodes"
        " would be left"
    )
    job.run(10)
    assert job.is_running(1)  # still ill, and known to be
    job.nodes["n0"].crash(0, -6, job.now)
    job.run_until(lambda: all(n.exit_code is not None for n in job.nodes.values()))
    assert job.plan is not None
    assert job.plan.exit_code == EXIT_REQUEUE
    assert job.plan.message == (
        "GPU GPU-0 of node n0 needs a reset, and too few nodes would be left"
    )
    assert [one.remedy for one in job.plan.outside] == ["reset_gpu"]
    assert job.plan.attempt == 1


@pytest.mark.parametrize(
    "findings",
    [[Remedy.REBOOT_NODE], [Remedy.REPLACE], [Remedy.RESET_GPU, Kind.GPU_LOST]],
    ids=["reboot", "replace", "lost"],
)
def test_on_a_gpu_that_is_gone_nothing_is_tried(tmp_path: Path, findings: list[object]) -> None:
    job = started(tmp_path, nodes=1)
    for one in findings:
        remedy = one if isinstance(one, Remedy) else Remedy.RESET_GPU
        kind = Kind.GPU_LOST if one is Kind.GPU_LOST else Kind.GPU_FAULT
        job.nodes["n0"].ill.append(ill(remedy, job, kind=kind, what=str(one)))
    job.run_until(lambda: all(n.exit_code is not None for n in job.nodes.values()))
    assert job.plan is not None
    assert (job.plan.exit_code, job.plan.attempt) == (EXIT_REQUEUE, 0)
    assert job.incidents()[-1].stopped_for == job.plan.message


def test_two_gpus_on_two_nodes_at_once_cost_one_restart(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=3, spares=2)
    job.nodes["n1"].ill = [ill(Remedy.REBOOT_NODE, job)]
    job.nodes["n2"].ill = [ill(Remedy.RESET_GPU, job)]
    job.run_until(lambda: job.is_running(1))
    assert members(job) == ["n0", "n3", "n4"]
    assert job.plan is not None
    assert {one.node: one.remedy for one in job.plan.outside} == {
        "n1": "reboot_node",
        "n2": "reset_gpu",
    }
    (incident,) = job.incidents()
    assert any("node n2 is kept outside from now on" in line for line in incident.evidence)


def test_more_than_a_share_of_the_nodes_is_not_put_outside_and_that_is_told(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=3, spares=3)
    for attempt, name in enumerate(("n0", "n1", "n2")):
        job.nodes[name].ill = [ill(Remedy.RESET_GPU, job, gpu=f"GPU-{name}")]
        job.run_until(lambda: job.is_running(attempt + 1))  # noqa: B023
        job.run(1)
    assert job.plan is not None
    assert [one.node for one in job.plan.outside] == ["n0", "n1"]
    assert "n2" in members(job)
    line = job.incidents()[-1].evidence[-1]
    assert line.endswith("but 2 of 6 nodes are outside already, and more share their trouble")


def test_beyond_that_share_the_gate_alone_keeps_a_node_out_and_the_job_goes_on(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, nodes=3, spares=3)
    for attempt, name in enumerate(("n0", "n1", "n2")):
        node = job.nodes[name]
        node.ill = [ill(Remedy.REBOOT_NODE, job, gpu=f"GPU-{name}")]
        node.gate = GateVerdict("unfit", ["GPU 0 is lost"], job.now)
        job.run_until(lambda: job.is_running(attempt + 1))  # noqa: B023
        job.run(1)
    assert members(job) == ["n3", "n4", "n5"]
    assert job.plan is not None
    assert [one.node for one in job.plan.outside] == ["n0", "n1"]


def test_the_share_grows_with_the_job() -> None:
    agents = [AgentReport(f"n{n}", "i", "joining", 0, 1, 1, "", 1, 90) for n in range(50)]
    outside = [Quarantine(f"m{n}", f"n{n}", 0.0, 9.0) for n in range(5)]
    new = Quarantine("m9", "n9", 0.0, 9.0)
    assert is_too_much(outside[:4], new, agents, 0.1) == ""
    assert is_too_much(outside, new, agents, 0.1) != ""
    assert is_too_much(outside, new, agents, 0.2) == ""
    # Who a person keeps outside uses up nothing, and who is there anyway is not new.
    asked = [dataclasses.replace(one, by="ann") for one in outside]
    assert is_too_much(asked, new, agents, 0.1) == ""
    assert is_too_much(outside, outside[0], agents, 0.1) == ""


def test_an_xid_that_comes_after_the_death_is_blamed_before_the_restart_is_opened(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    job.nodes["n0"].obeys_every = 10**6  # its ranks take a while to end
    job.nodes["n1"].crash(0, -11, job.now)
    job.run(0.5)
    (incident,) = job.incidents()
    assert incident.cause == "crash"
    job.nodes["n1"].ill = [ill(Remedy.RESET_GPU, job)]
    job.run(0.3)
    job.nodes["n1"].ill = []  # its sidecar was started anew, and has forgotten
    job.run(0.3)
    assert job.nodes["n0"].state != "joining"
    job.nodes["n0"].obeys_every = 1
    job.run_until(lambda: job.is_running(1))
    assert members(job) == ["n0", "n2"]
    (incident,) = job.incidents()
    assert (incident.cause, incident.gpu, incident.escalation) == ("gpu", "GPU-0", WITHOUT_NODE)
    assert incident.seen_as == "crash"
    assert "rank 2: ended by SIGSEGV" in incident.evidence


def test_an_xid_that_comes_after_the_restart_takes_the_blame_off_the_script(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    job.nodes["n1"].crash(0, -11, job.now)
    job.run_until(lambda: job.plan is not None and job.plan.attempt == 1)
    job.nodes["n1"].ill = [ill(Remedy.RESET_GPU, job)]
    job.run_until(lambda: job.is_running(2))
    assert members(job) == ["n0", "n2"]
    first, second = job.incidents()
    assert (first.cause, first.gpu, first.signature) == ("gpu", "GPU-0", "")
    assert (second.cause, second.escalation) == ("gpu", WITHOUT_NODE)


def test_an_application_s_xid_that_comes_late_takes_the_blame_off_the_machine(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, nodes=2)
    job.nodes["n1"].crash(0, -6, job.now)
    job.run_until(lambda: job.plan is not None and job.plan.attempt == 1)
    job.nodes["n1"].ill = [ill(Remedy.RESTART_APP, job, what="xid 31")]
    job.run_until(lambda: job.is_running(1))
    job.run(2)
    (incident,) = job.incidents()
    assert (incident.cause, incident.is_of_script, incident.seen_as) == ("crash", True, "")
    assert bool(incident.recovered_unix_s)


def test_a_remedy_of_a_newer_version_is_the_gravest_and_breaks_nothing(tmp_path: Path) -> None:
    assert parse_remedy("melt_down") is Remedy.REPLACE
    assert parse_remedy("") is Remedy.NONE
    newer = crash(cause="gpu", gpu="GPU-a1", remedy="melt_down", fault_unix_s=NOW)
    assert explained(newer, cluster(fault()), PLAN).remedy == "replace"
    known = dataclasses.replace(newer, decided="restart")
    assert unanswered(cluster(fault(), incidents=(known,)), PLAN) == []


def test_a_leader_that_comes_in_between_decides_the_same(tmp_path: Path) -> None:
    """It was n1's sidecar that led, and n1 whose GPU is ill; its finding dies with it."""
    job = started(tmp_path, nodes=2, spares=1)
    leader = next(n for n in job.nodes.values() if n.coordinator.orders().is_leader)
    other = next(n for n in job.nodes.values() if n.name in members(job) and n is not leader)
    other.ill = [ill(Remedy.REBOOT_NODE, job)]
    job.run_until(lambda: job.plan is not None and job.plan.state in ("evidence", "ended"))
    other.ill = []
    leader.coordinator._store.resign(f"{leader.name}/{leader.incarnation}")
    job.run_until(lambda: job.is_running(1))
    assert other.name not in members(job)
    (incident,) = job.incidents()
    assert (incident.cause, incident.culprit_node) == ("gpu", other.name)


@pytest.mark.parametrize("mode", ["suggest", "observe"])
def test_where_it_may_not_be_acted_on_it_is_recorded_and_closed_when_it_is_over(
    tmp_path: Path, mode: str
) -> None:
    job = started(tmp_path, nodes=2, spares=1, modes=ModeSettings(gpu=mode))
    job.nodes["n1"].ill = [ill(Remedy.RESET_GPU, job)]
    job.run(2)
    assert job.is_running(0)
    (incident,) = job.incidents()
    assert (incident.cause, incident.decided, incident.gpu) == ("gpu", mode, "GPU-0")
    assert incident.evidence[-1] == f"would have restarted the job, but the mode is {mode}"
    job.nodes["n1"].ill = []
    job.run(1)
    assert job.incidents()[0].recovered_unix_s


def test_where_it_is_left_to_people_they_read_the_command_that_does_without_the_node(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, nodes=2, spares=1, modes=ModeSettings(gpu="suggest"))
    before = MemoryStore(job.server).read()
    job.nodes["n1"].ill = [ill(Remedy.RESET_GPU, job)]
    job.run(2)
    assert judge("job", before, MemoryStore(job.server).read()).suggestion == (
        "`holdfast restart --no-save --without n1`, for the ill GPU of rank 2 on node n1"
    )


@pytest.mark.parametrize(
    ("remedy", "kind", "what_is_saved"),
    [
        (Remedy.RESET_GPU, Kind.GPU_FAULT, ""),
        (Remedy.REBOOT_NODE, Kind.GPU_FAULT, " --no-save"),  # as off the bus
        (Remedy.RESET_GPU, Kind.GPU_LOST, " --no-save"),
    ],
)
def test_the_command_saves_first_where_the_gpu_can_still_be_read(
    tmp_path: Path, remedy: Remedy, kind: Kind, what_is_saved: str
) -> None:
    modes = ModeSettings(gpu="suggest")
    job = started(tmp_path, nodes=2, spares=1, modes=modes, registered=True)
    before = MemoryStore(job.server).read()
    job.nodes["n1"].ill = [ill(remedy, job, kind=kind)]
    job.run(2)
    assert judge("job", before, MemoryStore(job.server).read()).suggestion == (
        f"`holdfast restart{what_is_saved} --without n1`, for the ill GPU of rank 2 on node n1"
    )


def test_a_restart_without_the_node_is_not_suggested_where_no_other_is_there(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, nodes=1, modes=ModeSettings(gpu="suggest"))
    before = MemoryStore(job.server).read()
    job.nodes["n0"].ill = [ill(Remedy.RESET_GPU, job)]
    job.run(2)
    assert judge("job", before, MemoryStore(job.server).read()).suggestion == (
        "`holdfast restart --no-save`, for the ill GPU of rank 0 on node n0"
    )


def test_a_rank_that_dies_of_what_was_not_acted_on_is_blamed_on_it(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=2, spares=1, modes=ModeSettings(gpu="observe"))
    job.nodes["n1"].ill = [ill(Remedy.RESET_GPU, job)]
    job.run(2)
    job.nodes["n1"].crash(0, -6, job.now)
    job.run_until(lambda: job.is_running(1))
    assert members(job) == ["n0", "n2"]
    assert {incident.cause for incident in job.incidents()} == {"gpu"}


def test_a_pause_holds_for_hardware_too(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    job.ask("p", "pause", for_s=60.0)
    job.run(1)
    job.nodes["n1"].ill = [ill(Remedy.RESET_GPU, job)]
    job.run(5)
    assert job.is_running(0)
    assert [incident.decided for incident in job.incidents()] == ["paused"]
    job.ask("r", "resume")
    job.run_until(lambda: job.is_running(1))
    assert members(job) == ["n0", "n2"]


def test_hardware_that_fails_again_and_again_after_every_reset_is_a_lemon(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=2, spares=1, policy=PolicySettings(backoff_s=0.1))
    for attempt in range(3):
        job.nodes["n1"].ill = [ill(Remedy.RESET_GPU, job, gpu=f"GPU-{attempt}")]
        job.run_until(lambda: not job.is_running(attempt * 2))  # noqa: B023
        job.run_until(lambda: job.is_running(attempt * 2 + 1))  # noqa: B023
        if attempt == 2:
            break
        job.nodes["n1"].reboot()
        job.run(1)
        # The place is n1's again when its deputy is gone for a moment.
        job.ask(f"q{attempt}", "restart", node="n2")
        job.run_until(lambda: job.is_running(attempt * 2 + 2))  # noqa: B023
        job.ask(f"l{attempt}", "resume", node="n2")
        job.run(1)
    assert job.plan is not None
    (one,) = [one for one in job.plan.outside if one.node == "n1"]
    assert one.remedy == "replace"
    last = job.incidents()[-1]
    assert any("3 failures within" in line for line in last.evidence)
