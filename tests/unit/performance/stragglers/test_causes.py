from __future__ import annotations

from typing import Any

import pytest
from tests.unit.performance.stragglers.told import line

from holdfast_sidecar.performance.stragglers.causes import Named, name_cause
from holdfast_sidecar.performance.stragglers.frame import Excess
from holdfast_sidecar.performance.stragglers.placement import RankPlace
from holdfast_sidecar.performance.stragglers.signals import (
    SlowCase,
    SlownessEvidence,
    hear,
    read,
    strongest,
)
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.steps import SlowCause

HEALTHY = {"clock_permille": 990, "transfer": 10_000, "optimizer": 40_000}
EXCESS_US = 240_000


def named(
    part: str = "forward",
    peers: dict[str, int] | None = None,
    witness: SlownessEvidence = SlownessEvidence(),  # noqa: B008
    by_work: float = 0.0,
    more: int = EXCESS_US,
    is_by_work_alone: bool = False,
    **signals: int,
) -> Named:
    """The cause of a rank that takes so much longer in a part, with these signals of its own."""
    theirs = line(1, 10, **(HEALTHY | (peers or {})))
    mine = theirs._replace(rank=0, **{part: getattr(theirs, part) + more})._replace(**signals)
    peers_us = theirs.own_us * (1 + by_work)
    excess = Excess(
        rank=0,
        role="",
        slowdown=mine.own_us / peers_us - 1,
        confidence=0.99,
        since_step=1,
        steps=10,
        own_us=mine.own_us,
        peers_us=peers_us,
        parts_us={part: float(more)},
        by_work=by_work,
        work=1 + by_work,
        is_by_work_alone=is_by_work_alone,
    )
    return name_cause(SlowCase(excess, read(mine), read(theirs), witness))


@pytest.mark.parametrize(
    ("cause", "part", "signals"),
    [
        (SlowCause.COLLECTOR, "forward", {"collector": 230_000}),
        (SlowCause.CPU_QUOTA, "forward", {"throttled_permille": 220}),
        (SlowCause.CPU_CONTENTION, "backward", {"queued_permille": 220}),
        (SlowCause.MEMORY_PRESSURE, "forward", {"faults_per_s": 900}),
        (SlowCause.GPU_CLOCK, "backward", {"clock_permille": 760}),
        (SlowCause.STORAGE, "data", {"storage_permille": 300}),
        (SlowCause.DATA_LOADING, "data", {}),
        (SlowCause.GPU_LINK, "transfer", {}),
        (SlowCause.COMPUTE, "optimizer", {}),
        (SlowCause.UNKNOWN, "other", {}),
    ],
)
def test_the_signal_that_explains_the_time_is_the_cause(
    cause: SlowCause, part: str, signals: dict[str, Any]
) -> None:
    verdict = named(part, **signals)
    assert verdict.cause is cause
    assert verdict.part == part
    assert verdict.advice


def test_evidence_has_the_numbers_of_both() -> None:
    verdict = named("forward", throttled_permille=220)
    assert "forward takes 520.0 ms of a step, its peers' 280.0 ms" in verdict.evidence
    assert any("22%" in text and "peers 0%" in text for text in verdict.evidence)


def test_a_signal_as_strong_at_healthy_peers_explains_nothing() -> None:
    loud = {"throttled_permille": 220, "queued_permille": 100}
    verdict = named("forward", peers=loud)
    assert verdict.cause is SlowCause.COMPUTE


def test_a_signal_that_explains_little_of_it_is_not_the_cause() -> None:
    assert named("forward", throttled_permille=60).cause is SlowCause.COMPUTE
    assert named("data", queued_permille=60).cause is SlowCause.DATA_LOADING


def test_of_two_signals_the_one_that_explains_more_counts() -> None:
    verdict = named("forward", throttled_permille=80, collector=180_000)
    assert verdict.cause is SlowCause.COLLECTOR


def test_a_quota_that_counts_as_waiting_for_a_core_too_is_still_the_quota() -> None:
    verdict = named("forward", throttled_permille=220, queued_permille=225)
    assert verdict.cause is SlowCause.CPU_QUOTA


def test_a_collector_that_waits_for_a_core_is_still_the_collector() -> None:
    verdict = named("forward", collector=200_000, queued_permille=230)
    assert verdict.cause is SlowCause.COLLECTOR


def test_a_core_that_is_waited_for_beside_a_small_quota_is_contention() -> None:
    verdict = named("forward", queued_permille=200, throttled_permille=60)
    assert verdict.cause is SlowCause.CPU_CONTENTION


def test_a_signal_that_explains_more_than_is_left_open_is_the_cause() -> None:
    # 45 % and 15 % of it: what is left is less than the first.
    verdict = named("forward", collector=108_000, queued_permille=36)
    assert verdict.cause is SlowCause.COLLECTOR
    assert named("forward", collector=60_000).cause is SlowCause.COMPUTE


def test_pages_of_a_mapped_data_set_are_storage_and_no_want_of_memory() -> None:
    assert named("data", faults_per_s=900).cause is SlowCause.STORAGE
    short = SlownessEvidence(memory="memory.high is reached")
    assert named("data", witness=short, faults_per_s=900).cause is SlowCause.MEMORY_PRESSURE


def test_more_work_is_the_cause_where_it_explains_the_time() -> None:
    assert named("forward", by_work=0.28).cause is SlowCause.UNEVEN_WORK
    assert named("forward", by_work=0.05).cause is SlowCause.COMPUTE


def test_who_was_only_given_more_is_no_slow_rank_however_long_one_of_its_steps_was() -> None:
    verdict = named("forward", by_work=0.05, is_by_work_alone=True)
    assert verdict.cause is SlowCause.UNEVEN_WORK
    assert named("forward", is_by_work_alone=True).cause is SlowCause.UNKNOWN


def gpu(kind: Kind, what: str, rank: int = 0, node: str = "a") -> Finding:
    return Finding(kind, node, 0.0, 0.9, [rank], ["GPU 0: so"], what=what, gpu="GPU-x")


@pytest.mark.parametrize(
    ("cause", "finding", "part", "signals"),
    [
        (
            SlowCause.GPU_CLOCK,
            gpu(Kind.GPU_THROTTLED, "gpu0-hot"),
            "forward",
            {"clock_permille": 700},
        ),
        (
            SlowCause.GPU_POWER,
            gpu(Kind.GPU_THROTTLED, "gpu0-power"),
            "forward",
            {"clock_permille": 700},
        ),
        (
            SlowCause.GPU_CLOCK,
            gpu(Kind.GPU_THROTTLED, "gpu0-warm"),
            "forward",
            {"clock_permille": 0},
        ),
        (SlowCause.GPU_SHARED, gpu(Kind.GPU_SHARED, "gpu0-pid7"), "backward", {}),
        (SlowCause.GPU_LINK, gpu(Kind.GPU_LINK_DEGRADED, "gpu0-pcie-width"), "transfer", {}),
        (SlowCause.COMPUTE, gpu(Kind.GPU_LINK_DEGRADED, "gpu0-pcie-width"), "forward", {}),
        (SlowCause.COMPUTE, gpu(Kind.GPU_SHARED, "gpu0-pid7", rank=5), "forward", {}),
        (SlowCause.COMPUTE, gpu(Kind.GPU_SHARED, "gpu0-pid7", node="b"), "forward", {}),
    ],
)
def test_what_was_found_about_its_gpu_counts_where_it_acts(
    cause: SlowCause, finding: Finding, part: str, signals: dict[str, Any]
) -> None:
    witness = hear([finding], RankPlace(0, "a"))
    assert named(part, witness=witness, **signals).cause is cause


def test_a_node_beside_whose_ranks_others_are_well_is_not_to_blame() -> None:
    stalled = Finding(Kind.STORAGE_STALLED, "a", 0.0, 0.9, evidence=["data: no answer"])
    alone = hear([stalled], RankPlace(0, "a"), is_shared_by_mates=False)
    together = hear([stalled], RankPlace(0, "a"), is_shared_by_mates=True)
    assert named("data", witness=alone).cause is SlowCause.DATA_LOADING
    assert named("data", witness=together).cause is SlowCause.STORAGE


def test_without_peers_only_what_is_bad_by_itself_counts() -> None:
    mine = line(0, 10, forward=520_000, throttled_permille=400, clock_permille=990)
    excess: Any = Excess(0, "", 0.3, 0.9, 1, 10, 1_040_000, 800_000, {"forward": 240_000.0})
    assert name_cause(SlowCase(excess, read(mine))).cause is SlowCause.CPU_QUOTA


def test_the_louder_of_peers_and_mates_is_what_counts() -> None:
    peers = read(line(1, 10, storage_permille=20, clock_permille=990))
    mates = read(line(2, 10, storage_permille=400, clock_permille=700, forward=999_999))
    both = strongest(peers, mates)
    assert both is not None
    assert both.storage == 0.4
    assert both.clock == 0.7
    assert both.forward == peers.forward


ON_DEVICE = SlownessEvidence(has_device=True)
ON_HOST = SlownessEvidence(is_host_only=True)


@pytest.mark.parametrize(
    ("own", "theirs"),
    [
        (30, 30),
        (1, 30),
        (640, 880),
    ],
    ids=["all of them sleep", "next to nothing", "peers compute"],
)
def test_who_used_no_cpu_meanwhile_slept_and_did_not_compute(own: int, theirs: int) -> None:
    verdict = named("forward", {"cpu_permille": theirs}, ON_HOST, cpu_permille=own)
    assert verdict.cause is SlowCause.COMPUTE
    assert verdict.is_asleep
    assert verdict.is_host_only
    assert not verdict.is_measured
    told = " ".join(verdict.evidence)
    assert f"its process used {own / 1000:.0%} of a CPU meanwhile: it slept or waited" in told
    assert "py-spy" in verdict.advice
    assert "dcgmi" not in verdict.advice


@pytest.mark.parametrize(
    ("own", "theirs", "witness"),
    [
        (0, 0, ON_HOST),
        (990, 840, ON_HOST),
        (260, 30, ON_HOST),
        (3200, 3000, ON_HOST),
        (30, 30, ON_DEVICE),
        (30, 30, SlownessEvidence()),
    ],
    ids=[
        "not known",
        "computes",
        "computes beside sleepers",
        "with many threads",
        "on a GPU",
        "on something else",
    ],
)
def test_who_may_have_computed_is_not_said_to_sleep(
    own: int, theirs: int, witness: SlownessEvidence
) -> None:
    verdict = named("forward", {"cpu_permille": theirs}, witness, cpu_permille=own)
    assert verdict.cause is SlowCause.COMPUTE
    assert not verdict.is_asleep
    assert not any("slept" in line for line in verdict.evidence)


def test_advice_names_a_gpus_tools_only_where_there_is_one() -> None:
    assert "dcgmi" not in named("forward").advice
    assert "device" not in " ".join(named("forward").evidence)
    assert "dcgmi" in named("forward", witness=ON_DEVICE).advice


def test_between_the_parts_sleeping_is_told_as_well() -> None:
    verdict = named("other", witness=ON_HOST, cpu_permille=30)
    assert (verdict.cause, verdict.is_asleep) == (SlowCause.UNKNOWN, True)
    assert any("slept or waited" in line for line in verdict.evidence)
