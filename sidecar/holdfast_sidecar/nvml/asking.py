"""Asks one GPU its signals: all fields in one call, each signal by the best way that answers.

What is refused for good is left alone for a while; what is refused for the moment is asked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast_sidecar.nvml import codes
from holdfast_sidecar.nvml.calls import Call, Told
from holdfast_sidecar.nvml.fields import Answer
from holdfast_sidecar.nvml.plan import Plan, planned
from holdfast_sidecar.nvml.refusals import code_of, raise_for, raise_when_void
from holdfast_sidecar.nvml.signals import ROWS, Fold, LinkField, Row, fold, name
from holdfast_sidecar.nvml.standing import Standing
from holdfast_sidecar.readings.gpu import Signal

PLANS = 8
"""Each rhythm has its own, and what is refused makes a few more."""


@dataclass
class Asking:
    """One GPU's signals. `values` and `refused` are what its last answers came to."""

    nvml: Any
    handle: Any
    links: int
    rows: Sequence[Row] = ROWS
    values: dict[Signal, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    _standings: list[Standing] = field(init=False)
    _plans: dict[tuple[int, ...], Plan] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._standings = [Standing(row) for row in self.rows]

    def ask(self, now_s: float) -> None:
        """Ask what is due. GpuLostError and DriverGoneError pass through."""
        due = [standing for standing in self._standings if now_s >= standing.due_s]
        while due:
            before = [standing.number for standing in due]
            self._carry_out(self._plan(due), now_s)
            # A way that was refused for good is followed by the next one at once.
            due = [one for one, number in zip(due, before, strict=True) if one.number > number]

    def begin_again(self) -> None:
        """Everything is due, and asked in the best way: the GPU was away."""
        self.values.clear()
        self.refused.clear()
        self._standings = [Standing(row) for row in self.rows]
        self._plans.clear()

    def _plan(self, due: Sequence[Standing]) -> Plan:
        """The same for the same signals in the same ways: made once."""
        key = (*map(id, due), *(one.number for one in due))
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= PLANS:
                self._plans.clear()
            plan = self._plans[key] = planned(self.nvml, self.links, due)
        return plan

    def _carry_out(self, plan: Plan, now_s: float) -> None:
        if plan.fields or plan.links:
            self._ask_fields(plan, now_s)
        for call, ones in plan.calls:
            code, told = ask_call(self.nvml, self.handle, call)
            for one in ones:
                self._hear(one, code or codes.NOT_SUPPORTED, told.get(one.row.signal), now_s)

    def _ask_fields(self, plan: Plan, now_s: float) -> None:
        code, answers = self._ask_batch(plan)
        if code != codes.SUCCESS:
            for one in (*(told[0] for told in plan.fields), *(told[0] for told in plan.links)):
                self._hear(one, code, None, now_s)
            return
        for one, way, place in plan.fields:
            answer = answers[place]
            if answer is one.answer:
                one.told(now_s)
                continue
            code, value = answer
            raise_for(self.nvml, code)
            told = None if value is None else value * way.factor
            if self._hear(one, code or codes.GARBAGE, told, now_s):
                one.answer = answer
        for one, links, places in plan.links:
            self._hear_links(one, links, answers[places], now_s)

    def _ask_batch(self, plan: Plan) -> tuple[int, list[Answer]]:
        if plan.batch is None:
            return codes.SUCCESS, []
        try:
            code, answers = plan.batch.ask(self.handle)
        except self.nvml.NVMLError as error:
            return code_of(self.nvml, error), []
        raise_for(self.nvml, code)
        if code == codes.INVALID_ARGUMENT:
            raise_when_void(self.nvml, self.handle)
        return code, answers

    def _hear_links(
        self, one: Standing, way: LinkField, answers: Sequence[Answer], now_s: float
    ) -> None:
        for code, _ in answers:
            raise_for(self.nvml, code)
        told = {link: value for link, (_, value) in enumerate(answers) if value is not None}
        if way.fold is Fold.SUM and told:
            one.counts.update(told)
            told = one.counts
        value = fold(way.fold, told.values())
        refusal = next((code for code, _ in answers if code), codes.NOT_SUPPORTED)
        self._hear(one, refusal, None if value is None else value * way.factor, now_s)

    def _hear(self, one: Standing, refusal: int, value: float | None, now_s: float) -> bool:
        """A value, or else the code that says why there is none; whether it is believed."""
        signal = one.row.signal
        if value is not None and one.row.believes(value):
            if signal not in self.values:
                self.refused.pop(signal.value, None)
            self.values[signal] = value
            one.told(now_s)
            return True
        code = refusal if value is None else codes.GARBAGE
        one.refusals.append(f"{name(one.way)}: {codes.reason(self.nvml, code)}")
        self.values.pop(signal, None)
        self.refused[signal.value] = "; ".join(one.refusals)
        one.refused(code, now_s)
        return False


def ask_call(nvml: Any, handle: Any, call: Call) -> tuple[int, Told]:
    """Return code of one call, and what it told."""
    try:
        return codes.SUCCESS, call.ask(nvml, handle)
    except nvml.NVMLError as error:
        return code_of(nvml, error), {}
    except AttributeError:
        # An older nvidia-ml-py has neither the function nor its structures.
        return codes.UNKNOWN_HERE, {}
