from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.unit.components.xid.test_attending import START_S, gpus

from holdfast_sidecar.checks import keep_onsets
from holdfast_sidecar.components.gpu.readings import GpuReading
from holdfast_sidecar.components.hardware import HardwareAttention
from holdfast_sidecar.components.machine import MachineReading
from holdfast_sidecar.components.xid.component import XidAttention
from holdfast_sidecar.records.findings import Finding, Moment


class Sidecar:
    """One node's, as far as its GPUs go. Its history lies in this file."""

    def __init__(self, path: Path, boot: str = "boot 1") -> None:
        self.hardware = HardwareAttention(xids=XidAttention(path, boot))
        self.found: list[Finding] = []

    def tick(self, at_s: float, reading: GpuReading) -> list[Finding]:
        moment = Moment(1000.0 + at_s, START_S + at_s, "a")
        machine = MachineReading(gpu=replace(reading, read_at_s=moment.now_s))
        machine = self.hardware.follow(self.hardware.hear(machine), 0, {}, True, moment)
        self.found = keep_onsets(self.hardware.findings(machine, {}, moment), self.found)
        return self.found


WELL, MARKED, SECRET = gpus(RECOVERY_ACTION=0), gpus(RECOVERY_ACTION=1), gpus()


def onsets(found: list[Finding]) -> set[float]:
    return {round(one.since_unix_s - START_S, 3) for one in found if "recovery" in one.what}


def test_a_driver_that_could_not_be_asked_for_a_moment_asks_for_nothing_new(tmp_path) -> None:
    sidecar = Sidecar(tmp_path / "xids.json")
    sidecar.tick(0.0, WELL)
    assert onsets(sidecar.tick(10.0, MARKED)) == {10.0}
    assert onsets(sidecar.tick(20.0, SECRET)) == set()
    assert onsets(sidecar.tick(30.0, MARKED)) == {10.0}


def test_a_sidecar_that_starts_anew_takes_no_old_demand_for_a_new_one(tmp_path) -> None:
    before = Sidecar(tmp_path / "xids.json")
    before.tick(10.0, MARKED)
    assert onsets(Sidecar(tmp_path / "xids.json").tick(30.0, MARKED)) == {10.0}


def test_what_the_driver_took_back_and_asks_for_again_is_new(tmp_path) -> None:
    sidecar = Sidecar(tmp_path / "xids.json")
    sidecar.tick(10.0, MARKED)
    sidecar.tick(20.0, WELL)
    assert onsets(sidecar.tick(30.0, MARKED)) == {30.0}
