"""A copy that goes on beside the training: its end, who waits for it, and whether it is torn.

A few bytes of each tensor are kept as they were when its copy was begun. Writes through `.data` are
counted by nobody. One that comes while a tensor is copied is in what is copied last of it, so its
end is looked at, and its middle.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

PIECE_BYTES = 128
"""Of each of two places: next to nothing for the device, and few numbers stay as they are in a
write that is worth noticing."""


class Samples:
    """Taken in the current streams of the tensors' devices, in one call per kind of number."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._places: dict[torch.dtype, list[tuple[int, int, int]]] = {}
        """Which tensor, where in it, and how many numbers, in the order of the values."""
        pieces: dict[torch.dtype, list[torch.Tensor]] = {}
        for index, tensor in enumerate(tensors):
            for offset, place, count in _places(tensor):
                self._places.setdefault(tensor.dtype, []).append((index, place, count))
                pieces.setdefault(tensor.dtype, []).append(_piece(tensor, offset, count))
        self._values = {dtype: torch.cat(found) for dtype, found in pieces.items()}

    def fetch(self, stream: Any) -> None:
        """Have them copied into host memory by this stream, which is the current one."""
        for dtype, values in self._values.items():
            if values.is_cuda:
                values.record_stream(stream)
            self._values[dtype] = values.to("cpu", non_blocking=True)

    def differing(self, targets: Sequence[torch.Tensor]) -> list[int]:
        """Which of these, contiguous copies in host memory, are not of what was sampled."""
        found: dict[int, None] = {}
        for dtype, places in self._places.items():
            values = self._values[dtype].view(torch.uint8)
            pieces = [_piece(targets[index], place, count) for index, place, count in places]
            copied = torch.cat(pieces).view(torch.uint8)
            if not torch.equal(values, copied):
                sizes = [count * dtype.itemsize for _, _, count in places]
                parts = zip(places, values.split(sizes), copied.split(sizes), strict=True)
                found |= dict.fromkeys(
                    index for (index, *_), one, other in parts if not torch.equal(one, other)
                )
        return list(found)


def _places(tensor: torch.Tensor) -> Iterator[tuple[int, int, int]]:
    """Offset in memory, place among the numbers in their order, how many numbers."""
    numbers = tensor.numel()
    if numbers == 0:
        return
    if tensor.is_contiguous():
        count = max(1, PIECE_BYTES // tensor.element_size())
        if numbers <= 2 * count:
            yield 0, 0, numbers
        else:
            yield numbers // 2, numbers // 2, count
            yield numbers - count, numbers - count, count
        return
    shape, strides = tensor.shape, tensor.stride()
    for indexes in ([size // 2 for size in shape], [size - 1 for size in shape]):
        place = 0
        for index, size in zip(indexes, shape, strict=True):
            place = place * size + index
        yield sum(map(int.__mul__, indexes, strides)), place, 1


def _piece(tensor: torch.Tensor, offset: int, count: int) -> torch.Tensor:
    return tensor.as_strided((count,), (1,), tensor.storage_offset() + offset)


@dataclass(frozen=True)
class Copied:
    """Some of the tensors, with their places in the layout."""

    indexes: list[int]
    targets: list[torch.Tensor]
    tensors: list[torch.Tensor]

    @classmethod
    def of(
        cls, indexes: list[int], targets: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]
    ) -> Copied:
        """Those with these places."""
        return cls(indexes, [targets[i] for i in indexes], [tensors[i] for i in indexes])


class Aside:
    """What is copied beside the training, and how it was when that was begun."""

    def __init__(self, copied: Copied, samples: Samples) -> None:
        self._copied = copied
        self._samples = samples
        self._versions: list[int] | None = [tensor._version for tensor in copied.tensors]
        """As they were, until the training waits for the copy: then they may change."""
        self._changed: set[int] = set()

    @property
    def indexes(self) -> list[int]:
        """Places in the layout."""
        return self._copied.indexes

    def look(self) -> None:
        """A script may write into its weights between optimizer steps; torch counts such writes."""
        if self._versions is not None:
            now = [tensor._version for tensor in self._copied.tensors]
            pairs = zip(self.indexes, self._versions, now, strict=True)
            self._changed |= {index for index, before, after in pairs if before != after}
            self._versions = None

    def changed(self) -> set[int]:
        """What was written into before it was copied; asked when all is there. Writes through
        `.data`, by which weights are exchanged for an evaluation, say, torch does not count."""
        differing = self._samples.differing(self._copied.targets)
        return self._changed | {self.indexes[place] for place in differing}


@dataclass
class Part:
    """What is copied in one stream."""

    device: Any
    end: Any
    begin: Any = None
    """None: in the training's own stream."""
    aside: Aside | None = None
    waits: list[tuple[Any, Any]] = field(default_factory=list)
    """What was recorded around the waits of the training's streams for it."""
    waiting: set[Any] = field(default_factory=set)
    """Streams that wait for it."""

    def kept_ms(self) -> float:
        """Of the training's streams, the one that was kept longest; where that is not known yet,
        not longer than the copy took."""
        if self.begin is None:
            return 0.0
        known = [before.elapsed_time(after) for before, after in self.waits if after.query()]
        if len(known) < len(self.waits):
            known.append(self.begin.elapsed_time(self.end))
        return float(max(known, default=0.0))


class CopyUnderWay:
    """A copy whose end is told by one event per device and stream."""

    def __init__(
        self,
        cuda: Any,
        parts: list[Part],
        note_spoilt: Callable[[Sequence[int], Collection[int]], None],
    ) -> None:
        self._cuda = cuda
        self._parts = parts
        self._note_spoilt = note_spoilt
        self._is_spoilt = False

    def is_done(self) -> bool:
        """Asks each event; never waits."""
        return all(part.end.query() for part in self._parts)

    def wait(self) -> bool:
        """Wait for each event."""
        for part in self._parts:
            part.end.synchronize()
        self._look()
        self._compare()
        return not self._is_spoilt

    def kept_ns(self) -> int:
        """By the device's own clock."""
        return int(max((part.kept_ms() for part in self._parts), default=0.0) * 1e6)

    def hold_back(self) -> None:
        """Let the training's streams wait for the copy, without waiting here; each once."""
        self._look()
        for part in self._parts:
            stream = self._cuda.current_stream(part.device)
            if stream in part.waiting:
                continue
            part.waiting.add(stream)
            is_timed = part.begin is not None
            before = stream.record_event(self._cuda.Event(enable_timing=True)) if is_timed else None
            stream.wait_event(part.end)
            if is_timed:
                after = stream.record_event(self._cuda.Event(enable_timing=True))
                part.waits.append((before, after))

    def spoil(self) -> None:
        """What is copied may have changed meanwhile."""
        self._is_spoilt = True

    def _look(self) -> None:
        for part in self._parts:
            if part.aside is not None:
                part.aside.look()

    def _compare(self) -> None:
        asides = [part.aside for part in self._parts if part.aside is not None]
        for part in self._parts:
            part.aside = None
        if asides and not self._is_spoilt:
            changed = set().union(*(aside.changed() for aside in asides))
            self._is_spoilt = bool(changed)
            self._note_spoilt([index for aside in asides for index in aside.indexes], changed)
