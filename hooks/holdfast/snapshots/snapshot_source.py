"""A sealed slot as a source of state. Every read is checked: nothing of a slot is believed."""

from __future__ import annotations

import ctypes
import zlib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from holdfast.contract.snapshot_file import (
    HEADER_SIZE,
    SlotHeader,
    TensorEntry,
    parse_layout,
    parse_state,
)
from holdfast.recording.placement import Placement
from holdfast.snapshots.slot import Slot, is_whole
from holdfast.state.loading import LoadFailed, Sizes
from holdfast.state.own_state import decode
from holdfast.state.registered import OwnState, SharedState, has_only_numbers

_PIECE = 1 << 20
"""Read in pieces for its checksum: small enough to be still in the core's cache."""


@dataclass(frozen=True)
class SnapshotSource:
    """One rank's snapshot. Methods raise LoadFailed for what is damaged or not finite."""

    slot: Slot
    header: SlotHeader
    entries: dict[str, TensorEntry]
    state: dict[str, Any] = field(repr=False)

    path = ""

    def own(self, place: Placement) -> tuple[OwnState, bool]:
        """This rank's own state. Its tensors are copies: the slot will be overwritten."""
        if (self.header.rank, self.header.world_size) != (place.rank, place.world_size):
            raise LoadFailed(
                f"it is rank {self.header.rank}'s of {self.header.world_size}, "
                f"and this is rank {place.rank} of {place.world_size}"
            )
        count = sum(not entry.is_shared for entry in self.entries.values())
        numbers = {f"own/{index}" for index in self.state["numbers"]}
        tensors = [self._own(f"own/{index}", f"own/{index}" in numbers) for index in range(count)]
        own: OwnState = decode(self.state["own"], tensors)
        return own, True

    def sizes(self) -> Sizes:
        """What the layout lists."""
        return {
            entry.key: (torch.Size(entry.whole), getattr(torch, entry.dtype))
            for entry in self.entries.values()
            if entry.is_shared
        }

    def fill(self, shared: SharedState) -> None:
        """Copy into these tensors; into DTensors, this rank's shard."""
        for key, target in shared.items():
            local = target.to_local() if isinstance(target, DTensor) else target
            entry = self._entry(key)
            if entry.shape != tuple(local.shape):
                raise LoadFailed(
                    f"{key}: this rank holds {list(local.shape)} of it here, "
                    f"and {list(entry.shape)} in the snapshot"
                )
            if _can_be_read_into(local, entry):
                self._read(entry, local, is_number=True)
                continue
            # Pinned, so that a GPU fetches it by itself.
            room = torch.empty(entry.shape, dtype=_dtype(entry), pin_memory=local.is_cuda)
            self._read(entry, room, is_number=True)
            with torch.no_grad():
                local.copy_(room)

    def _own(self, key: str, is_number: bool) -> torch.Tensor:
        entry = self._entry(key)
        tensor = torch.empty(entry.shape, dtype=_dtype(entry))
        self._read(entry, tensor, is_number)
        return tensor

    def _entry(self, key: str) -> TensorEntry:
        entry = self.entries.get(key)
        if entry is None:
            raise LoadFailed(f"{key!r} is not in the snapshot")
        return entry

    def _read(self, entry: TensorEntry, tensor: torch.Tensor, is_number: bool) -> None:
        """Into a tensor whose bytes lie one after another."""
        size = tensor.numel() * tensor.element_size()
        if size != entry.size:
            raise LoadFailed(f"{entry.key}: {entry.size} bytes are no {list(entry.shape)}")
        if size:
            # Not through NumPy, which knows fewer types of numbers.
            room = (ctypes.c_char * size).from_address(tensor.data_ptr())
            self.slot.read_into(self.header.data_offset + entry.offset, memoryview(room).cast("B"))
        if is_number and not has_only_numbers(tensor):
            raise LoadFailed(f"{entry.key}: its numbers are not finite")


def read_snapshot(slot: Slot, job: str) -> SnapshotSource | None:
    """What is sealed in a slot, its data checked where the sidecar left a checksum; None: nothing
    whole of this job. The caller holds the slot's lock for reading."""
    header = slot.header()
    if header is None or header.sealed_step is None or header.job != job:
        return None
    if not is_whole(slot, header):
        return None
    layout = _parse_layout(slot.bytes(HEADER_SIZE, header.layout_size), header.layout_crc)
    state = parse_state(slot.bytes(header.state_offset, header.state_size), header.state_crc)
    if layout is None or state is None or state.get("step") != header.sealed_step:
        return None
    if not all(_lies_inside(entry, header.data_size) for entry in layout):
        return None
    return SnapshotSource(slot, header, {entry.key: entry for entry in layout}, state)


@lru_cache(maxsize=4)
def _parse_layout(text: bytes, crc: int) -> list[TensorEntry] | None:
    """A rank's slots mostly have one layout."""
    return parse_layout(text, crc)


def is_undamaged(source: SnapshotSource) -> bool:
    """Whether the data still has the checksum that the sidecar took of it; true without one."""
    if source.header.data_crc is None:
        return True
    crc, start = 0, source.header.data_offset
    end = start + source.header.data_size
    buffer = memoryview(bytearray(min(_PIECE, source.header.data_size)))
    for offset in range(start, end, _PIECE):
        room = buffer[: end - offset]
        source.slot.read_into(offset, room)
        crc = zlib.crc32(room, crc)
    return crc == source.header.data_crc


def _lies_inside(entry: TensorEntry, data_size: int) -> bool:
    return entry.offset >= 0 and entry.size >= 0 and entry.offset + entry.size <= data_size


def _dtype(entry: TensorEntry) -> torch.dtype:
    dtype = getattr(torch, entry.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise LoadFailed(f"{entry.key}: no type of numbers is called {entry.dtype}")
    return dtype


def _can_be_read_into(tensor: torch.Tensor, entry: TensorEntry) -> bool:
    """Whether the tensor's memory is as the snapshot's bytes are, and here."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.is_cpu
        and tensor.is_contiguous()
        and tensor.dtype == _dtype(entry)
        and not (tensor.is_conj() or tensor.is_neg())
    )
