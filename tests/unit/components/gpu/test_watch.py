"""What is kept from tick to tick: readings taken in once, findings that outlast a silent driver."""

from __future__ import annotations

import dataclasses
import math

from tests.unit.components.gpu.nodes import gpu, lost, ranks, reading, without
from tests.unit.ranks.scene import history, look, moment

from holdfast.contract.page import Word
from holdfast_sidecar.components.gpu.component import GpuWatch
from holdfast_sidecar.components.gpu.history import EVERY_S, SPAN_S, GpuHistory, follow_gpus
from holdfast_sidecar.components.gpu.ownership import GpuUsers
from holdfast_sidecar.components.gpu.readings import GpuReading, Signal, leave_out_garbage
from holdfast_sidecar.records.findings import Kind


@dataclasses.dataclass
class Around:
    """Two ranks; counts how often it was asked."""

    asked: int = 0

    def read(self, reading: GpuReading) -> GpuUsers:
        self.asked += 1
        return ranks(2)


def test_a_reading_is_taken_in_once_however_often_it_is_shown() -> None:
    around = Around()
    watch = GpuWatch(around)
    one = reading(lost(gpu(0)), gpu(1))
    assert [f.kind for f in watch.follow(one, {}, moment(100))] == [Kind.GPU_LOST]
    assert [f.kind for f in watch.follow(one, {}, moment(101))] == [Kind.GPU_LOST]
    assert around.asked == 1


def test_a_stale_reading_is_not_judged_and_what_was_found_before_stands() -> None:
    watch = GpuWatch(Around())
    ill = reading(gpu(0, REMAP_PENDING=1), gpu(1))
    (before,) = watch.follow(ill, {}, moment(100))
    stale = dataclasses.replace(reading(lost(gpu(0)), gpu(1)), stale_since_s=100.0)
    assert watch.follow(stale, {}, moment(120)) == [before]
    assert watch.follow(None, {}, moment(140)) == [before]
    assert watch.follow(reading(gpu(0), gpu(1), at_s=160), {}, moment(160)) == []


def test_a_machine_without_a_gpu_is_a_normal_machine() -> None:
    around = Around()
    watch = GpuWatch(around)
    assert watch.follow(GpuReading(is_present=False), {}, moment(1)) == []
    assert watch.follow(None, {}, moment(2)) == []
    assert around.asked == 0
    assert watch.owners() == {}


def test_a_driver_that_is_gone_from_under_its_gpus_has_lost_them() -> None:
    watch = GpuWatch(Around())
    assert watch.follow(reading(gpu(0), gpu(1)), {}, moment(100)) == []
    unloaded = GpuReading(is_present=False, expected=2, read_at_s=101)
    found = watch.follow(unloaded, {}, moment(101))
    assert [(one.kind, one.ranks) for one in found] == [(Kind.GPU_LOST, [0]), (Kind.GPU_LOST, [1])]


def test_garbage_is_neither_judged_nor_kept() -> None:
    values = {
        "ECC_CORRECTED": 2.0**64 - 1,
        "ENERGY": math.nan,
        "PCIE_REPLAYS": -1.0,
        "POWER": math.inf,
        "TEMPERATURE_MARGIN": -3.0,
    }
    clean = leave_out_garbage(reading(gpu(0, None, **values), gpu(1)))
    kept = clean.gpus[0].values
    garbage = {Signal[name] for name in values} - {Signal.TEMPERATURE_MARGIN}
    assert garbage.isdisjoint(kept)
    assert kept[Signal.TEMPERATURE_MARGIN] == -3
    sound = reading(gpu(0))
    assert leave_out_garbage(sound) is sound


def test_energy_follows_what_the_ranks_say_of_themselves() -> None:
    watch = GpuWatch(Around())
    for turn in range(8):
        seen = look(100.0 + turn, step=turn)
        words = list(seen.words)
        words[Word.TOKENS] = 500 * turn
        seen = dataclasses.replace(seen, words=tuple(words))
        both = reading(gpu(0, ENERGY=300.0 * turn), gpu(1), at_s=100.0 + turn)
        watch.follow(both, {0: history(seen)}, moment(100.0 + turn))
    assert watch.energy.of(0).step_joules == 300
    assert watch.energy.of(0).token_joules == 0.6
    assert watch.owners()[gpu(1).pci] == 1


def test_of_a_long_past_no_more_is_kept_than_is_judged_by() -> None:
    kept = GpuHistory()
    for turn in range(1000):
        kept = follow_gpus(kept, reading(gpu(0), at_s=float(turn)))
    samples = kept.track(gpu(0).uuid).samples
    assert len(samples) <= SPAN_S / EVERY_S + 2
    assert samples[-1].at_s == 999
    assert Signal.POWER not in samples[-1].values


def test_a_signal_that_is_told_now_and_then_has_a_rate_all_the_same() -> None:
    kept = GpuHistory()
    for turn in range(60):
        told = gpu(0, PCIE_REPLAYS=turn)
        one = told if turn % 10 == 0 else without(told, Signal.PCIE_REPLAYS)
        kept = follow_gpus(kept, reading(one, at_s=float(turn)))
    growth = kept.track(gpu(0).uuid).growth(Signal.PCIE_REPLAYS, 60)
    assert growth is not None
    assert growth.per_s == 1.0


def test_rates_are_judged_now_and_then_and_stand_in_between() -> None:
    watch = GpuWatch(Around())
    found_at = [
        turn
        for turn in range(60)
        if watch.follow(
            reading(gpu(0, NVLINK_CRC=200 * turn), gpu(1), at_s=100.0 + turn),
            {},
            moment(100.0 + turn),
        )
    ]
    assert found_at == list(range(30, 60))
