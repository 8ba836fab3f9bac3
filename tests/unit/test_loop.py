from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.components.gpu.nodes import company, gpu, lost, seat
from tests.unit.desk_twin import MemoryDesk
from tests.unit.pretend_pages import publish, set_word, write_page
from tests.unit.ranks.scene import record

from holdfast.contract.page import Phase, Word
from holdfast_sidecar import loop as loop_module
from holdfast_sidecar.actions import Actions
from holdfast_sidecar.checkpoint.replication.fetch import PeerCounts
from holdfast_sidecar.components.gpu.component import GpuWatch
from holdfast_sidecar.components.gpu.ownership import GpuUsers
from holdfast_sidecar.components.gpu.readings import Gpu, GpuReading
from holdfast_sidecar.components.host.readings import HostReading
from holdfast_sidecar.components.machine import MachineProbes, MachineReading
from holdfast_sidecar.components.network.readings import NetworkReading
from holdfast_sidecar.components.xid.events import GpuEvents, XidEvent
from holdfast_sidecar.config.paths import Paths
from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.export.job_record import read_record
from holdfast_sidecar.export.state import TickState
from holdfast_sidecar.incidents.collect import EvidenceKeeping
from holdfast_sidecar.incidents.storage import IncidentStore, read_incidents
from holdfast_sidecar.lifecycle import LauncherWatch, Shutdown, ShutdownBlockers
from holdfast_sidecar.linux.kmsg import KernelLog, KernelReading, KernelRecord
from holdfast_sidecar.linux.probe_runner import ProbeRunner
from holdfast_sidecar.loop import Loop
from holdfast_sidecar.ranks.ending import ActionRunner
from holdfast_sidecar.ranks.page import Pages
from holdfast_sidecar.ranks.probe import RanksProbe
from holdfast_sidecar.records.checkpoint import SnapshotReport
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.plan import Incident, Plan
from holdfast_sidecar.records.reports import NodeReport, RankReport
from holdfast_sidecar.store.orders import LocalState, Orders
from holdfast_sidecar.store.protocol import Lease, Section, View

HOST = HostReading({}, 2, 0.1, 100, 90, 0, 0.0)


@dataclass
class Coordination:
    """A coordinator that has agreed on whatever the test says."""

    agreed: Orders = field(default_factory=lambda: Orders(store_up=True))
    told: list[LocalState] = field(default_factory=list)
    changed: threading.Event = field(default_factory=threading.Event)
    calls: list[str] = field(default_factory=list)

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")

    def tell(self, state: LocalState) -> None:
        self.told.append(state)

    def orders(self) -> Orders:
        return self.agreed


@dataclass
class Fixed:
    """A probe that always answers the same."""

    answer: Any
    name: str = "fixed"

    def read(self, now_s: float) -> Any:
        return self.answer


class Broken:
    """A probe that can't read."""

    name = "broken"

    def read(self, now_s: float) -> Any:
        raise OSError(24, "Too many open files")


@dataclass
class Teller:
    """Keeps the pictures; breaks when told to."""

    pictures: list[TickState] = field(default_factory=list)
    breaks: int = 0
    then: Any = None

    def tell(self, picture: TickState) -> None:
        self.pictures.append(picture)
        if self.then is not None:
            self.then()
        if len(self.pictures) <= self.breaks:
            raise RuntimeError("planted")


@dataclass
class NoParts:
    """No checkpoint is under way."""

    silent_s: float = 0.0

    def follow(self, order: Any, looks: Any) -> None:
        return None

    def silent_for(self) -> float:
        return self.silent_s


@dataclass
class Peers:
    """A node without others."""

    counts = PeerCounts()

    def follow(
        self, orders: Any, looks: Any, report: SnapshotReport | None, now_s: float
    ) -> SnapshotReport | None:
        return report

    def findings(self, moment: Any) -> list[Finding]:
        return []

    def close(self) -> None:
        pass


@dataclass
class Snapshots:
    """A node whose slots are as the test says."""

    report: SnapshotReport | None = None
    is_pressed: bool = False

    def follow(self, orders: Any, looks: Any, now_s: float) -> SnapshotReport | None:
        return self.report


def never(question: Any) -> Any:
    raise AssertionError(f"storage was asked {question}")


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    places = Paths(shm=tmp_path, state=tmp_path / "state")
    pages = Pages(tmp_path)
    settings = Settings()
    yield Loop(
        node="a",
        settings=settings,
        ranks_probe=ProbeRunner(RanksProbe(pages), 0.0),
        machine=MachineProbes(
            host=ProbeRunner(Fixed(HOST), 5.0),
            network=ProbeRunner(Fixed(NetworkReading({})), 5.0),
            gpu=ProbeRunner(Fixed(GpuReading(False)), 5.0),
        ),
        coordination=Coordination(),
        deeds=Actions(
            "a",
            settings,
            places,
            pages,
            IncidentStore(places),
            EvidenceKeeping(places, ActionRunner()),
        ),
        saved_parts=NoParts(),
        snapshots=Snapshots(),
        peers=Peers(),
        farewell=Shutdown(LauncherWatch(0, None), places, 10.0),
        teller=Teller(),
        parting=ShutdownBlockers(
            "a", str(tmp_path), settings, MemoryDesk(never), tmp_path / "shipping"
        ),
    )
    pages.close()


def silent_rank(directory: Path) -> None:
    """A rank with a past that entered forward at second 0 and has not moved since."""
    path = write_page(directory, claimed_ns=0)
    for index in range(10):
        publish(path, index, record(step=index + 1, forward=20))
    set_word(path, Word.STEP, 10)
    set_word(path, Word.PHASE, Phase.FORWARD)


def kinds(loop: Loop) -> list[Kind]:
    coordination = loop.coordination
    assert isinstance(coordination, Coordination)
    return [finding.kind for finding in coordination.told[-1].findings]


class Impatient(threading.Event):
    """Doesn't wait; keeps for how long it was asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.asked.append(timeout or 0.0)
        return True


def test_the_next_look_comes_when_a_silence_passes_its_limit(loop: Loop, tmp_path: Path) -> None:
    silent_rank(tmp_path)
    (page,) = tmp_path.glob("*.page")
    set_word(page, Word.PHASE_SINCE_NS, time.monotonic_ns() - 700_000_000)
    seldom = replace(loop.settings.sidecar, tick_s=60.0)
    loop.settings = replace(loop.settings, sidecar=seldom)
    loop.coordination = Coordination(changed=(rested := Impatient()))
    loop.teller = Teller(then=loop.leave)
    loop.run()
    assert rested.asked[0] < 1.0, "its limit is a second"


def test_a_line_of_the_kernel_s_wakes_the_loop_and_becomes_a_finding(
    loop: Loop, tmp_path: Path
) -> None:
    path, coordination = tmp_path / "kmsg", loop.coordination
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    gpus = GpuReading(True, "570.86", (Gpu(0, "GPU-a", "H100", "0000:17:00.0"),))
    loop.machine = replace(
        loop.machine,
        gpu=ProbeRunner(Fixed(gpus), 5.0),
        kernel=ProbeRunner(log := KernelLog(coordination.changed.set, path), 0.0),
    )
    loop.tick(0.5, 1000.5)
    assert Kind.GPU_FAULT not in kinds(loop)
    coordination.changed.clear()
    os.write(writer, b"3,1,1,-;NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus.\n")
    assert coordination.changed.wait(5.0)
    loop.tick(1.0, time.time())
    assert Kind.GPU_FAULT in kinds(loop)
    log.close()
    os.close(writer)


def test_a_tick_reads_judges_and_tells(loop: Loop, tmp_path: Path) -> None:
    silent_rank(tmp_path)
    loop.tick(0.5, 1000.5)
    assert kinds(loop) == []
    loop.tick(2.0, 1002.0)
    assert kinds(loop) == [Kind.STALL]
    loop.tick(3.0, 1003.0)
    assert isinstance(loop.coordination, Coordination)
    state = loop.coordination.told[-1]
    assert (state.attempt, state.ranks[0].step, state.ranks[0].phase) == (0, 10, "forward")
    assert state.findings[0].since_unix_s == 1000.0
    assert isinstance(loop.teller, Teller)
    picture = loop.teller.pictures[-1]
    assert picture.cost.found == {Kind.STALL: 1}
    assert isinstance(picture.machine, MachineReading)
    assert picture.machine.host == HOST


@pytest.mark.parametrize("acts", [True, False])
def test_only_what_may_end_ranks_is_told_before_anything_is_done_about_it(
    acts: bool, loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash = Finding(Kind.CRASH, "a", 1000.0, 1.0, ranks=[0], acts=acts)
    silent_rank(tmp_path)
    loop.tick(0.5, 1000.5)
    assert isinstance(loop.coordination, Coordination)
    told = loop.coordination.told
    known_at_deeds: list[list[Finding]] = []
    monkeypatch.setattr(loop_module, "judge_ranks", lambda *_: [crash])
    monkeypatch.setattr(loop.deeds, "act", lambda *_: known_at_deeds.append(told[-1].findings))
    loop.tick(1.0, 1001.0)
    loop.tick(1.5, 1001.5)
    assert known_at_deeds[0] == ([crash] if acts else [])
    assert [state.findings for state in told[1:]] == [[crash]] * (3 if acts else 2)
    assert {state.attempt for state in told} == {0}


@pytest.mark.parametrize(
    ("plan", "is_judged"),
    [
        (Plan(0, 1, "running"), True),
        (Plan(0, 1, "evidence"), True),
        (Plan(0, 1, "ended"), False),
        (Plan(0, 1, "stopped"), False),
        (Plan(0, 1, "done"), False),
        (Plan(1, 1, "running"), False),
    ],
)
def test_ranks_are_judged_only_while_their_attempt_goes_on(
    plan: Plan, is_judged: bool, loop: Loop, tmp_path: Path
) -> None:
    assert isinstance(loop.coordination, Coordination)
    loop.coordination.agreed = Orders(plan=plan, store_up=True)
    silent_rank(tmp_path)
    loop.tick(0.5, 1000.5)
    loop.tick(2.0, 1002.0)
    assert (Kind.STALL in kinds(loop)) is is_judged


def test_a_node_short_of_room_for_snapshots_is_told_from_the_next_tick_on(loop: Loop) -> None:
    loop.snapshots = Snapshots(SnapshotReport(2, 1, True, "1 slot of 3", "shared_memory"))
    loop.tick(0.5, 1000.5)
    assert kinds(loop) == []
    loop.tick(1.0, 1001.0)
    assert kinds(loop) == [Kind.NO_SNAPSHOTS]
    teller, coordination = loop.teller, loop.coordination
    assert isinstance(teller, Teller)
    assert isinstance(coordination, Coordination)
    (finding,) = coordination.told[-1].findings
    assert (finding.what, finding.evidence) == ("shared_memory", ["1 slot of 3"])
    assert teller.pictures[-1].snapshot == coordination.told[-1].snapshot is not None


def test_the_loop_rests_less_while_ranks_wait_for_their_slots(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests: list[float] = []
    monkeypatch.setattr(loop.coordination.changed, "wait", rests.append)
    loop._rest(0.0)
    loop.snapshots = Snapshots(is_pressed=True)
    loop._rest(0.0)
    assert rests == [0.5, 0.1]


def test_a_loop_that_overslept_starts_all_over(loop: Loop, tmp_path: Path) -> None:
    silent_rank(tmp_path)
    loop.tick(0.5, 1000.5)
    loop.tick(500.0, 1500.0)
    assert kinds(loop) == []
    loop.tick(500.5, 1500.5)
    loop.tick(501.5, 1501.5)
    assert kinds(loop) == [Kind.STALL]


def test_a_reading_that_fails_takes_no_ranks_past_away(loop: Loop, tmp_path: Path) -> None:
    silent_rank(tmp_path)
    loop.tick(0.5, 1000.5)
    working = loop.ranks_probe.probe
    loop.ranks_probe.probe = Broken()
    loop.tick(1.0, 1001.0)
    assert isinstance(loop.coordination, Coordination)
    assert [rank.step for rank in loop.coordination.told[-1].ranks] == [10]
    loop.ranks_probe.probe = working
    loop.tick(2.0, 1002.0)
    assert kinds(loop) == [Kind.STALL]


def test_no_rank_is_judged_by_an_old_look(loop: Loop, tmp_path: Path) -> None:
    silent_rank(tmp_path)
    loop.tick(0.5, 1000.5)
    loop.ranks_probe.probe = Broken()
    loop.tick(2.0, 1002.0)
    assert kinds(loop) == []


def test_a_tick_that_fails_is_logged_once_counted_and_followed_by_the_next(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    assert isinstance(loop.teller, Teller)
    teller = loop.teller
    teller.breaks = 3

    def wake() -> None:
        loop.coordination.changed.set()
        if len(teller.pictures) == 5:
            loop.leave()

    teller.then = wake
    with caplog.at_level(logging.ERROR):
        loop.run()
    assert (loop.cost.ticks, loop.cost.failed_ticks) == (5, 3)
    assert len(caplog.records) == 1
    assert isinstance(loop.coordination, Coordination)
    assert loop.coordination.calls == ["start", "stop"]


class Once:
    """A probe that tells what it has but once."""

    name = "once"

    def __init__(self, answer: Any, after: Any) -> None:
        self.answers, self.after = [answer], after

    def read(self, now_s: float) -> Any:
        return self.answers.pop() if self.answers else self.after


def test_an_event_is_known_though_the_tick_that_read_it_fails(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    xid = XidEvent(1000.0, "nvml", 79, "0000:10:00.0", "")
    line = "NVRM: Xid (PCI:0000:11:00): 48, An uncorrectable double bit error (DBE)"
    log = KernelReading((KernelRecord(1, 3, 5.0, line, at_unix_s=1000.0),))
    loop.machine = replace(
        loop.machine,
        gpu=ProbeRunner(Fixed(GpuReading(True, "570", (gpu(0), gpu(1)))), 0.0),
        gpu_events=ProbeRunner(Once(GpuEvents(xids=(xid,)), GpuEvents()), 0.0),
        kernel=ProbeRunner(Once(log, KernelReading()), 0.0),
    )

    def break_down(*_: Any) -> None:
        raise RuntimeError("no echo")

    with monkeypatch.context() as patch:
        patch.setattr(loop.echo, "follow", break_down)
        with pytest.raises(RuntimeError):
            loop.tick(0.0, 1000.0)
    loop.tick(0.5, 1000.5)
    assert kinds(loop)[:2] == [Kind.GPU_FAULT, Kind.GPU_FAULT]


def test_an_error_that_comes_back_after_a_good_tick_is_logged_again(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    assert isinstance(loop.teller, Teller)
    teller = loop.teller

    def fail_at_times() -> None:
        loop.coordination.changed.set()
        if len(teller.pictures) == 5:
            loop.leave()
        if len(teller.pictures) in (1, 2, 4):
            raise RuntimeError("planted")

    teller.then = fail_at_times
    with caplog.at_level(logging.ERROR):
        loop.run()
    assert (loop.cost.failed_ticks, len(caplog.records)) == (3, 2)


def test_an_incident_whose_name_is_a_path_is_not_followed(loop: Loop, tmp_path: Path) -> None:
    assert isinstance(loop.coordination, Coordination)
    hostile = Plan(0, 1, "evidence", incident="../../elsewhere", cause="hang")
    loop.coordination.agreed = Orders(plan=hostile, store_up=True)
    loop.tick(0.5, 1000.5)
    assert loop.deeds.evidence_for == ""
    assert not (tmp_path / "elsewhere").exists()
    good = Plan(0, 1, "evidence", incident="i1", cause="hang")
    loop.coordination.agreed = Orders(plan=good, store_up=True)
    loop.tick(1.0, 1001.0)
    assert loop.deeds.evidence_for == "i1"


def test_nothing_on_the_sidecars_path_imports_torch_or_numpy() -> None:
    code = (
        "import sys, holdfast_sidecar.cli.main, holdfast_sidecar.cli.sidecar;"
        "import holdfast_sidecar.wiring, holdfast_sidecar.wiring;"
        "import holdfast_sidecar.store.connection;"
        "print([m for m in ('torch', 'numpy', 'pynvml') if m in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert answer.stdout.decode().strip() == "[]"


def test_a_sidecar_that_leaves_writes_down_how_far_the_job_came(loop: Loop, tmp_path: Path) -> None:
    def at(step: int) -> Orders:
        ranks = [RankReport(0, 0, 1, step, "forward", 0.0, 0.1, 0.1)]
        report = NodeReport("a", "i", 1, 0, 0, 0, True, ranks=ranks)
        sections = {
            Section.PLAN: {"current": encode(Plan(0, 1, "running"))},
            Section.NODES: {"a": encode(report)},
        }
        return Orders(store_up=True, view=View(Lease(1, "a/i"), "s", sections))

    def come_further_and_leave() -> None:
        loop.coordination.agreed = at(9)  # type: ignore[attr-defined]
        loop.leave()

    loop.coordination.agreed = at(3)  # type: ignore[attr-defined]
    loop.teller.then = come_further_and_leave  # type: ignore[attr-defined]
    loop.run()
    found = read_record(tmp_path)
    assert found is not None
    assert found[0].step == 9


def test_what_a_leader_writes_as_it_leaves_is_on_the_disk(loop: Loop, tmp_path: Path) -> None:
    open_still = Incident("x", 0, "crash", detected_unix_s=1.0)

    def saying(incident: Incident) -> Orders:
        sections = {Section.INCIDENTS: {"x": encode(incident)}}
        return Orders(store_up=True, view=View(Lease(1, "a/i"), "s", sections))

    class Leading(Coordination):
        def stop(self) -> None:
            self.agreed = saying(replace(open_still, decided="stop"))

    loop.coordination = Leading(saying(open_still))
    loop.teller.then = loop.leave  # type: ignore[attr-defined]
    loop.run()
    (found,) = read_incidents(tmp_path)
    assert found.decided == "stop"


def test_a_gpu_that_is_lost_is_told_with_its_rank_and_drawn_with_it(
    loop: Loop, tmp_path: Path
) -> None:
    silent_rank(tmp_path)
    gone = GpuReading(True, "580.1", (lost(gpu(0)),), read_at_s=0.4)
    loop.machine = replace(loop.machine, gpu=ProbeRunner(Fixed(gone), 5.0))
    loop.hardware.gpus = GpuWatch(Around(company(seat(0, {"CUDA_VISIBLE_DEVICES": "0"}))))
    loop.tick(0.5, 1000.5)
    assert isinstance(loop.coordination, Coordination)
    found = {finding.kind: finding for finding in loop.coordination.told[-1].findings}
    assert found[Kind.GPU_LOST].ranks == [0]
    assert isinstance(loop.teller, Teller)
    assert loop.teller.pictures[-1].gpus.ownership.ranks_of(gpu(0).uuid) == [0]


@dataclass
class Around:
    """Who is around the GPUs, as the test says."""

    company: GpuUsers

    def read(self, reading: GpuReading) -> GpuUsers:
        return self.company
