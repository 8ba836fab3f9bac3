"""Ill hardware: what ends an attempt, and whose death it explains."""

from __future__ import annotations

import dataclasses

import pytest
from tests.unit.policy.ill_hardware import LINE, NOW, PLAN, cluster, crash, fault

from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.policy.hardware import (
    BESIDES,
    began_unix_s,
    explained,
    find_faults,
    name_fault,
    unanswered,
)
from holdfast_sidecar.policy.outcome import DecisionContext
from holdfast_sidecar.policy.reconcile import decide
from holdfast_sidecar.records.findings import Finding, Kind, Remedy
from holdfast_sidecar.records.plan import Incident


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
    assert decide(cluster(finding), DecisionContext(1, NOW, NOW, Settings())).writes == ()


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


def test_what_else_failed_at_the_time_is_told_oldest_first() -> None:
    """The driver still has its say about what came first, when what came next is sure."""
    lost = fault()
    first = fault(Remedy.RESET_GPU, rank=0, since=NOW - 1.6, what="xid 48", acts=False)
    link = fault(Remedy.REPLACE, node="b", kind=Kind.LINK_DOWN, gpu="", ranks=[], what="mlx5_0")
    old = fault(Remedy.RESET_GPU, rank=0, since=NOW - 600, what="xid 95", acts=False)
    apps = fault(Remedy.RESTART_APP, rank=0, what="xid 31", to_blame="application")
    seen = cluster(lost, first, link, old, apps)
    named = name_fault(unanswered(cluster(lost), PLAN), PLAN)
    assert named is not None
    told = explained(named, seen, PLAN)
    assert [line for line in told.evidence if line.startswith(BESIDES)] == [
        f"{BESIDES}xid 48, GPU GPU-a0, rank 0: it needs a reset",
        f"{BESIDES}link down (mlx5_0), node b, ranks 2-3: it needs to be replaced",
    ]
    assert explained(told, seen, PLAN) == told
    worse = cluster(lost, dataclasses.replace(first, remedy=Remedy.REBOOT_NODE), link)
    assert sum("xid 48" in line for line in explained(told, worse, PLAN).evidence) == 1
    assert explained(crash(), seen, PLAN).evidence[-2:] == told.evidence[-2:]


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
    mmu_fault = fault(Remedy.RESTART_APP, what="xid 31", since=NOW + 1, to_blame="application")
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


def test_a_link_that_leads_nowhere_in_this_job_explains_nothing() -> None:
    lost = fault(Remedy.REPLACE, kind=Kind.LINK_DOWN, ranks=[], gpu="", acts=False, what="wlan0")
    alone = dataclasses.replace(PLAN, members=PLAN.members[:1])
    assert explained(crash(), cluster(lost), PLAN).cause == "link"
    assert explained(crash(), cluster(lost), alone).cause == "crash"
