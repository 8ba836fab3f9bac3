from __future__ import annotations

import dataclasses

from holdfast_sidecar.components.gpu.readings import Gpu, GpuReading, Signal
from holdfast_sidecar.components.health_check.component import NodeGate
from holdfast_sidecar.components.machine import MachineReading
from holdfast_sidecar.config.settings import GateSettings, Settings, SidecarSettings
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.findings import Kind, Moment
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.records.reports import Exertion, NodeReport
from holdfast_sidecar.store.orders import Orders
from holdfast_sidecar.store.protocol import Lease, Section, View

ENDED = Plan(3, 1, "ended", incident="i9", culprit_node="n1", cause="crash")


def read(at_s: float, **more: object) -> MachineReading:
    gpu = Gpu(0, "GPU-0", "H100", "", {Signal.BUSY: 0.5})
    return MachineReading(gpu=GpuReading(True, gpus=(gpu,), read_at_s=at_s, **more))  # type: ignore[arg-type]


NO_GPU = MachineReading(gpu=GpuReading(False))


def gate(**settings: object) -> NodeGate:
    return NodeGate("n1", Settings(gate=GateSettings(**settings)))  # type: ignore[arg-type]


def after(
    one: NodeGate,
    machine: MachineReading,
    now_s: float,
    plan: Plan = ENDED,
    exertion: Exertion | None = None,
) -> str:
    one.look(machine, (), exertion, Orders(plan=plan), Moment(now_s, 1000.0, "n1", 0.0))
    assert one.verdict is not None
    return one.verdict.after


def test_after_a_blame_a_verdict_counts_once_its_readings_are_of_later() -> None:
    one = gate()
    assert after(one, read(9.0), 10.0) == ""
    assert after(one, read(9.0), 10.5) == ""
    assert after(one, read(10.2), 11.0) == "i9"
    running = dataclasses.replace(ENDED, state="running", attempt=4)
    assert after(one, read(12.0), 12.0, running) == ""


def test_of_another_node_s_blame_it_says_nothing() -> None:
    assert after(gate(), read(99.0), 10.0, dataclasses.replace(ENDED, culprit_node="n2")) == ""


def test_without_a_gpu_nothing_has_to_be_read_again() -> None:
    assert after(gate(), NO_GPU, 10.0) == "i9"


def test_a_driver_that_does_not_answer_is_not_waited_for() -> None:
    assert after(gate(), read(1.0, stale_since_s=2.0), 10.0) == "i9"


def test_where_a_test_is_wished_the_verdict_comes_after_it() -> None:
    one = gate(test_after_blame=True)
    assert after(one, NO_GPU, 10.0) == ""
    assert after(one, NO_GPU, 10.0, exertion=Exertion("i8", "done")) == ""
    assert after(one, NO_GPU, 10.0, exertion=Exertion("i9", "running")) == ""
    assert after(one, NO_GPU, 10.0, exertion=Exertion("i9", "failed", "no torch")) == "i9"
    assert after(one, NO_GPU, 10.0, exertion=Exertion("i9", "done")) == "i9"


def test_what_it_finds_is_told_and_whether_anything_is_done_about_it() -> None:
    moment = Moment(10.0, 1000.0, "n1", 0.0)
    for general, own, tells in (
        ("act", "", False),
        ("act", "observe", True),
        ("suggest", "", True),
    ):
        settings = Settings(
            sidecar=SidecarSettings(mode=general), gate=GateSettings(mode=own, expected_gpus=2)
        )
        one = NodeGate("n1", settings)
        (finding,) = one.look(NO_GPU, (), None, Orders(), moment)
        assert finding.kind is Kind.NODE_UNFIT
        assert finding.evidence[0] == "gpus: 0 of 2 are there"
        assert (len(finding.evidence) > 1) == tells


def report_of(node: str, flops: float, device: str = "H100", devices: int = 8) -> str:
    figures = {"matmul_flops_per_s": flops}
    exertion = Exertion("r", "done", figures=figures, device=device, devices=devices)
    return encode(NodeReport(node, "i", 1, 1, 1, 1, True, exertion=exertion))


def test_a_gpu_node_far_behind_the_others_is_unfit_and_a_cpu_node_is_not() -> None:
    view = View(
        Lease(1, ""), "s", {Section.NODES: {n: report_of(n, 100.0) for n in ("n2", "n3", "n4")}}
    )
    moment = Moment(10.0, 1000.0, "n1", 0.0)
    figures = {"matmul_flops_per_s": 40.0}
    for device, devices, state in (("H100", 8, "unfit"), ("H100", 4, "fit"), ("cpu", 8, "fit")):
        one = gate()
        exertion = Exertion("r", "done", figures=figures, device=device, devices=devices)
        one.look(NO_GPU, (), exertion, Orders(view=view), moment)
        assert one.verdict is not None
        assert one.verdict.state == state
        if state == "unfit":
            assert one.verdict.reasons == ["test: matmul: 40% of the median of the other nodes"]
