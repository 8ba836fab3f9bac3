"""This node's gate from tick to tick: what it remembers, and the verdict that the others read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from holdfast_sidecar.components.gpu.links import LinkMemory, remember_links
from holdfast_sidecar.components.gpu.readings import GpuReading
from holdfast_sidecar.components.health_check.checks import (
    CHECKS,
    Fitness,
    Subject,
    far_behind,
    find_gate_troubles,
    judge_fitness,
)
from holdfast_sidecar.components.host.clock import ClockWatch
from holdfast_sidecar.components.machine import MachineReading
from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.findings import Finding, Moment
from holdfast_sidecar.records.metric import NODE, Labels, Sample, gauge
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.records.reports import Exertion, GateVerdict, NodeReport
from holdfast_sidecar.store.orders import Orders
from holdfast_sidecar.store.protocol import Section


@dataclass
class NodeGate:
    """Looked at once per tick."""

    node: str
    settings: Settings
    fitness: Fitness = field(default_factory=lambda: Fitness(is_known=False))
    verdict: GateVerdict | None = None
    _links: LinkMemory = field(default_factory=LinkMemory)
    _remembered: GpuReading | None = None
    _clocks: ClockWatch = field(init=False)
    _incident: str = ""
    _incident_since_s: float = 0.0

    def __post_init__(self) -> None:
        self._clocks = ClockWatch(self.node, self.settings.gate.clock_off_s)

    def look(
        self,
        machine: MachineReading,
        findings: Sequence[Finding],
        exertion: Exertion | None,
        orders: Orders,
        moment: Moment,
    ) -> list[Finding]:
        """Judge anew; answers what there is to tell."""
        is_new = machine.gpu is not None and machine.gpu is not self._remembered
        if is_new and machine.gpu is not None and machine.gpu.stale_since_s is None:
            self._remembered = machine.gpu
            self._links = remember_links(self._links, machine.gpu.gpus)
        gate = self.settings.gate
        behind = self._far_behind(exertion, orders)
        reports = {} if orders.view is None else orders.view.section(Section.NODES)
        off_s = self._clocks.look(reports, moment.now_s, moment.now_unix_s)
        subject = Subject(machine, gate, findings, self._links, exertion, behind, off_s)
        self.fitness = judge_fitness(subject)
        after = self._after(machine.gpu, exertion, orders.plan, moment.now_s)
        self.verdict = self.fitness.verdict(moment.now_unix_s, after)
        acts = (gate.mode or self.settings.sidecar.mode) == "act"
        return list(find_gate_troubles(self.fitness, acts, moment))

    def _far_behind(self, exertion: Exertion | None, orders: Orders) -> list[str]:
        if exertion is None or exertion.state != "done" or orders.view is None:
            return []
        reports = orders.view.section(Section.NODES)
        found = (decode(NodeReport, text) for node, text in reports.items() if node != self.node)
        others = [one.exertion for one in found if one is not None and one.exertion is not None]
        return list(far_behind(exertion, others))

    def _after(
        self, reading: GpuReading | None, exertion: Exertion | None, plan: Plan | None, now_s: float
    ) -> str:
        """The incident that this verdict comes after: the readings are of later than its end, and
        the test that it calls for is over."""
        blamed_for = blamed(plan, self.node)
        if blamed_for != self._incident:
            self._incident, self._incident_since_s = blamed_for, now_s
        if not blamed_for:
            return ""
        if reading is not None and reading.is_present and not self._is_since(reading):
            return ""
        is_tested = exertion is not None and exertion.is_over and exertion.asked_by == blamed_for
        return blamed_for if is_tested or not self.settings.gate.test_after_blame else ""

    def _is_since(self, reading: GpuReading) -> bool:
        # One that does not answer will not be any newer: the leader need not wait for it.
        return reading.stale_since_s is not None or reading.read_at_s >= self._incident_since_s


def blamed(plan: Plan | None, node: str) -> str:
    """The incident for which this node is blamed, once its attempt has ended; empty: none."""
    is_blamed = plan is not None and plan.state == "ended" and plan.culprit_node == node
    return plan.incident if plan is not None and is_blamed else ""


# Metrics of the health gate; `gate_samples.py` fills them in.

GATE = (
    gauge("node_fit", "", NODE, "1: the health gate finds this node fit for an attempt."),
    gauge(
        "gate_check_passed",
        "",
        (*NODE, "check"),
        "1: this check of the gate was passed; absent while it can't be made.",
    ),
)


# What is told about the health gate.


def draw_gate(fitness: Fitness, told: Labels) -> Iterator[Sample]:
    """The verdict, and each check behind it."""
    yield from told("node_fit", not fitness.troubles if fitness.is_known else None)
    for check in CHECKS:
        yield from told("gate_check_passed", fitness.passes(check), check=check)
