"""When a node is put to the test, and what becomes of it; the child is a few lines of shell."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from holdfast_sidecar.components.gpu.readings import Gpu, GpuReading
from holdfast_sidecar.components.health_check.self_test import Proving, TestProcess
from holdfast_sidecar.components.health_check.stress_request import StressRequest
from holdfast_sidecar.config.settings import GateSettings
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.findings import Moment
from holdfast_sidecar.records.plan import Plan, Request
from holdfast_sidecar.records.reports import Exertion
from holdfast_sidecar.store.orders import Orders
from holdfast_sidecar.store.protocol import Lease, Section, View

WELL = """echo testing; echo '{"figures":{"matmul_flops_per_s":5.0},"model":"cpu"}'"""


def asked(node: str = "n1", **more: object) -> Request:
    return Request("r1", "test", "ann", 1000.0, node=node, **more)  # type: ignore[arg-type]


def orders(*requests: Request, plan: Plan | None = None) -> Orders:
    sections = {Section.REQUESTS: {one.identifier: encode(one) for one in requests}}
    return Orders(plan=plan, view=View(Lease(1, ""), "s", sections))


class Scene:
    """One node's proving, whose tests are this shell script."""

    def __init__(self, script: str = WELL, **settings: object) -> None:
        self.script = script
        self.errands: list[StressRequest] = []
        self.now_s = 10.0
        self.proving = Proving("n1", GateSettings(**settings), self.start)  # type: ignore[arg-type]

    def start(self, errand: StressRequest, now_s: float, patience_s: float) -> TestProcess:
        self.errands.append(errand)
        return TestProcess.start(errand, now_s, patience_s, ("sh", "-c", self.script))

    def look(
        self, told: Orders, ranks: tuple[int, ...] = (), reading: GpuReading | None = None
    ) -> Exertion | None:
        moment = Moment(self.now_s, 1000.0 + self.now_s, "n1", 0.0)
        return self.proving.follow(told, ranks, reading, moment)

    def look_until(self, told: Orders, is_so: Callable[[Exertion], bool]) -> Exertion:
        end_s = time.monotonic() + 20.0
        while time.monotonic() < end_s:
            found = self.look(told)
            if found is not None and is_so(found):
                return found
            time.sleep(0.005)
        raise AssertionError(f"never so: {found}")


def test_a_wish_is_answered_once_with_what_came_of_it() -> None:
    scene = Scene()
    told = orders(asked())
    running = scene.look(told)
    assert running is not None
    assert (running.state, running.asked_by) == ("running", "r1")
    done = scene.look_until(told, lambda one: one.is_over)
    assert (done.state, done.figures, done.device) == ("done", {"matmul_flops_per_s": 5.0}, "cpu")
    for _ in range(3):
        assert scene.look(told) == done
    assert len(scene.errands) == 1


class LastBreath:
    """A process that says what it found and is gone between a look at its words and one at it."""

    pid = 2**30
    stdin = None

    def __init__(self) -> None:
        end, self._speaks = os.pipe()
        os.set_blocking(end, False)
        self.stdout = os.fdopen(end, "rb")

    def poll(self) -> int:
        if self._speaks >= 0:
            os.write(self._speaks, b'{"figures":{"matmul_flops_per_s":5.0}}\n')
            os.close(self._speaks)
            self._speaks = -1
        return 0


def test_what_a_test_says_with_its_last_breath_is_heard() -> None:
    process = TestProcess(LastBreath(), 60.0, 60.0)  # type: ignore[arg-type]
    result = process.look(1.0)
    assert result is not None
    assert (result.error, result.figures) == ("", {"matmul_flops_per_s": 5.0})


def test_of_two_wishes_that_nobody_takes_back_each_is_answered_once() -> None:
    scene = Scene()
    told = orders(asked(), Request("r2", "test", "ann", 1001.0, node="n1"))
    scene.look_until(told, lambda one: one.is_over and one.asked_by == "r1")
    done = scene.look_until(told, lambda one: one.is_over and one.asked_by == "r2")
    for _ in range(3):
        assert scene.look(told) == done
    assert len(scene.errands) == 2


def test_a_wish_for_another_node_or_of_another_kind_or_long_ago_is_none_of_ours() -> None:
    scene = Scene()
    old = Request("r2", "test", "ann", -9999.0, node="n1")
    drain = Request("r3", "drain", "ann", 1000.0, node="n1")
    assert scene.look(orders(asked("n2"), old, drain)) is None
    assert scene.look(Orders()) is None


def test_while_ranks_run_it_is_refused_unless_it_is_forced() -> None:
    scene = Scene()
    refused = scene.look(orders(asked()), ranks=(4, 5))
    assert refused is not None
    assert refused.state == "refused"
    assert refused.reason.startswith("ranks run there (4, 5)")
    assert scene.errands == []
    forced = scene.look(
        orders(asked(), Request("r9", "test", "", 1001.0, node="n1", is_forced=True))
    )
    assert forced is not None
    assert (forced.state, forced.asked_by) == ("running", "r9")
    scene.proving.close()


def test_a_test_that_takes_too_long_is_ended_with_all_that_it_started() -> None:
    scene = Scene("echo testing memory; sleep 600 & echo $! >&2; wait", test_timeout_s=5.0)
    told = orders(asked())
    scene.look_until(told, lambda one: one.reason == "testing memory")
    process = scene.proving._process
    assert process is not None
    scene.now_s += 6.0
    failed = scene.look(told)
    assert failed is not None
    assert failed.state == "failed"
    assert failed.reason == "it was not over within 5 s (last: testing memory)"
    process.process.wait(5.0)
    assert _group_is_empty(process.process.pid)


def _group_is_empty(group: int) -> bool:
    end_s = time.monotonic() + 5.0
    while time.monotonic() < end_s:
        try:
            os.killpg(group, 0)
        except (ProcessLookupError, PermissionError):
            return True
        time.sleep(0.01)
    return False


def test_a_test_that_dies_or_talks_nonsense_says_nothing_of_the_node() -> None:
    for script, why in (
        ("exit 3", "the test exited with code 3"),
        ("kill -9 $$", "SIGKILL"),
        ("echo '{nonsense'", "the test said '{nonsense'"),
        ('echo \'{"error": "no torch"}\'', "no torch"),
    ):
        scene = Scene(script)
        failed = scene.look_until(orders(asked()), lambda one: one.is_over)
        assert failed.state == "failed"
        assert why in failed.reason, failed
        assert failed.wrong == []


def test_one_that_can_t_be_started_is_told_of() -> None:
    def refuse(errand: StressRequest, now_s: float, patience_s: float) -> TestProcess:
        raise OSError(11, "Resource temporarily unavailable")

    scene = Scene()
    scene.proving.start = refuse
    failed = scene.look(orders(asked()))
    assert failed is not None
    assert failed.state == "failed"
    assert "Resource temporarily unavailable" in failed.reason


def test_after_a_blame_it_is_made_once_the_ranks_are_down_where_that_is_wished() -> None:
    ended = Plan(3, 1, "ended", incident="i9", culprit_node="n1", cause="crash")
    scene = Scene()
    assert scene.look(orders(plan=ended)) is None
    scene = Scene(test_after_blame=True)
    assert scene.look(orders(plan=ended), ranks=(0,)) is None
    running = scene.look(orders(plan=ended))
    assert running is not None
    assert (running.state, running.asked_by) == ("running", "i9")
    done = scene.look_until(orders(plan=ended), lambda one: one.is_over)
    assert scene.look(orders(plan=ended)) == done
    assert len(scene.errands) == 1


def test_a_test_gives_way_to_ranks_that_start_unless_it_is_forced() -> None:
    scene = Scene("sleep 600")
    scene.look(orders(asked()))
    ended = scene.look(orders(asked()), ranks=(0,))
    assert ended is not None
    assert (ended.state, ended.wrong) == ("refused", [])
    assert "the next attempt takes the node in" in ended.reason
    assert scene.proving._process is None
    scene = Scene("sleep 600")
    scene.look(orders(asked(is_forced=True)))
    running = scene.look(orders(asked(is_forced=True)), ranks=(0,))
    assert running is not None
    assert running.state == "running"
    scene.proving.close()


def test_a_test_after_a_blame_gives_way_when_the_job_goes_on_without_it() -> None:
    ended = Plan(3, 1, "ended", incident="i9", culprit_node="n1", cause="crash")
    scene = Scene("sleep 600", test_after_blame=True)
    scene.look(orders(plan=ended))
    over = scene.look(orders(plan=Plan(4, 1, "running", incident="i9", culprit_node="n1")))
    assert over is not None
    assert over.state == "refused"


def test_every_gpu_is_tested_and_without_any_as_many_processes_as_ranks_run_here() -> None:
    there = (Gpu(0, "a", "H100", ""), Gpu(1, "b", "H100", ""), Gpu(2, "c", "H100", "", lost="gone"))
    scene = Scene()
    scene.look(orders(asked()), reading=GpuReading(True, gpus=there))
    assert (scene.errands[0].device, scene.errands[0].devices) == ("cuda", 2)
    scene.proving.close()
    scene = Scene()
    scene.look(orders(asked()), reading=GpuReading(False))
    assert (scene.errands[0].device, scene.errands[0].devices) == ("cpu", 1)
    scene.proving.close()
