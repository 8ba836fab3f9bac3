"""Many values of one GPU by one call: nvmlDeviceGetFieldValues, each with a return code of its own.

The array that the driver fills in is made once and used again: filling a new one through
nvidia-ml-py's own function costs several times what the call itself does.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

from holdfast_sidecar.nvml.codes import GARBAGE, SUCCESS

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
