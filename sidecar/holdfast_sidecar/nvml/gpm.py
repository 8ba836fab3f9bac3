"""How busy SMs, tensor cores, pipes and memory were, by GPM: Hopper and later, without privileges
on most drivers. A percentage between two samples; what it refuses is absent, never 0.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from holdfast_sidecar.nvml import codes
from holdfast_sidecar.nvml.refusals import REFUSED_S, code_of, raise_for
from holdfast_sidecar.readings.gpu import Signal

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
            self._refuse(codes.UNKNOWN_HERE, now_s)

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
                self._refuse(codes.NOT_SUPPORTED, now_s)
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
        if code != codes.SUCCESS:
            raise self.nvml.NVMLError(code)
        return question

    def _hear(self, answer: _Question) -> None:
        self.refused.clear()
        told = _TOLD.iter_unpack(bytes(answer.metrics))
        for signal, (metric, code, percent) in zip(METRICS, told, strict=True):
            raise_for(self.nvml, code)
            ratio = percent * PERCENT
            if code == codes.SUCCESS and 0.0 <= ratio <= OVERSHOOT:
                self.values[signal] = min(ratio, 1.0)
                continue
            why = codes.reason(self.nvml, code or codes.GARBAGE)
            self.refused[signal.value] = f"GPM metric {metric}: {why}"

    def _refuse(self, code: int, now_s: float) -> None:
        """For all of them. The older sample is too old by the time that it may work again."""
        self.values.clear()
        self._sampled_s = None
        why = f"GPM: {codes.reason(self.nvml, code)}"
        self.refused = {signal.value: why for signal in METRICS}
        if code in codes.SETTLED:
            self._due_s = now_s + REFUSED_S
