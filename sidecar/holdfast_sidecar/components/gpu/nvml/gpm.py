"""How busy SMs, tensor cores, pipes and memory were, by GPM: Hopper and later, without privileges
on most drivers. A percentage between two samples; what it refuses is absent, never 0.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from holdfast_sidecar.components.gpu.nvml import calls
from holdfast_sidecar.components.gpu.nvml.calls import (
    GARBAGE,
    REFUSED_S,
    SUCCESS,
    code_of,
    raise_for,
)
from holdfast_sidecar.components.gpu.readings import Signal

METRICS: Mapping[Signal, int] = {
    Signal.SM_ACTIVE: 2,
    Signal.SM_OCCUPANCY: 3,
    Signal.TENSOR_ACTIVE: 5,
    Signal.DRAM_ACTIVE: 10,
    Signal.FP64_ACTIVE: 11,
    Signal.FP32_ACTIVE: 12,
    Signal.FP16_ACTIVE: 13,
}
"""NVML_GPM_METRIC_...; each in percent."""

APART_S = 0.1
"""Two samples closer than that tell nothing (nvml.h)."""
STALE_S = 10.0
"""An activity averaged over longer than this says little of now: the older sample is given up."""

PERCENT = 1e-2
OVERSHOOT = 1.1
"""Counter and clock are sampled one after the other, so that a busy unit may come out above 1."""


class _Metric(ctypes.Structure):
    _fields_ = (
        ("id", ctypes.c_uint),
        ("code", ctypes.c_int),
        ("value", ctypes.c_double),
        ("names", ctypes.c_char_p * 3),
    )


class _Question(ctypes.Structure):
    """nvmlGpmMetricsGet_t with room for what is asked only: nvidia-ml-py's is 19 kB."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("count", ctypes.c_uint),
        ("earlier", ctypes.c_void_p),
        ("later", ctypes.c_void_p),
        ("metrics", _Metric * len(METRICS)),
    )


_TOLD = struct.Struct("@Iid24x")
"""The same, unpacked at once: field by field ctypes takes five times as long."""

VERSION = 1


def _question() -> bytes:
    """For all metrics, without the samples."""
    question = _Question(VERSION, len(METRICS))
    for number, metric in enumerate(METRICS.values()):
        question.metrics[number].id = metric
    return bytes(question)


_BLANK = _question()


@dataclass
class Activity:
    """One GPU's activity between the last two samples."""

    nvml: Any
    handle: Any
    values: dict[Signal, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    _samples: list[Any] = field(default_factory=list)
    _sampled_s: float | None = None
    _due_s: float = float("-inf")

    def ask(self, now_s: float) -> None:
        """Take a sample and work out what happened since the one before."""
        if now_s < self._due_s:
            return
        if self._sampled_s is not None and now_s - self._sampled_s < APART_S:
            return
        try:
            self._sample(now_s)
        except self.nvml.NVMLError as error:
            self._refuse(code_of(self.nvml, error), now_s)
        except AttributeError:
            self._refuse(calls.UNKNOWN_HERE, now_s)

    def begin_again(self) -> None:
        """Nothing is known, and the samples are void."""
        self.values.clear()
        self.refused.clear()
        self._sampled_s = None
        self._due_s = float("-inf")

    def close(self) -> None:
        """Give the samples back."""
        for sample in self._samples:
            # Where the driver that gave it is gone, the sample is too.
            with suppress(self.nvml.NVMLError):
                self.nvml.nvmlGpmSampleFree(sample)
        self._samples.clear()
        self._sampled_s = None

    def _sample(self, now_s: float) -> None:
        if not self._samples:
            if not self.nvml.nvmlGpmQueryDeviceSupport(self.handle).isSupportedDevice:
                self._refuse(calls.NOT_SUPPORTED, now_s)
                return
            self._samples = [self.nvml.nvmlGpmSampleAlloc() for _ in range(2)]
        earlier, later = self._samples
        before_s, self._sampled_s = self._sampled_s, None
        self.nvml.nvmlGpmSampleGet(self.handle, later)
        self._samples = [later, earlier]
        self._sampled_s = now_s
        self.values.clear()
        if before_s is not None and now_s - before_s <= STALE_S:
            self._hear(self._between(earlier, later))

    def _between(self, earlier: Any, later: Any) -> _Question:
        question = _Question.from_buffer_copy(_BLANK)
        question.earlier = ctypes.cast(earlier, ctypes.c_void_p).value
        question.later = ctypes.cast(later, ctypes.c_void_p).value
        code = self.nvml._nvmlGetFunctionPointer("nvmlGpmMetricsGet")(ctypes.byref(question))
        if code != calls.SUCCESS:
            raise self.nvml.NVMLError(code)
        return question

    def _hear(self, answer: _Question) -> None:
        self.refused.clear()
        told = _TOLD.iter_unpack(bytes(answer.metrics))
        for signal, (metric, code, percent) in zip(METRICS, told, strict=True):
            raise_for(self.nvml, code)
            ratio = percent * PERCENT
            if code == calls.SUCCESS and 0.0 <= ratio <= OVERSHOOT:
                self.values[signal] = min(ratio, 1.0)
                continue
            why = calls.reason(self.nvml, code or calls.GARBAGE)
            self.refused[signal.value] = f"GPM metric {metric}: {why}"

    def _refuse(self, code: int, now_s: float) -> None:
        """For all of them. The older sample is too old by the time that it may work again."""
        self.values.clear()
        self._sampled_s = None
        why = f"GPM: {calls.reason(self.nvml, code)}"
        self.refused = {signal.value: why for signal in METRICS}
        if code in calls.SETTLED:
            self._due_s = now_s + REFUSED_S


# Many values of one GPU by one call: nvmlDeviceGetFieldValues, each with a return code of its own.
#
# The array that the driver fills in is made once and used again: filling a new one through
# nvidia-ml-py's own function costs several times what the call itself does.

ALL_LINKS = 0xFFFFFFFF
"""As scope: the sum over all NVLinks, where the driver keeps one."""

_ENTRY = struct.Struct("<IIqqIi8s")
"""nvmlFieldValue_t: field, scope, timestamp, latency, type of the value, return code, value."""
_SAID = struct.Struct("<24x16s")
"""The last three of it."""
_PARTS = struct.Struct("<Ii8s")
_FORMS = {
    0: struct.Struct("<d"),
    1: struct.Struct("<I"),
    2: struct.Struct("<Q"),
    3: struct.Struct("<Q"),
    4: struct.Struct("<q"),
    5: struct.Struct("<i"),
    6: struct.Struct("<H"),
}
"""By nvmlValueType_t."""
_NOT_AVAILABLE = {1: 0xFFFFFFFF, 2: (1 << 64) - 1, 3: (1 << 64) - 1}
"""How a driver says "no value" inside a value (NVML_VALUE_NOT_AVAILABLE)."""

Answer = tuple[int, float | None]
"""Return code and value; None with SUCCESS: the value was not believable."""


class FieldBatch:
    """One call that asks for these (field, scope) pairs."""

    def __init__(self, nvml: Any, entries: Sequence[tuple[int, int]]) -> None:
        self._nvml = nvml
        self._count = len(entries)
        asked = b"".join(
            _ENTRY.pack(field, scope, 0, 0, 0, 0, bytes(8)) for field, scope in entries
        )
        self._asked = asked
        self._said = [b""] * len(entries)
        self._answers: list[Answer] = [(GARBAGE, None)] * len(entries)
        self._buffer = ctypes.create_string_buffer(asked, len(asked))

    def ask(self, handle: Any) -> tuple[int, list[Answer]]:
        """The call's own return code, and when that is SUCCESS the answers in the order asked. One
        that is as it was the time before is the same object: most are, and need no second look."""
        function = self._nvml._nvmlGetFunctionPointer("nvmlDeviceGetFieldValues")
        # What the driver leaves alone must not look like the answer of the time before.
        self._buffer.raw = self._asked
        code = int(function(handle, ctypes.c_int32(self._count), self._buffer))
        if code != SUCCESS:
            return code, []
        return code, self._heard(self._buffer.raw)

    def _heard(self, raw: bytes) -> list[Answer]:
        said = [one for (one,) in _SAID.iter_unpack(raw)]
        if said != self._said:
            pairs = zip(said, self._said, self._answers, strict=True)
            self._answers = [
                answer if now == before else parse_answer(now) for now, before, answer in pairs
            ]
            self._said = said
        return self._answers


def parse_answer(said: bytes) -> Answer:
    """What the driver filled in of one entry: type, return code, value."""
    kind, code, value = _PARTS.unpack(said)
    return code, parse_value(kind, value) if code == SUCCESS else None


def parse_value(kind: int, raw: bytes) -> float | None:
    """One value by its type; None for a type that is not known, and for "not available"."""
    form = _FORMS.get(kind)
    if form is None:
        return None
    (value,) = form.unpack_from(raw)
    return None if value == _NOT_AVAILABLE.get(kind) else value
