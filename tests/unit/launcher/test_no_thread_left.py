"""A machine without a thread left (`pids.max`): what it was for waits, the loop does not."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unittest.mock import Mock

import pytest

from holdfast_sidecar.checkpoint.replication import server as server_module
from holdfast_sidecar.checkpoint.replication.fetch import TransferCounts
from holdfast_sidecar.checkpoint.replication.server import Hosting, PeerServer
from holdfast_sidecar.checkpoint.snapshot.files import Checking, SlotFile
from holdfast_sidecar.components.gpu.nvml.process import ChildWakeup
from holdfast_sidecar.components.network.round_trip import Exchange
from holdfast_sidecar.config.paths import Paths
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.controller import fence as fence_module
from holdfast_sidecar.controller.fence import Fence, FenceFile, read_fence
from holdfast_sidecar.export.http_server import Response, Server
from holdfast_sidecar.incidents.collect import EvidenceKeeping
from holdfast_sidecar.launcher import attempt_store
from holdfast_sidecar.launcher.plan_watch import PlanWatch, Reporter
from holdfast_sidecar.launcher.sidecar_process import SidecarProcess
from holdfast_sidecar.linux import threads
from holdfast_sidecar.linux.probe_runner import Patient, SilentError
from holdfast_sidecar.ranks.ending import ActionRunner
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.records.reports import AgentReport
from holdfast_sidecar.store.embedded import EmbeddedServer, KeptServer
from holdfast_sidecar.store.memory_store import MemoryServer, MemoryStore

WAIT_S = 10.0


@contextlib.contextmanager
def no_thread_left() -> Iterator[None]:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        yield


def until(holds: Callable[[], bool]) -> None:
    for _ in range(int(WAIT_S * 100)):
        if holds():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not come about")


def test_a_fence_is_obeyed_and_written_to_disk_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence_module, "AGAIN_S", 0.0)
    disk, local = tmp_path / "disk" / "fence.json", tmp_path / "fence.json"
    fence = FenceFile(disk, local)
    with no_thread_left():
        assert fence.obey(3, 7)
    assert fence.fence == read_fence(local) == Fence(3, 7)
    assert "no thread can be started" in fence.obstacle
    assert fence.obey(3, 7)
    until(lambda: not fence.obstacle)
    assert read_fence(disk) == Fence(3, 7)


def test_the_rendezvous_goes_on_looking_for_its_store() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = attempt_store.Endpoint("i", "127.0.0.1", silent.getsockname()[1])
        connecting = attempt_store.Connecting(endpoint)
        with no_thread_left():
            assert connecting.wait() is None
            assert connecting.wait() is None


def test_a_probe_is_absent_until_it_can_be_asked() -> None:
    class Answers:
        name = "gpu"

        def read(self, now_s: float) -> float:
            return now_s

    patient = Patient(Answers())
    with no_thread_left(), pytest.raises(SilentError):
        patient.read(1.0)
    assert patient.read(2.0) == 2.0


def test_evidence_is_kept_once_a_thread_can_be_started(tmp_path: Path) -> None:
    keeping = EvidenceKeeping(Paths(tmp_path / "shm", tmp_path / "state"), ActionRunner())
    plan = Plan(0, 1, "evidence", incident="i1", cause="hang", culprit_ranks=[1])
    with no_thread_left():
        keeping.keep(plan, [], 0.0)
    assert keeping.kept.incident == ""

    def is_kept() -> bool:
        keeping.keep(plan, [], 0.0)
        return keeping.kept.incident == "i1"

    until(is_kept)


def test_a_caller_that_can_not_be_served_calls_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "ACCEPT_AGAIN_S", 0.0)
    served: list[socket.socket] = []

    class Serving(PeerServer):
        def _serve(self, connection: socket.socket) -> None:
            served.append(connection)
            self._callers.see_off(connection)
            connection.close()

    server = Serving(("127.0.0.1", 0), lambda channel, is_over: None)
    server.start()
    host, _, port = server.address("").rpartition(":")

    def call() -> bytes:
        with socket.create_connection((host, int(port)), WAIT_S) as connection:
            return connection.recv(1)

    try:
        with no_thread_left():
            assert call() == b""
            assert served == []
            assert server._callers._all == set()
        assert call() == b""
        assert len(served) == 1
    finally:
        server.close()


def test_copies_on_other_nodes_begin_once_a_thread_can_be_started(tmp_path: Path) -> None:
    hosting = Hosting(tmp_path, "127.0.0.1:0", TransferCounts())
    try:
        with no_thread_left():
            hosting.open()
        assert (hosting.address(""), hosting.obstacle) == ("", "")
        hosting.open()
        assert hosting.address("").startswith("127.0.0.1:")
    finally:
        hosting.close()


def test_round_trips_can_be_opened_again() -> None:
    exchange = Exchange(("127.0.0.1", 0))
    with no_thread_left(), pytest.raises(BlockingIOError):
        exchange.open()
    exchange.close()


@pytest.mark.parametrize("slots", [(), ("one",)])
def test_checksums_wait(slots: Sequence[SlotFile]) -> None:
    checking = Checking()
    with no_thread_left():
        checking.show(slots)
    checking.stop()


def test_what_a_child_says_is_heard_at_the_next_tick() -> None:
    woken = threading.Event()
    near, far = socket.socketpair()
    with near, far:
        alarm = ChildWakeup(woken.set)
        with no_thread_left():
            alarm.listen(near.fileno())
        alarm.listen(near.fileno())
        far.send(b".")
        assert woken.wait(WAIT_S)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "PATIENCE_S", 0.0)


def test_what_nobody_asks_for_again_is_tried_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "AGAIN_S", 0.0)
    refusals, really = iter(range(2)), threading.Thread.start

    def refuse_twice(self: threading.Thread) -> None:
        if next(refusals, None) is not None:
            raise RuntimeError("can't start new thread")
        really(self)

    monkeypatch.setattr(threading.Thread, "start", refuse_twice)
    done = threading.Event()
    assert threads.start_patiently(done.set, "late") is not None
    assert done.wait(WAIT_S)


@pytest.mark.usefixtures("impatient")
def test_a_launcher_that_can_not_follow_the_job_is_refused_in_one_line() -> None:
    store = MemoryStore(MemoryServer())
    report = AgentReport("a", "a-1", "joining", -1, 0, 1, "127.0.0.1", 1, 1)
    reporter = Reporter(store, report, heartbeat_s=1.0)
    watch, serving = PlanWatch(store, look_every_s=1.0), Server("127.0.0.1:0")
    with no_thread_left():
        for start in (reporter.start, watch.start, lambda: serving.start(lambda _: Response(b""))):
            with pytest.raises(BadInput, match=r"^no thread can be started .*: raise pids"):
                start()
    reporter.close(0.1)
    serving.close()


@pytest.mark.usefixtures("impatient")
def test_a_server_of_our_own_serves_without_its_keeper() -> None:
    server, told = Mock(spec=EmbeddedServer), list[str]()
    kept = KeptServer(server, told.append)
    with no_thread_left():
        kept.start()
    (line,) = told
    assert "is not started again should it end" in line
    kept.stop()
    server.stop.assert_called_once()


@pytest.mark.usefixtures("impatient")
def test_a_sidecar_watches_without_its_keeper(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Sleeper(SidecarProcess):
        def _launch(self) -> subprocess.Popen[bytes]:
            return subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])

    beside = Sleeper([], Paths(tmp_path, tmp_path))
    with no_thread_left():
        beside.start()
    assert "is not started again should it end" in caplog.text
    assert beside._process is not None
    assert beside._process.poll() is None
    beside.stop()
    assert beside._process.poll() is not None
