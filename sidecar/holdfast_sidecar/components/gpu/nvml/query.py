"""Asks one GPU its signals: all fields in one call, each signal by the best way that answers.

What is refused for good is left alone for a while; what is refused for the moment is asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast_sidecar.components.gpu.nvml import calls
from holdfast_sidecar.components.gpu.nvml.calls import (
    NvmlCall,
    Told,
    code_of,
    raise_for,
    raise_when_void,
)
from holdfast_sidecar.components.gpu.nvml.child_io import SharedStatus
from holdfast_sidecar.components.gpu.nvml.gpm import Answer
from holdfast_sidecar.components.gpu.nvml.signals import (
    ROWS,
    LinkField,
    LinkFold,
    QueryPlan,
    SignalRow,
    SignalState,
    fold,
    name,
    planned,
)
from holdfast_sidecar.components.gpu.readings import Signal

PLANS = 8
"""Each rhythm has its own, and what is refused makes a few more."""


@dataclass
class Asking:
    """One GPU's signals. `values` and `refused` are what its last answers came to."""

    nvml: Any
    handle: Any
    links: int
    rows: Sequence[SignalRow] = ROWS
    values: dict[Signal, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    _standings: list[SignalState] = field(init=False)
    _plans: dict[tuple[int, ...], QueryPlan] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._standings = [SignalState(row) for row in self.rows]

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
        self._standings = [SignalState(row) for row in self.rows]
        self._plans.clear()

    def _plan(self, due: Sequence[SignalState]) -> QueryPlan:
        """The same for the same signals in the same ways: made once."""
        key = (*map(id, due), *(one.number for one in due))
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= PLANS:
                self._plans.clear()
            plan = self._plans[key] = planned(self.nvml, self.links, due)
        return plan

    def _carry_out(self, plan: QueryPlan, now_s: float) -> None:
        if plan.fields or plan.links:
            self._ask_fields(plan, now_s)
        for call, ones in plan.calls:
            code, told = ask_call(self.nvml, self.handle, call)
            for one in ones:
                self._hear(one, code or calls.NOT_SUPPORTED, told.get(one.row.signal), now_s)

    def _ask_fields(self, plan: QueryPlan, now_s: float) -> None:
        code, answers = self._ask_batch(plan)
        if code != calls.SUCCESS:
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
            if self._hear(one, code or calls.GARBAGE, told, now_s):
                one.answer = answer
        for one, links, places in plan.links:
            self._hear_links(one, links, answers[places], now_s)

    def _ask_batch(self, plan: QueryPlan) -> tuple[int, list[Answer]]:
        if plan.batch is None:
            return calls.SUCCESS, []
        try:
            code, answers = plan.batch.ask(self.handle)
        except self.nvml.NVMLError as error:
            return code_of(self.nvml, error), []
        raise_for(self.nvml, code)
        if code == calls.INVALID_ARGUMENT:
            raise_when_void(self.nvml, self.handle)
        return code, answers

    def _hear_links(
        self, one: SignalState, way: LinkField, answers: Sequence[Answer], now_s: float
    ) -> None:
        for code, _ in answers:
            raise_for(self.nvml, code)
        told = {link: value for link, (_, value) in enumerate(answers) if value is not None}
        if way.fold is LinkFold.SUM and told:
            one.counts.update(told)
            told = one.counts
        value = fold(way.fold, told.values())
        refusal = next((code for code, _ in answers if code), calls.NOT_SUPPORTED)
        self._hear(one, refusal, None if value is None else value * way.factor, now_s)

    def _hear(self, one: SignalState, refusal: int, value: float | None, now_s: float) -> bool:
        """A value, or else the code that says why there is none; whether it is believed."""
        signal = one.row.signal
        if value is not None and one.row.believes(value):
            if signal not in self.values:
                self.refused.pop(signal.value, None)
            self.values[signal] = value
            one.told(now_s)
            return True
        code = refusal if value is None else calls.GARBAGE
        one.refusals.append(f"{name(one.way)}: {calls.reason(self.nvml, code)}")
        self.values.pop(signal, None)
        self.refused[signal.value] = "; ".join(one.refusals)
        one.refused(code, now_s)
        return False


def ask_call(nvml: Any, handle: Any, call: NvmlCall) -> tuple[int, Told]:
    """Return code of one call, and what it told."""
    try:
        return calls.SUCCESS, call.ask(nvml, handle)
    except nvml.NVMLError as error:
        return code_of(nvml, error), {}
    except AttributeError:
        # An older nvidia-ml-py has neither the function nor its structures.
        return calls.UNKNOWN_HERE, {}


# nvidia-ml-py with a note on the board before every call: one that hangs is known by name.

HANDLE_BY_INDEX = "nvmlDeviceGetHandleByIndex"

POINTER = "_nvmlGetFunctionPointer"
"""Gives out the library's own functions, which are called past the module."""


class Announcing:
    """Stands in for the module: the same names, and each call is noted first."""

    def __init__(self, nvml: Any, board: SharedStatus) -> None:
        self._nvml = nvml
        self._board = board
        self._gpus: dict[int, tuple[Any, str]] = {}
        """By the handle's id; the handle is kept, so that its id stays its own."""
        self._functions: dict[str, Callable[..., Any]] = {}
        """Of the library itself, by name."""

    def __getattr__(self, name: str) -> Any:
        """Asked once for each name; from then on it is found here."""
        found = getattr(self._nvml, name)
        if name == POINTER:
            setattr(self, name, self._function)
            return self._function
        if name.startswith("nvml") and callable(found) and not isinstance(found, type):
            found = self._noted(name, found)
        setattr(self, name, found)
        return found

    def _function(self, name: str) -> Callable[..., Any]:
        """One of the library's own, looked up once. Raises as the module does."""
        function = self._functions.get(name)
        if function is None:
            found = getattr(self._nvml, POINTER)(name)
            function = self._functions[name] = self._noted(name, found)
        return function

    def _noted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        about_to, gpus = self._board.about_to, self._gpus
        notes: dict[int, str] = {}

        def noted(*arguments: Any, **named: Any) -> Any:
            about = id(arguments[0]) if arguments else 0
            note = notes.get(about)
            if note is None:
                note = name
                if about in gpus:
                    note = notes[about] = f"{name} of {gpus[about][1]}"
            about_to(note)
            answer = call(*arguments, **named)
            if name == HANDLE_BY_INDEX:
                gpus[id(answer)] = (answer, f"GPU {arguments[0]}")
            return answer

        return noted
