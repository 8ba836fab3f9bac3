"""What the page says of GPUs, fresh and stale, and how many series that is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.export.picture import GPU, node_report, picture

from holdfast_sidecar.components.gpu.metrics import SHOWN
from holdfast_sidecar.components.gpu.readings import GpuReading, NvmlSilence, Signal
from holdfast_sidecar.components.machine import MachineReading
from holdfast_sidecar.components.xid.checks import Known, XidCounts, XidReading
from holdfast_sidecar.components.xid.events import GpuEvents
from holdfast_sidecar.export.exposition import draw
from holdfast_sidecar.export.metrics import token_joules
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.findings import Remedy
from holdfast_sidecar.records.metric import Sample
from holdfast_sidecar.records.reports import NodeReport, ProbeHealth, RankReport

SERIES_MOST = 98
"""For one GPU that tells what no model tells all of (retired pages and remapped rows, links to its
own processor, each generation's NVLink errors): with eight of them, and some 600 series of all
else, a node stays below 1,500."""


def told(reading: GpuReading) -> list[Sample]:
    return draw(picture(machine=MachineReading(gpu=reading)), "job")


def of_gpus(samples: list[Sample]) -> dict[str, float]:
    return {one.name: one.value for one in samples if "gpu" in one.labels}


def test_every_number_that_a_gpu_may_tell_is_shown_once() -> None:
    assert [one.signal for one in SHOWN] == list(dict.fromkeys(one.signal for one in SHOWN))
    assert set(Signal) - {one.signal for one in SHOWN} == {Signal.THROTTLE_REASONS}
    series = {(one.name, *one.labels.items()) for one in SHOWN}
    assert len(series) == len(SHOWN)


def test_a_gpu_that_tells_everything_stays_within_its_share_of_the_page() -> None:
    samples = told(GpuReading(True, "580.1", (GPU,), 8, read_at_s=9.0))
    assert len([one for one in samples if "gpu" in one.labels]) <= SERIES_MOST


def test_stale_values_are_absent_and_when_they_were_read_is_told() -> None:
    stale = GpuReading(True, "580.1", (GPU,), 8, stale_since_s=9.5, read_at_s=4.0)
    samples = told(stale)
    assert set(of_gpus(samples)) == {"holdfast_gpu_info", "holdfast_gpu_rank_info"}
    names = {one.name: one.value for one in samples}
    assert names["holdfast_gpu_last_reading_timestamp_seconds"] == 1_000_004.0
    assert names["holdfast_node_gpus_expected"] == 8
    assert "holdfast_node_gpus" not in names


@pytest.mark.parametrize(
    ("name", "machine"),
    [
        ("gpu", MachineReading(gpu=GpuReading(True, "580.1", (GPU,), stale_since_s=9.5))),
        ("gpu_events", MachineReading(gpu_events=GpuEvents(silence=NvmlSilence("events", 9.5)))),
    ],
)
def test_a_probe_is_not_up_while_the_driver_does_not_answer_it(
    name: str, machine: MachineReading
) -> None:
    probes = tuple(ProbeHealth(one, True, 0, 0.1) for one in ("gpu", "gpu_events"))
    samples = draw(replace(picture(machine=machine), probes=probes), "job")
    up = {s.labels["probe"]: s.value for s in samples if s.name == "holdfast_probe_up"}
    assert up == {"gpu": 1, "gpu_events": 1} | {name: 0}


def test_a_lost_gpu_is_down_and_has_no_values() -> None:
    gone = replace(GPU, values={}, lost="GPU is lost")
    said = of_gpus(told(GpuReading(True, "580.1", (gone,), read_at_s=9.0)))
    assert said["holdfast_gpu_up"] == 0
    assert set(said) == {"holdfast_gpu_info", "holdfast_gpu_rank_info", "holdfast_gpu_up"}


def test_a_gpu_that_is_gone_shares_no_series_with_the_one_that_has_its_index_now() -> None:
    gone = replace(GPU, uuid="GPU-gone", pci="0000:99:00.0", values={}, lost="it is gone")
    one = XidCounts(1, 1, 5.0, Remedy.RESET_GPU)
    xids = XidReading((), {}, {(gone.pci, 79): one, (GPU.pci, 79): one})
    reading = GpuReading(True, "580.1", (gone, GPU), read_at_s=9.0)
    samples = draw(picture(machine=MachineReading(gpu=reading, xids=xids)), "job")
    series = [(one.name, *sorted(one.labels.items())) for one in samples]
    assert len(series) == len(set(series))
    up = {one.labels["gpu"]: one.value for one in samples if one.name == "holdfast_gpu_up"}
    assert up == {str(GPU.index): 1, gone.pci: 0}


def test_xids_keep_their_series_while_the_driver_is_away() -> None:
    one = XidCounts(1, 1, 5.0, Remedy.RESET_GPU)
    xids = XidReading((), {GPU.pci: Known(GPU.uuid, 3)}, {(GPU.pci, 119): one})
    samples = draw(picture(machine=MachineReading(xids=xids)), "job")
    assert {one.labels["gpu"] for one in samples if "xid" in one.labels} == {"3"}


def test_garbage_is_not_told() -> None:
    odd = replace(GPU, values={Signal.POWER: float("nan"), Signal.ENERGY: 2.0**64, Signal.BUSY: 1})
    said = of_gpus(told(GpuReading(True, "580.1", (odd,), read_at_s=9.0)))
    assert "holdfast_gpu_power_watts" not in said
    assert "holdfast_gpu_energy_joules_total" not in said
    assert said["holdfast_gpu_busy_ratio"] == 1


def test_a_machine_without_a_gpu_says_nothing_of_gpus() -> None:
    assert [one for one in told(GpuReading(False)) if "fast_gpu" in one.name] == []


def rank(number: int, power_w: float | None, tokens_per_s: float | None = None) -> RankReport:
    report = RankReport(number, number, 9, 10, "forward", 0.1, 0.05, 0.03)
    return replace(report, power_w=power_w, tokens_per_s=tokens_per_s)


def test_a_token_costs_the_power_of_all_ranks_over_the_pace_of_those_that_tell() -> None:
    assert token_joules([rank(0, 400, 1000.0), rank(1, 600, 1000.0)]) == 0.5
    assert token_joules([rank(0, 400, 1000.0), rank(1, 600)]) == 1.0


@pytest.mark.parametrize(
    "ranks", [[], [rank(0, 400)], [rank(0, 400, 0.0)], [rank(0, 400, 9.0), rank(1, None, 9.0)]]
)
def test_what_a_token_costs_is_unknown_unless_all_are_metered(ranks: list[RankReport]) -> None:
    assert token_joules(ranks) is None


def test_what_ranks_spend_travels_with_their_reports() -> None:
    node = decode(NodeReport, node_report("a", 0, 45))
    assert node is not None
    (report,) = node.ranks
    assert (report.power_w, report.tokens_per_s) == (500.0, 2000.0)
