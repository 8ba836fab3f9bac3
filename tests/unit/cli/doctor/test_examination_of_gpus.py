"""What doctor says of GPUs: the real nvidia-ml-py in a process of its own, on the fake driver."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from testing.fake_nvml.driver import FakeNvml, environment
from tests.fake_nvml import compiled

from holdfast_sidecar.cli.doctor import Check
from holdfast_sidecar.cli.doctor import gpu as gpus
from holdfast_sidecar.cli.doctor.gpu import ask, judge_driver, judge_untried
from holdfast_sidecar.components.gpu.readings import Signal
from holdfast_sidecar.config.settings import Settings, SnapshotSettings

NOT_SUPPORTED, NO_PERMISSION = 3, 4


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("library"))


@pytest.fixture
def fake(tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNvml]:
    """Eight GPUs that every child sees."""
    made = FakeNvml.create(tmp_path / "state")
    for name, value in environment(library, tmp_path / "state").items():
        monkeypatch.setenv(name, value)
    yield made
    made.release()
    made.close()


def found(deadline_s: float = 30.0) -> dict[str, Check]:
    return {check.what: check for check in judge_driver(ask(deadline_s=deadline_s))}


def test_a_driver_that_tells_everything_is_fine(fake: FakeNvml) -> None:
    checks = found()
    assert {check.verdict for check in checks.values()} == {"ok"}
    assert checks["NVML"].line == "driver 580.95.05, NVML 580.95.05, 8 GPUs"
    assert "retired_pages_correctable" in checks["GPU signals"].line


def test_the_reading_is_that_of_the_probe(fake: FakeNvml) -> None:
    fake.set(5, Signal.REMAP_PENDING, 1)
    reading = ask(deadline_s=30.0).reading
    assert reading is not None
    assert [gpu.index for gpu in reading.gpus if gpu.value(Signal.REMAP_PENDING)] == [5]


def test_what_may_not_be_asked_is_named_with_the_reason_and_the_mend(fake: FakeNvml) -> None:
    for gpu in range(8):
        fake.fail("nvmlGpmSampleGet", NO_PERMISSION, gpu)
        fake.fail("nvmlDeviceRegisterEvents", NOT_SUPPORTED, gpu)
    fake.fail("nvmlDeviceGetSramEccErrorStatus", NO_PERMISSION)
    checks = found()
    assert [checks[what].verdict for what in ("GPM", "XID events")] == ["note", "note"]
    assert "Insufficient Permissions" in checks["GPM"].line
    assert "NVreg_RestrictProfilingToAdminUsers=0" in checks["GPM"].line
    assert "Not Supported: faults of GPUs are seen only" in checks["XID events"].line
    assert checks["GPU signals"].verdict == "note"
    assert "Insufficient Permissions: " in checks["GPU signals"].line
    assert Signal.SRAM_THRESHOLD_EXCEEDED.value in checks["GPU signals"].line


def test_a_lost_gpu_fails(fake: FakeNvml) -> None:
    fake.lose(3)
    lost = [check for check in judge_driver(ask(deadline_s=30.0)) if check.verdict == "fail"]
    assert [check.line.partition(":")[0] for check in lost] == ["GPU 3 does not answer"]


def test_a_wedged_driver_fails_within_its_deadline(fake: FakeNvml) -> None:
    fake.hang_all()
    began_s = time.monotonic()
    checks = found(deadline_s=1.0)
    assert time.monotonic() - began_s < 5.0
    assert checks["NVML"].verdict == "fail"
    assert "does not answer within 1 s" in checks["NVML"].line


def test_no_driver_is_a_normal_machine_and_a_broken_one_is_not(fake: FakeNvml) -> None:
    fake.unload()
    assert found()["NVML"].verdict == "note"
    fake.load()
    fake.fail("nvmlInitWithFlags", 999)
    assert found()["NVML"].verdict == "fail"


@pytest.mark.parametrize("program", ["sys.exit('the driver is odd')", "print('[1]')"])
def test_a_child_that_ends_or_babbles_is_told_and_nothing_is_made_up(program: str) -> None:
    said = f"import sys; print('asking', flush=True); {program}"
    (check,) = judge_driver(ask([sys.executable, "-c", said]))
    assert check.verdict == "fail"
    assert "the process that asks it ended" in check.line
    assert "the driver is wedged or broken" in check.line


@pytest.mark.parametrize(
    "child",
    [
        [sys.executable, "-c", "import there_is_no_such_module"],
        [sys.executable, "-m", "there_is_no_such_module"],
        ["/no/such/python"],
    ],
)
def test_a_child_that_could_not_start_says_nothing_of_the_driver(child: list[str]) -> None:
    driver = ask(child)
    (check,) = judge_driver(driver)
    assert (check.verdict, driver.reading) == ("fail", None)
    assert "no such" in check.line.lower().replace("_", " ")
    assert "the driver was not asked at all" in check.line
    assert "wedged" not in check.line


def test_long_lists_are_cut_short() -> None:
    refused = {f"signal_{n}": "field 1: Not Supported" for n in range(20)}
    line = gpus.judge_signals([gpus.SeenGpu("", refused, "")]).line
    assert line.endswith("signal_7 and 12 more")


@pytest.mark.parametrize(
    ("settings", "environ", "on"),
    [
        (Settings(), {}, True),
        (
            Settings(snapshot=SnapshotSettings(every_steps=-1)),
            {"HOLDFAST_HOOKS": "-devices"},
            False,
        ),
    ],
)
def test_what_was_never_run_on_a_gpu_is_noted_where_there_are_some(
    fake: FakeNvml, settings: Settings, environ: dict[str, str], on: bool
) -> None:
    checks = {one.what: one for one in judge_untried(ask(deadline_s=30.0), settings, environ)}
    assert {one.verdict for one in checks.values()} == {"note"}
    snapshots, events = checks["untried: snapshots"], checks["untried: CUDA events, allocator"]
    assert ("and on: snapshot.every_steps=-1 turns it off" in snapshots.line) is on
    assert ("and on: HOLDFAST_HOOKS=-devices turns it off" in events.line) is on
    assert "and off" in checks["untried: acting on NCCL's numbers"].line
    assert all("never run on a GPU" in one.line for one in checks.values())


def test_without_gpus_nothing_is_said_of_what_was_never_run_on_one(fake: FakeNvml) -> None:
    fake.unload()
    assert judge_untried(ask(deadline_s=30.0), Settings(), {}) == []
