"""A sealed slot as a source of state. Every read is checked: nothing of a slot is believed."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from holdfast.loading import LoadFailed, Sizes
from holdfast.own_state import decode
from holdfast.placement import Placement
from holdfast.registered import OwnState, SharedState, has_only_numbers
from holdfast.snapshot_file import HEADER_SIZE, Entry, SlotHeader, parse_layout, parse_state
from holdfast.snapshots.layout import view
from holdfast.snapshots.slot import Slot, is_whole


@dataclass(frozen=True)
class SnapshotSource:
    """One rank's snapshot. Methods raise LoadFailed for what is damaged or not finite."""

    slot: Slot
    header: SlotHeader
    entries: dict[str, Entry]
    state: dict[str, Any] = field(repr=False)

    path = ""

    @cached_property
    def _data(self) -> torch.Tensor:
        return self.slot.data(self.header.data_offset, self.header.data_size)

    def own(self, place: Placement) -> tuple[OwnState, bool]:
        """This rank's own state. The tensors are copies: the slot will be overwritten."""
        if (self.header.rank, self.header.world_size) != (place.rank, place.world_size):
            raise LoadFailed(
                f"it is rank {self.header.rank}'s of {self.header.world_size}, "
                f"and this is rank {place.rank} of {place.world_size}"
            )
        count = sum(not entry.is_shared for entry in self.entries.values())
        numbers = {f"own/{index}" for index in self.state["numbers"]}
        tensors = [self._read(f"own/{index}", f"own/{index}" in numbers) for index in range(count)]
        own: OwnState = decode(self.state["own"], [tensor.clone() for tensor in tensors])
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
            saved = self._read(key, is_number=True)
            if saved.shape != local.shape:
                raise LoadFailed(
                    f"{key}: this rank holds {list(local.shape)} of it here, "
                    f"and {list(saved.shape)} in the snapshot"
                )
            with torch.no_grad():
                local.copy_(saved)

    def _read(self, key: str, is_number: bool) -> torch.Tensor:
        entry = self.entries.get(key)
        if entry is None:
            raise LoadFailed(f"{key!r} is not in the snapshot")
        tensor = view(self._data, entry)
        if is_number and not has_only_numbers(tensor):
            raise LoadFailed(f"{key}: its numbers are not finite")
        return tensor


def read_snapshot(slot: Slot, job: str) -> SnapshotSource | None:
    """What is sealed in a slot, its data checked where the sidecar left a checksum; None: nothing
    whole of this job. The caller holds the slot's lock for reading."""
    header = slot.header()
    if header is None or header.sealed_step is None or header.job != job:
        return None
    if not is_whole(slot, header):
        return None
    layout = parse_layout(slot.bytes(HEADER_SIZE, header.layout_size), header.layout_crc)
    state = parse_state(slot.bytes(header.state_offset, header.state_size), header.state_crc)
    if layout is None or state is None or state.get("step") != header.sealed_step:
        return None
    if not all(_lies_inside(entry, header.data_size) for entry in layout):
        return None
    return SnapshotSource(slot, header, {entry.key: entry for entry in layout}, state)


def is_undamaged(source: SnapshotSource) -> bool:
    """Whether the data still has the checksum that the sidecar took of it; true without one."""
    if source.header.data_crc is None:
        return True
    data = source.slot.window(source.header.data_offset, source.header.data_size)
    return zlib.crc32(data) == source.header.data_crc


def _lies_inside(entry: Entry, data_size: int) -> bool:
    return entry.offset >= 0 and entry.size >= 0 and entry.offset + entry.size <= data_size
