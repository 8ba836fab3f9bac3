"""`bench gpu-probe`: on the fake driver, and without any."""

from __future__ import annotations

from types import ModuleType

import pytest
from bench.benchmark import NotRun, Sample
from bench.figures import NOT_RUN
from bench.gpu_probe import poll, signals
from bench.gpu_probe.goals import asked, figures, percentile
from bench.gpu_probe.names import POLL, SIGNALS
from bench.gpu_probe.rows import BENCHMARK
from testing.fake_nvml.driver import FakeNvml

from holdfast_sidecar.components.gpu.readings import Signal


def stamped(row: str, samples: list[Sample]) -> list[Sample]:
    return [{"row": row, **sample} for sample in samples]


def test_without_a_gpu_every_figure_is_not_run() -> None:
    assert {figure.met for figure in figures([])} == {NOT_RUN}
    for row in BENCHMARK.rows:
        assert {one.met for one in figures([{"row": row, "not_run": "no GPU"}])} == {NOT_RUN}


def test_every_signal_has_a_line() -> None:
    assert {signal for signal, _ in asked()} == {signal.value for signal in Signal} | {"modes"}


@pytest.mark.usefixtures("pynvml")
def test_each_signal_is_told_with_its_raw_call_and_what_that_takes(fake_nvml: FakeNvml) -> None:
    fake_nvml.set(0, Signal.POWER, 321.0)
    fake_nvml.refuse_field(0, 83)
    found = signals.measure(calls=5, apart_s=0.0)
    assert [(one["signal"], one["way"]) for one in found] == asked()
    told = {(one["signal"], one["way"]): one for one in found}
    power = told["power_watts", "field 186"]
    assert (power["value"], power["refused"], len(power["took_s"])) == (321.0, "", 5)
    energy = told["energy_joules", "field 83"]
    assert (energy["value"], energy["refused"]) == (None, "field 83: Not Supported")
    lines = [figure.name for figure in figures(stamped(SIGNALS, found))]
    assert any(line.startswith("power_watts, field 186: 321, p99") for line in lines)


@pytest.mark.usefixtures("pynvml")
def test_a_call_that_takes_longer_than_20_ms_misses_the_goal(fake_nvml: FakeNvml) -> None:
    fake_nvml.delay("nvmlDeviceGetRowRemapperHistogram", 0.021)
    found = stamped(SIGNALS, signals.measure(calls=1, apart_s=0.0))
    (slowest,) = [one for one in figures(found) if one.name == "p99 of the slowest call"]
    assert slowest.met is False


@pytest.mark.usefixtures("pynvml")
def test_a_poll_is_told_for_eight_gpus(fake_nvml: FakeNvml) -> None:
    found = stamped(POLL, poll.measure(polls=3, every_s=0.0))
    assert [(one["number"], one["gpus"], one["lost"]) for one in found] == [
        (0, 8, 0),
        (1, 8, 0),
        (2, 8, 0),
    ]
    named = {figure.name: figure for figure in figures(found)}
    cost = named["processor time of a poll, mean, for 8 GPUs"]
    assert cost.goal == "<= 3"
    assert cost.value is not None


def test_a_machine_without_a_gpu_can_not_be_measured(
    pynvml: ModuleType, fake_nvml: FakeNvml
) -> None:
    fake_nvml.unload()
    with pytest.raises(NotRun, match="there is no GPU: Driver Not Loaded"):
        signals.measure(calls=1)


def test_the_percentile_is_a_value_that_was_measured() -> None:
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert percentile(range(1, 101), 99) == 99
    assert percentile([5.0], 99) == 5.0
