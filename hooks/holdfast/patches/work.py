"""How much work a batch is, as it looks: for ranks to be compared by where the script says nothing.

A tensor's shape alone is read: it lies on the host, whatever device the numbers lie on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.recording.recorder import Recorder

MOST_LOOKED_AT = 16
"""Members of a batch; token ids come among the first."""

MOST_LOOKED_FOR = 10
"""Batches of one kind without any tensor: from then on none is looked for in them."""

Path = tuple[Any, ...]


class BatchWork:
    """Sizes of batches. Where in a batch the tensor lies is found once, and tried first after."""

    def __init__(self, torch: Any, recorder: Recorder) -> None:
        self._tensor = torch.Tensor
        self._recorder = recorder
        self._type: type[Any] | None = None
        self._path: Path | None = None
        self._fruitless = 0
        self._shape: tuple[int, ...] | None = None
        self._work = (0, 0.0)
        self._is_ids = False

    def look(self, batch: Any) -> None:
        """A batch was fetched. One whose size can't be told has none."""
        try:
            tensor = self._take(batch)
            if tensor is None:
                return
            shape = tensor.shape
            if shape != self._shape:
                self._shape, self._work = shape, work_of(shape)
                self._is_ids = _holds_ids(tensor)
        except (AttributeError, LookupError, RuntimeError, TypeError):
            self._type = None  # not as the one before: such as nested tensors, which have no shape
            return
        self._recorder.note_work(*self._work)
        if self._is_ids:
            self._recorder.ids_seen += self._work[0]

    def _take(self, batch: Any) -> Any:
        if type(batch) is not self._type:
            self._type, self._path, self._fruitless = type(batch), None, 0
        if self._path is None:
            if self._fruitless > MOST_LOOKED_FOR:
                return None
            self._fruitless += 1
            self._path = self._find(batch)
            if self._path is None:
                return None
        for key in self._path:
            batch = batch[key]
        return batch

    def _find(self, batch: Any) -> Path | None:
        """The way to the first tensor of token ids, else to the first tensor; None: it has none."""
        first: Path | None = None
        for path, member in _members(batch):
            if not isinstance(member, self._tensor):
                continue
            if _holds_ids(member):
                return path
            first = first or path
        return () if isinstance(batch, self._tensor) else first


def work_of(shape: tuple[int, ...]) -> tuple[int, float]:
    """Elements, and the sum over the rows of their elements squared."""
    elements = math.prod(shape)
    rows = shape[0] if shape else 1
    return elements, float(elements) * elements / rows if rows else 0.0


def _holds_ids(tensor: Any) -> bool:
    dtype = tensor.dtype
    return tensor.dim() >= 2 and not dtype.is_floating_point and not dtype.is_complex


def _members(batch: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Of a batch, and of what it holds itself: a pair of inputs and targets, say."""
    if hasattr(type(batch), "__missing__"):
        return  # to ask for what a later one lacks would put it there (defaultdict)
    if isinstance(batch, Mapping):
        pairs = list(batch.items())[:MOST_LOOKED_AT]
    elif isinstance(batch, (list, tuple)):
        pairs = list(enumerate(batch[:MOST_LOOKED_AT]))
    else:
        return
    for key, member in pairs:
        yield (*path, key), member
        if not path:
            yield from _members(member, (key,))
