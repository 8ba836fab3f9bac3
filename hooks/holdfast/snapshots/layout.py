"""Where each tensor of a rank lies in its slots, and which rank writes it into a checkpoint.

Worked out by each rank alone: every rank comes to the same answer from what all of them hold.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from holdfast.contract.checkpoint_files import PromisedFile, share_out
from holdfast.contract.snapshot_file import TensorEntry, align, offsets, pack_layout
from holdfast.recording.placement import Placement
from holdfast.state.registered import SharedState

STATE_FACTOR = 2
STATE_ROOM = 64 * 1024
"""What is no tensor (schedulers, a loader's place) grows a little during training, and outgrowing
the slot costs new slots: twice what it is at first, and room for a loader that just began."""

DATA_ROOM = 256 * 1024
"""Likewise for small tensors that appear later: generators of NumPy and of GPUs once they are used,
a loader's arrays."""

_OWN = "own/"


class CannotLayOut(TypeError):
    """A tensor that can't lie in a slot; says which and why."""


@dataclass(frozen=True)
class Source:
    """One live tensor. `tensor` is what this rank holds, `origin` what it is a shard of, if any."""

    key: str
    tensor: torch.Tensor
    origin: Any = None


@dataclass(frozen=True)
class SlotLayout:
    """A plan of a slot. Two layouts with the same text are the same."""

    entries: tuple[TensorEntry, ...]
    text: bytes
    crc: int
    state_offset: int
    state_capacity: int
    data_offset: int
    data_size: int
    file_size: int
    """What it needs; a slot is asked for with DATA_ROOM besides."""
    shapes: tuple[tuple[str, torch.dtype, torch.Size], ...] = field(repr=False)

    @property
    def wanted_size(self) -> int:
        """How large a slot to ask for."""
        return self.file_size + DATA_ROOM

    def fits(self, sources: Sequence[Source], state_size: int) -> bool:
        """Whether these tensors and so much state can still be laid out this way."""
        return state_size <= self.state_capacity and self.shapes == _shapes(sources)


def sources(shared: SharedState, own: Sequence[torch.Tensor]) -> list[Source]:
    """A rank's tensors in the order of the layout; raises CannotLayOut."""
    found = [Source(key, *_local(key, value)) for key, value in shared.items()]
    for index, value in enumerate(own):
        found.append(Source(f"{_OWN}{index}", *_local(f"{_OWN}{index}", value)))
    return found


def plan(found: Sequence[Source], state_size: int, place: Placement) -> SlotLayout:
    """Lay these tensors out, with room for a state that grows."""
    writers = _writers(found, place)
    entries = []
    end = 0
    for source in found:
        size = source.tensor.numel() * source.tensor.element_size()
        whole, starts = _whereabouts(source)
        entries.append(
            TensorEntry(
                key=source.key,
                dtype=str(source.tensor.dtype).removeprefix("torch."),
                shape=tuple(source.tensor.shape),
                offset=end,
                size=size,
                is_shared=not source.key.startswith(_OWN),
                whole=whole,
                starts=starts,
                writes=writers.get(source.key, True),
            )
        )
        end = align(end + size)
    text = pack_layout(entries)
    state_capacity = align(STATE_FACTOR * state_size + STATE_ROOM)
    state_offset, data_offset, file_size = offsets(len(text), state_capacity, end)
    return SlotLayout(
        tuple(entries),
        text,
        zlib.crc32(text),
        state_offset,
        state_capacity,
        data_offset,
        end,
        file_size,
        _shapes(found),
    )


def view(data: torch.Tensor, entry: TensorEntry) -> torch.Tensor:
    """An entry's tensor in the bytes of the data zone."""
    flat = data[entry.offset : entry.offset + entry.size]
    return flat.view(getattr(torch, entry.dtype)).view(entry.shape)


def _local(key: str, value: Any) -> tuple[torch.Tensor, Any]:
    if isinstance(value, DTensor):
        if any(placement.is_partial() for placement in value.placements):
            raise CannotLayOut(f"{key} is the part of a sum, which no checkpoint can hold")
        return value.to_local().detach(), value
    tensor = value.detach()
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        raise CannotLayOut(f"{key} is a sparse, quantized or meta tensor")
    return tensor, None


def _shapes(found: Sequence[Source]) -> tuple[tuple[str, torch.dtype, torch.Size], ...]:
    return tuple((source.key, source.tensor.dtype, source.tensor.shape) for source in found)


def _whereabouts(source: Source) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shape = tuple(source.tensor.shape)
    if source.origin is None:
        return shape, (0,) * len(shape)
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    origin = source.origin
    local, starts = compute_local_shape_and_global_offset(
        origin.shape, origin.device_mesh, origin.placements
    )
    if tuple(local) != shape:
        raise CannotLayOut(f"{source.key} holds {shape} where torch says {tuple(local)}")
    return tuple(origin.shape), tuple(starts)


def _writers(found: Sequence[Source], place: Placement) -> dict[str, bool]:
    """Whether this rank writes each shared tensor. Ranks that hold the same one deal it out.

    DTensors over the replicating dimensions of their mesh, anything else over all ranks: it is
    shared only if DDP keeps it the same on every one.
    """
    groups: dict[tuple[Any, ...], list[Source]] = {}
    for source in found:
        if not source.key.startswith(_OWN):
            groups.setdefault(_replicas(source, place), []).append(source)
    writes: dict[str, bool] = {}
    for (part, parts, *_), members in groups.items():
        sizes = [
            PromisedFile(source.key, _whole_bytes(source), "")
            for source in members
            if source.tensor.numel() or source.origin is None
        ]
        mine = {file.name for file in share_out(sizes, part, parts)}
        writes |= {source.key: source.key in mine for source in members}
    return writes


def _replicas(source: Source, place: Placement) -> tuple[Any, ...]:
    """Which of how many replicas this rank holds, and among whom."""
    if source.origin is None:
        return place.rank, place.world_size, "all"
    mesh = source.origin.device_mesh
    coordinate = mesh.get_coordinate() or [0] * mesh.ndim
    part, parts, replicating = 0, 1, []
    for dimension, placement in enumerate(source.origin.placements):
        if placement.is_replicate():
            part = part * mesh.size(dimension) + coordinate[dimension]
            parts *= mesh.size(dimension)
            replicating.append(dimension)
    return part, parts, tuple(mesh.mesh.flatten().tolist()), tuple(replicating)


def _whole_bytes(source: Source) -> int:
    """The same on every rank, also where shards are uneven."""
    whole = source.tensor if source.origin is None else source.origin
    return int(whole.numel() * source.tensor.element_size())
