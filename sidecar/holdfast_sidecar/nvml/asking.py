"""Asks one GPU its signals: all fields in one call, each signal by the best way that answers.

What is refused for good is left alone for a while; what is refused for the moment is asked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast_sidecar.nvml import codes
from holdfast_sidecar.nvml.calls import Call, Told
from holdfast_sidecar.nvml.fields import Answer, FieldBatch
from holdfast_sidecar.nvml.signals import ROWS, Field, LinkField, Row, fold, name
from holdfast_sidecar.readings.gpu import Signal

REFUSED_S = 60.0
"""A refusal changes with the driver, a reset, a MIG mode or a permission: that takes longer, and to
ask the some 20 signals that an older GPU refuses each second would cost as much as the others."""


class GpuLostError(Exception):
    """This GPU answers nothing any more, and why."""


class DriverGoneError(Exception):
    """The driver was unloaded or replaced, or every handle is void: begin again."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


def code_of(nvml: Any, error: Exception) -> int:
    """The return code behind what nvidia-ml-py raised. Raises as `raise_for` does."""
    code = int(getattr(error, "value", codes.FUNCTION_NOT_FOUND))
    raise_for(nvml, code)
    return code


def raise_for(nvml: Any, code: int) -> None:
    """GpuLostError or DriverGoneError for a code that means the whole GPU or the whole driver."""
    if code in codes.LOST:
        raise GpuLostError(codes.reason(nvml, code))
    if code in codes.DRIVER_GONE:
        raise DriverGoneError(code, codes.reason(nvml, code))


def ask_call(nvml: Any, handle: Any, call: Call) -> tuple[int, Told]:
    """Return code of one call, and what it told."""
    try:
        return codes.SUCCESS, call.ask(nvml, handle)
    except nvml.NVMLError as error:
        return code_of(nvml, error), {}
    except AttributeError:
        # An older nvidia-ml-py has neither the function nor its structures.
        return codes.UNKNOWN_HERE, {}


@dataclass
class Standing:
    """Where one signal stands with one GPU."""

    row: Row
    way: int = 0
    due_s: float = float("-inf")
    refusals: list[str] = field(default_factory=list)
    counts: dict[int, float] = field(default_factory=dict)
    """By link, what it counted last: a link that falls silent must not make the sum fall back."""


@dataclass(frozen=True)
class Plan:
    """What to ask together: the standings of a moment, and the one batch for their fields."""

    standings: tuple[Standing, ...]
    batch: FieldBatch | None
    fields: tuple[tuple[Standing, slice], ...]
    calls: tuple[tuple[Call, tuple[Standing, ...]], ...]


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
            plan = self._plan(due)
            before = [standing.way for standing in due]
            self._carry_out(plan, now_s)
            # A way that was refused for good is followed by the next one at once.
            due = [one for one, way in zip(due, before, strict=True) if one.way > way]

    def begin_again(self) -> None:
        """Everything is due, and asked in the best way: the GPU was away."""
        self.values.clear()
        self.refused.clear()
        self._standings = [Standing(row) for row in self.rows]
        self._plans.clear()

    def _plan(self, due: Sequence[Standing]) -> Plan:
        """The same for the same signals in the same ways: made once."""
        key = tuple(index for one in due for index in (id(one), one.way))
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) > 8:
                self._plans.clear()
            plan = self._plans[key] = self._made(due)
        return plan

    def _made(self, due: Sequence[Standing]) -> Plan:
        entries: list[tuple[int, int]] = []
        fields: list[tuple[Standing, slice]] = []
        calls: dict[Call, list[Standing]] = {}
        for one in due:
            way = one.row.ways[one.way]
            if isinstance(way, Call):
                calls.setdefault(way, []).append(one)
                continue
            begin = len(entries)
            entries += entries_of(way, self.links)
            fields.append((one, slice(begin, len(entries))))
        return Plan(
            standings=tuple(due),
            batch=FieldBatch(self.nvml, entries) if entries else None,
            fields=tuple(fields),
            calls=tuple((call, tuple(ones)) for call, ones in calls.items()),
        )

    def _carry_out(self, plan: Plan, now_s: float) -> None:
        if plan.batch is not None or plan.fields:
            self._hear_fields(plan, now_s)
        for call, ones in plan.calls:
            code, told = ask_call(self.nvml, self.handle, call)
            for one in ones:
                value = told.get(one.row.signal)
                silence = code if code != codes.SUCCESS else codes.NOT_SUPPORTED
                self._hear(one, silence, value, now_s)

    def _hear_fields(self, plan: Plan, now_s: float) -> None:
        code, answers = self._ask_batch(plan.batch)
        for one, where in plan.fields:
            way = one.row.ways[one.way]
            if code != codes.SUCCESS:
                self._hear(one, code, None, now_s)
            elif isinstance(way, LinkField):
                self._hear_links(one, way, answers[where], now_s)
            elif isinstance(way, Field):
                ((own_code, value),) = answers[where]
                raise_for(self.nvml, own_code)
                told = None if value is None else value * way.factor
                self._hear(one, own_code or codes.GARBAGE, told, now_s)

    def _ask_batch(self, batch: FieldBatch | None) -> tuple[int, list[Answer]]:
        if batch is None:
            return codes.SUCCESS, []
        try:
            code, answers = batch.ask(self.handle)
        except self.nvml.NVMLError as error:
            return code_of(self.nvml, error), []
        raise_for(self.nvml, code)
        if code == codes.INVALID_ARGUMENT and not is_valid(self.nvml, self.handle):
            raise DriverGoneError(code, "the handles of the GPUs are void")
        return code, answers

    def _hear_links(
        self, one: Standing, way: LinkField, answers: Sequence[Answer], now_s: float
    ) -> None:
        for code, _ in answers:
            raise_for(self.nvml, code)
        told = {link: value for link, (_, value) in enumerate(answers) if value is not None}
        if way.fold is way.fold.SUM:
            one.counts.update(told)
            told = one.counts if told else {}
        value = fold(way.fold, told.values())
        silence = next((code for code, _ in answers if code), codes.NOT_SUPPORTED)
        self._hear(one, silence, None if value is None else value * way.factor, now_s)

    def _hear(self, one: Standing, silence: int, value: float | None, now_s: float) -> None:
        """A value, or else the code that says why there is none."""
        signal = one.row.signal
        if value is not None and one.row.believes(value):
            self.values[signal] = value
            self.refused.pop(signal.value, None)
            one.refusals.clear()
            one.due_s = now_s + one.row.every_s
            return
        code = silence if value is None else codes.GARBAGE
        self.values.pop(signal, None)
        one.refusals.append(f"{name(one.row.ways[one.way])}: {codes.reason(self.nvml, code)}")
        self.refused[signal.value] = "; ".join(one.refusals)
        if code not in codes.SETTLED:
            one.refusals.clear()
            one.due_s = now_s + min(one.row.every_s, REFUSED_S)
        elif one.way + 1 < len(one.row.ways):
            one.way += 1
        else:
            one.way = 0
            one.refusals = []
            one.due_s = now_s + REFUSED_S


def entries_of(way: Field | LinkField, links: int) -> Iterable[tuple[int, int]]:
    """What to put into a batch for it."""
    if isinstance(way, LinkField):
        return [(way.id, link) for link in range(links)]
    return [(way.id, way.scope)]


def is_valid(nvml: Any, handle: Any) -> bool:
    """Whether the driver still knows the handle."""
    try:
        nvml.nvmlDeviceGetUUID(handle)
    except nvml.NVMLError as error:
        return code_of(nvml, error) != codes.INVALID_ARGUMENT
    return True
