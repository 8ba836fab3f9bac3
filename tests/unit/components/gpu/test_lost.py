"""GPUs that are gone, and what the driver wants done."""

from __future__ import annotations

import pytest
from tests.unit.components.gpu.nodes import (
    company,
    found,
    gpu,
    lost,
    reading,
    seat,
    troubles,
    watched,
    without,
)

from holdfast_sidecar.components.gpu.history import GpuContext
from holdfast_sidecar.components.gpu.ownership import tie_up
from holdfast_sidecar.components.gpu.readings import Gpu, Signal
from holdfast_sidecar.records.findings import Kind, Remedy

EIGHT = [gpu(index) for index in range(8)]


def test_a_healthy_node_at_work_is_nothing_to_tell() -> None:
    assert troubles(watched(lambda _: EIGHT, 120, expected=8)) == []


def test_a_gpu_that_falls_off_the_bus_ends_its_rank_and_asks_for_a_reboot() -> None:
    def at(t: float) -> list[Gpu]:
        return EIGHT if t < 5 else [*EIGHT[:3], lost(EIGHT[3]), *EIGHT[4:]]

    scene = watched(at, 6)
    assert [one.acts for one in found(watched(at, 5))] == [False], "one answer is no proof"
    (finding,) = found(scene)
    assert finding.kind is Kind.GPU_LOST
    assert (finding.ranks, finding.gpu, finding.what) == ([3], EIGHT[3].uuid, "gpu3")
    assert finding.remedy is Remedy.REBOOT_NODE
    assert finding.acts
    assert finding.evidence == [
        "GPU 3 (0000:13:00.0): GPU is lost",
        "it is rank 3's (local 3), by driver",
    ]


def test_what_the_driver_asked_for_goes_before_what_is_usual() -> None:
    ill = gpu(3, RECOVERY_ACTION=1)
    scene = watched(lambda t: [ill] if t < 2 else [lost(ill)], 3)
    (finding,) = found(scene)
    assert finding.remedy is Remedy.RESET_GPU


@pytest.mark.parametrize("number", [0, 3, 5, 9])
def test_what_does_not_mend_a_gpu_does_not_stand_for_what_a_lost_one_needs(number: int) -> None:
    ill = gpu(3, RECOVERY_ACTION=number)
    scene = watched(lambda t: [ill] if t < 2 else [lost(ill)], 3)
    (finding,) = found(scene)
    assert finding.remedy is Remedy.REBOOT_NODE


def test_a_gpu_that_says_it_needs_a_reset_is_believed() -> None:
    (finding,) = found(GpuContext(reading(lost(gpu(0), "GPU requires restart"))))
    assert finding.remedy is Remedy.RESET_GPU


def test_a_lost_gpu_of_nobody_known_ends_nobody() -> None:
    scene = GpuContext(reading(lost(gpu(0))))
    (finding,) = found(scene)
    assert finding.ranks == []
    assert not finding.acts


def test_a_guess_whose_gpu_it_is_ends_nobody() -> None:
    guessed = company(*(seat(rank, {}) for rank in range(2)))
    two = [gpu(0, users=()), gpu(1, users=())]
    scene = watched(lambda t: two if t < 2 else [two[0], lost(two[1])], 3, who=guessed)
    (finding,) = [one for one in found(scene) if one.kind is Kind.GPU_LOST]
    assert finding.ranks == [1]
    assert not finding.acts


def test_a_gpu_whose_process_is_gone_is_told_with_the_rank_that_had_it() -> None:
    before = watched(lambda _: [gpu(0)], 1)
    ownership = tie_up(before.reading, company(), before.ownership)
    scene = GpuContext(reading(lost(gpu(0)), at_s=200), before.history, ownership)
    (finding,) = found(scene)
    assert (finding.ranks, finding.acts) == ([0], False)
    assert finding.evidence[1] == "it was rank 0's (local 0)"


def test_eight_gpus_that_become_seven_are_told_with_the_one_that_went() -> None:
    scene = watched(lambda t: EIGHT if t < 5 else EIGHT[:5] + EIGHT[6:], 6, expected=8)
    (finding,) = found(scene)
    assert (finding.kind, finding.what, finding.ranks) == (Kind.GPU_LOST, "gpu5", [5])
    assert not finding.acts


def test_no_more_gpus_are_lost_than_are_missing() -> None:
    scene = watched(lambda t: EIGHT if t < 5 else EIGHT[:6], 6, expected=7)
    assert [what for _, what in troubles(scene)] == ["gpu6"]


def test_a_gpu_that_never_showed_is_told_by_number() -> None:
    (finding,) = found(watched(lambda _: EIGHT[:7], 1, expected=8))
    assert (finding.what, finding.gpu) == ("missing", "")
    assert finding.evidence[0].startswith("8 GPUs are expected, 1 never showed: GPU 0")


def test_gpus_that_are_expected_no_more_are_not_missed() -> None:
    assert troubles(watched(lambda t: EIGHT if t < 5 else EIGHT[:4], 6, expected=None)) == []
    assert troubles(watched(lambda t: EIGHT if t < 5 else EIGHT[:4], 6, expected=4)) == []


@pytest.mark.parametrize(
    ("number", "remedy", "acts"),
    [
        (1, Remedy.RESET_GPU, True),
        (2, Remedy.REBOOT_NODE, True),
        (3, Remedy.RESTART_APP, False),
        (4, Remedy.RESET_GPU, False),
        (5, Remedy.NONE, False),
        (6, Remedy.RESET_GPU, True),
        (7, Remedy.REBOOT_NODE, True),
    ],
)
def test_the_drivers_recovery_action_is_a_fault_without_any_xid(
    number: int, remedy: Remedy, acts: bool
) -> None:
    (finding,) = found(watched(lambda _: [gpu(0, RECOVERY_ACTION=number)], 1))
    assert (finding.kind, finding.what) == (Kind.GPU_FAULT, "gpu0-recovery")
    assert (finding.remedy, finding.acts) == (remedy, acts)


@pytest.mark.parametrize("number", [0, 8, 255])
def test_a_recovery_action_that_is_none_or_not_known_is_not_guessed_at(number: int) -> None:
    assert troubles(watched(lambda _: [gpu(0, RECOVERY_ACTION=number)], 1)) == []


def test_every_signal_may_be_refused() -> None:
    for signal in Signal:
        bare = without(gpu(0), signal)
        assert troubles(watched(lambda _, bare=bare: [bare], 70, every_s=5)) == []  # type: ignore[misc]
