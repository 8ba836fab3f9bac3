"""Writes the parts of a node's ranks from their sealed slots, as the ranks would have written them.

The tensors are views of shared memory, so nothing is copied; torch's own writer makes the files.
Several threads take a slot each.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
)
from torch.distributed.checkpoint.planner import (
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)

from holdfast.checkpoint_files import FolderMark, account_file, claim_folder, own_file
from holdfast.own_file import write_own
from holdfast.registered import has_only_numbers
from holdfast.snapshot_file import Entry
from holdfast.storage import Folder, open_folder
from holdfast.torch_checkpoint import FolderWriter, torch_checkpoint
from holdfast_sidecar.checkpoints.worker_threads import WorkerThreads
from holdfast_sidecar.desk.questions import Part, WriteParts
from holdfast_sidecar.writer.hashed_folder import HashedFolder
from holdfast_sidecar.writer.index import Written, pack_written, written_file
from holdfast_sidecar.writer.lane import Tell
from holdfast_sidecar.writer.sealed_slot import SealedSlot

log = logging.getLogger(__name__)


def write_parts(asked: WriteParts, slots: Sequence[SealedSlot], tell: Tell) -> Part:
    """Write these slots, hash what was written and read it back. Raises OSError, NotOurs among
    them."""
    torch.set_num_threads(1)
    start_s = time.monotonic()
    order, folder = asked.order, open_folder(asked.order.path)
    job = str(slots[0].state["account"]["job"])
    claim_folder(folder, FolderMark(job, order.attempt, order.step, order.identifier))
    progress = _Progress(sum(s.checked_bytes + 2 * s.size_bytes for s in slots), tell)
    threads = WorkerThreads(progress.advance)
    hashed = [HashedFolder(folder, threads.advance) for _ in slots]
    try:
        threads.run(
            [
                partial(_make_part, own, slot, order.identifier, threads.advance)
                for own, slot in zip(hashed, slots, strict=True)
            ]
        )
    except OSError:
        for own in hashed:
            own.remove_written()
        raise
    facts = {name: fact for own in hashed for name, fact in own.facts.items()}
    return Part(facts, time.monotonic() - start_s)


class _Progress:
    """Bytes checked, written and read back, of all together."""

    def __init__(self, total: int, tell: Tell) -> None:
        self._total = total
        self._done = 0
        self._tell = tell

    def advance(self, size: int) -> None:
        self._done += size
        # Headers and indexes come on top: it never says more than there is.
        self._tell(min(self._done, self._total), self._total)


def _make_part(
    folder: HashedFolder, slot: SealedSlot, identifier: str, tell: Callable[[int], object]
) -> None:
    slot.check(tell)
    _write_part(folder, slot, identifier)
    folder.read_back()


def _write_part(folder: HashedFolder, slot: SealedSlot, identifier: str) -> None:
    rank = slot.header.rank
    tensors = {entry.key: _view(slot, entry) for entry in slot.entries}
    account = slot.state["account"] | {
        "identifier": identifier,
        "finite": _is_finite(slot, tensors),
    }
    # First, so that whatever is left of a torn part says whose it is.
    folder.write(account_file(rank), json.dumps(account).encode())
    own = [tensors[f"own/{n}"] for n in range(sum(not e.is_shared for e in slot.entries))]
    try:
        with folder.create(own_file(rank)) as stream:
            write_own(stream, slot.state["own"], own)
        written = _write_shared(folder, slot, tensors)
    except RuntimeError as error:
        # torch's own archive writer hides what the file system said.
        raise folder.trouble or OSError(str(error)) from error
    folder.write(written_file(rank), pack_written(written))


def _write_shared(
    folder: Folder, slot: SealedSlot, tensors: dict[str, torch.Tensor]
) -> list[Written]:
    entries = [entry for entry in slot.entries if entry.is_shared and entry.writes]
    if not entries:
        return []
    writer = FolderWriter(folder)
    plan = SavePlan([_item(entry, tensors[entry.key]) for entry in entries])
    # Where it stands in this list says which rank it is, and that is what files are named by.
    plan = writer.prepare_global_plan([SavePlan([])] * slot.header.rank + [plan])[-1]
    with torch_checkpoint(OSError):
        results = writer.write_data(plan, _Resolver(tensors)).value()
    by_key = {entry.key: entry for entry in entries}
    return [_written(by_key[result.index.fqn], result.storage_data) for result in results]


class _Resolver:
    """The part of a save planner that torch's writer asks: the data of an item."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        self._tensors = tensors

    def resolve_data(self, item: WriteItem) -> torch.Tensor:
        """The tensor that this item names."""
        return self._tensors[item.index.fqn]


def _item(entry: Entry, tensor: torch.Tensor) -> WriteItem:
    return WriteItem(
        index=MetadataIndex(entry.key, entry.starts),
        type=WriteItemType.SHARD,
        tensor_data=TensorWriteData(
            chunk=ChunkStorageMetadata(torch.Size(entry.starts), torch.Size(entry.shape)),
            properties=TensorProperties(dtype=tensor.dtype),
            size=torch.Size(entry.whole),
        ),
    )


def _written(entry: Entry, stored: Any) -> Written:
    return Written(
        key=entry.key,
        dtype=entry.dtype,
        whole=entry.whole,
        starts=entry.starts,
        shape=entry.shape,
        file=os.fspath(stored.relative_path),
        offset=stored.offset,
        length=stored.length,
    )


def _view(slot: SealedSlot, entry: Entry) -> torch.Tensor:
    """The entry's tensor as it lies in memory."""
    dtype = getattr(torch, entry.dtype)
    count = entry.size // dtype.itemsize
    if count == 0:
        return torch.empty(entry.shape, dtype=dtype)
    start = slot.header.data_offset + entry.offset
    flat = torch.frombuffer(slot.memory, dtype=dtype, count=count, offset=start)
    return flat.view(entry.shape)


def _is_finite(slot: SealedSlot, tensors: dict[str, torch.Tensor]) -> bool:
    """Whether every number of parameters and optimizers is one; buffers may hold infinities."""
    numbers = {f"own/{index}" for index in slot.state["numbers"]}
    checked = [e.key for e in slot.entries if (e.writes if e.is_shared else e.key in numbers)]
    return all(has_only_numbers(tensors[key]) for key in checked)
