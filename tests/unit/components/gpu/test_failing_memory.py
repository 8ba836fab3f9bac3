"""Memory that fails or is about to, and what is no such thing."""

from __future__ import annotations

import pytest
from tests.unit.components.gpu.nodes import company, found, gpu, seat, troubles, watched

from holdfast_sidecar.components.gpu.ownership import RankDevice
from holdfast_sidecar.records.findings import Kind, Remedy


@pytest.mark.parametrize(
    ("said", "trouble", "remedy"),
    [
        ({"REMAP_PENDING": 1}, "remap-pending", Remedy.RESET_GPU),
        ({"REMAP_FAILURE": 1}, "remap-failure", Remedy.REPLACE),
        ({"REMAPPED_UNCORRECTABLE": 512}, "remaps", Remedy.REPLACE),
        ({"BANKS_NONE_LEFT": 1}, "no-spare-rows", Remedy.NONE),
        ({"BANKS_FEW_LEFT": 2}, "few-spare-rows", Remedy.NONE),
        ({"SRAM_THRESHOLD_EXCEEDED": 1}, "sram", Remedy.REPLACE),
        ({"RETIRED_CORRECTABLE": 60, "RETIRED_UNCORRECTABLE": 3}, "pages", Remedy.REPLACE),
        ({"RETIRED_UNCORRECTABLE": 16}, "pages", Remedy.NONE),
        ({"RETIREMENT_PENDING": 1}, "page-pending", Remedy.RESET_GPU),
    ],
)
def test_memory_that_fails_is_told_at_the_first_reading(
    said: dict[str, float], trouble: str, remedy: Remedy
) -> None:
    (finding,) = found(watched(lambda _: [gpu(2, None, **said)], 0))
    assert (finding.kind, finding.what) == (Kind.GPU_MEMORY_FAILING, f"gpu2-{trouble}")
    assert finding.remedy is remedy
    assert not finding.acts


@pytest.mark.parametrize(
    "said",
    [
        {"REMAPPED_UNCORRECTABLE": 511},
        {"REMAPPED_CORRECTABLE": 5000},
        {"BANKS_SOME_LEFT": 9},
        {"RETIRED_CORRECTABLE": 62, "RETIRED_UNCORRECTABLE": 0},
        {"RETIRED_UNCORRECTABLE": 15},
    ],
)
def test_memory_within_its_limits_is_well(said: dict[str, float]) -> None:
    assert troubles(watched(lambda _: [gpu(2, None, **said)], 0)) == []


def test_a_finding_tells_how_sure_it_is_whose_the_gpu_is() -> None:
    by_torch = seat(0, None, RankDevice(uuid=gpu(0).uuid))
    for seated, sure in ((seat(0), 0.6), (by_torch, 1.0)):
        scene = watched(lambda _: [gpu(0, (), REMAP_PENDING=1)], 0, who=company(seated))
        assert [one.rank_confidence for one in found(scene)] == [sure]


def test_two_troubles_of_one_gpu_are_two_findings() -> None:
    said = [what for _, what in troubles(watched(lambda _: [gpu(0, REMAP_PENDING=1)], 0))]
    both = watched(lambda _: [gpu(0, REMAP_PENDING=1, BANKS_NONE_LEFT=1)], 0)
    assert said == ["gpu0-remap-pending"]
    assert [what for _, what in troubles(both)] == ["gpu0-remap-pending", "gpu0-no-spare-rows"]


def test_a_storm_of_corrected_errors_is_told_within_half_a_minute() -> None:
    def at(t: float) -> list[object]:
        return [gpu(0, ECC_CORRECTED=3 + 4600 * max(0.0, t - 60))]

    told_at = next(t for t in range(60, 120) if found(watched(at, t)))  # type: ignore[arg-type]
    assert 60 < told_at <= 90
    (finding,) = found(watched(at, 120))  # type: ignore[arg-type]
    assert (finding.kind, finding.what) == (Kind.ECC_STORM, "gpu0")
    assert finding.named_gpu == "GPU 0"
    assert finding.evidence[0] == (
        "GPU 0 (0000:10:00.0): 4,600 corrected memory errors a second for 30 s"
    )


@pytest.mark.parametrize("rhythm_s", [1.0, 2.0, 5.0, 10.0])
def test_a_storm_is_told_whatever_the_rhythm_of_the_readings(rhythm_s: float) -> None:
    scene = watched(lambda t: [gpu(0, ECC_CORRECTED=1000 * t)], 60, rhythm_s)
    assert troubles(scene) == [("ecc_storm", "gpu0")]


def test_a_storm_as_bad_as_the_one_that_hung_a_driver_is_surer_to_end_badly() -> None:
    (bad,) = found(watched(lambda t: [gpu(0, ECC_CORRECTED=200 * t)], 60))
    (worse,) = found(watched(lambda t: [gpu(0, ECC_CORRECTED=4600 * t)], 60))
    assert bad.confidence < worse.confidence


def test_a_handful_of_corrected_errors_is_no_storm() -> None:
    assert troubles(watched(lambda t: [gpu(0, ECC_CORRECTED=t // 5)], 120)) == []
    assert troubles(watched(lambda t: [gpu(0, ECC_CORRECTED=90 * t)], 120)) == []


def test_a_storm_must_last() -> None:
    assert troubles(watched(lambda t: [gpu(0, ECC_CORRECTED=4600 * t)], 20)) == []


@pytest.mark.parametrize("burst_at_s", range(2, 58, 7))
def test_one_burst_however_large_is_no_storm(burst_at_s: int) -> None:
    def at(t: float) -> list[object]:
        return [gpu(0, ECC_CORRECTED=3 if t < burst_at_s else 1_000_000)]

    for until_s in range(burst_at_s, 100, 3):
        assert troubles(watched(at, until_s)) == []  # type: ignore[arg-type]


def test_a_counter_that_begins_anew_is_no_storm_and_hides_none() -> None:
    def reloaded(t: float) -> list[object]:
        return [gpu(0, ECC_CORRECTED=9e9 if t < 30 else 0)]

    def storms_on(t: float) -> list[object]:
        return [gpu(0, ECC_CORRECTED=9e9 + 500 * t if t < 30 else 500 * (t - 30))]

    assert troubles(watched(reloaded, 90)) == []  # type: ignore[arg-type]
    assert troubles(watched(storms_on, 90)) == [("ecc_storm", "gpu0")]  # type: ignore[arg-type]


def test_the_first_reading_after_a_start_is_no_storm_however_much_was_counted_before() -> None:
    assert troubles(watched(lambda _: [gpu(0, ECC_CORRECTED=10**12)], 60)) == []


def test_a_storm_that_is_over_is_over() -> None:
    scene = watched(lambda t: [gpu(0, ECC_CORRECTED=4600 * min(t, 40))], 80)
    assert troubles(scene) == []
