"""Writes the parts of a node's ranks from their sealed slots, as the ranks would have written them.

The tensors are views of shared memory, so nothing is copied; torch's own writer makes the files.
Several threads take a slot each.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, BinaryIO, cast

import torch
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.storage import WriteResult

from holdfast.contract.checkpoint_files import (
    TORCH_METADATA,
    FolderMark,
    account_file,
    claim_folder,
    own_file,
)
from holdfast.contract.permit import Permit
from holdfast.contract.snapshot_file import TensorEntry
from holdfast.contract.storage import Folder, open_folder, written_here
from holdfast.state.own_file import write_own
from holdfast.state.registered import has_only_numbers
from holdfast.state.torch_checkpoint import FolderWriter, torch_checkpoint
from holdfast_sidecar.checkpoint.manifest import WorkerThreads, hash_file
from holdfast_sidecar.checkpoint.writer.queue import Tell
from holdfast_sidecar.checkpoint.writer.requests import WriteParts, WrittenPart
from holdfast_sidecar.checkpoint.writer.sealed_slot import SealedSlot
from holdfast_sidecar.records.checkpoint import FileFact

log = logging.getLogger(__name__)


# A folder that remembers what was written into it: hashed on the way, and read back afterwards.

_PIECE = 8 << 20
"""A tensor of gigabytes comes in one piece; progress is told, and a stop heard, more often."""


class HashedFolder(Folder):
    """Writes go to the inner folder; `facts` says what they were. `tell` hears of bytes moved."""

    def __init__(self, inner: Folder, tell: Callable[[int], object] = lambda _: None) -> None:
        self.url = inner.url
        self.created = inner.created
        self.facts: dict[str, FileFact] = {}
        self.trouble: OSError | None = None
        """The first error of a write: torch hides it behind one of its own."""
        self._inner = inner
        self._tell = tell

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """Write a file; its hash is known once it is there."""
        with self._inner.create(name) as stream:
            hashing = _Hashing(stream, self._tell)
            try:
                yield cast("BinaryIO", hashing)
            except OSError as error:
                self.trouble = self.trouble or error
                raise
            finally:
                self.trouble = self.trouble or hashing.trouble
        self.facts[name] = FileFact(hashing.size, hashing.digest.hexdigest())

    def write(self, name: str, data: bytes) -> None:
        """Write a small file."""
        self._inner.write(name, data)
        self._tell(len(data))
        self.facts[name] = FileFact(len(data), hashlib.sha256(data).hexdigest())

    def read_back(self) -> None:
        """Compare storage with what was written; raises OSError where it differs."""
        for name, fact in self.facts.items():
            if hash_file(self._inner, name, self._tell) != fact:
                raise OSError(errno.EIO, f"{name} reads back other than it was written", self.url)

    def remove_written(self) -> None:
        """Remove what was written, if it can be: a full disk is to have its room again."""
        for name in self.facts:
            try:
                self._inner.remove(name, written_here(self._inner, name))
            except OSError as error:
                log.warning("%s stays behind in %s: %s", name, self.url, error)

    def open(self, name: str) -> BinaryIO:
        """As the inner one."""
        return self._inner.open(name)

    def size(self, name: str) -> int:
        """As the inner one."""
        return self._inner.size(name)

    def modified_unix_s(self, name: str) -> float:
        """As the inner one."""
        return self._inner.modified_unix_s(name)

    def names(self) -> list[str]:
        """As the inner one."""
        return self._inner.names()

    def children(self) -> list[str]:
        """As the inner one."""
        return self._inner.children()

    def remove(self, name: str, permit: Permit) -> None:
        """As the inner one."""
        self._inner.remove(name, permit)

    def remove_known(self, turn: Callable[[str], int | None], permit: Permit) -> None:
        """As the inner one."""
        self._inner.remove_known(turn, permit)


class _Hashing:
    """A stream that hashes what is written."""

    def __init__(self, stream: BinaryIO, tell: Callable[[int], object]) -> None:
        self._stream = stream
        self._tell = tell
        self.digest = hashlib.sha256()
        self.size = 0
        self.trouble: OSError | None = None

    def write(self, data: Any) -> int:
        """All of it, or an error."""
        whole = memoryview(data).cast("B")
        for start in range(0, len(whole), _PIECE):
            piece = whole[start : start + _PIECE]
            try:
                self._stream.write(piece)
                self._tell(len(piece))
            except OSError as error:
                self.trouble = self.trouble or error
                raise
            self.digest.update(piece)
            self.size += len(piece)
        return len(whole)

    def tell(self) -> int:
        """Bytes written so far."""
        return self.size

    def flush(self) -> None:
        """The folder sees to it at the end."""

    def close(self) -> None:
        """The folder closes it."""


# torch's index of a checkpoint (`.metadata`), made from what each rank's part says it wrote.
#
# torch makes it by a collective over all ranks; here nobody needs to be alive for it.


@dataclass(frozen=True)
class Written:
    """One shard of a tensor in a file of this checkpoint."""

    key: str
    dtype: str
    whole: tuple[int, ...]
    starts: tuple[int, ...]
    shape: tuple[int, ...]
    file: str
    offset: int
    length: int


def written_file(rank: int) -> str:
    """Name of the file in which a rank's part says what it wrote where."""
    return f"__{rank}_written.json"


def pack_written(found: Iterable[Written]) -> bytes:
    """What a part says, as JSON."""
    return json.dumps([asdict(each) for each in found]).encode()


def parse_written(text: bytes) -> list[Written]:
    """What a part said. Raises ValueError."""
    try:
        return [_parse_written(fields) for fields in json.loads(text)]
    except (KeyError, TypeError) as error:
        raise ValueError(f"it says not what was written: {error!r}") from error


def write_index(folder: Folder, world_size: int) -> dict[str, FileFact]:
    """Write `.metadata` for the parts that lie there; answers its hash. Raises OSError."""
    found: list[Written] = []
    for rank in range(world_size):
        try:
            found += parse_written(folder.read(written_file(rank)))
        except ValueError as error:
            raise OSError(errno.EILSEQ, f"{written_file(rank)}: {error}") from error
    metadata = make_metadata(found)
    hashed = HashedFolder(folder)
    FolderWriter(hashed).finish(metadata, [[_result(each) for each in found]])
    hashed.read_back()
    return {TORCH_METADATA: hashed.facts[TORCH_METADATA]}


def make_metadata(found: Iterable[Written]) -> Metadata:
    """The index without its storage part. Raises OSError when a tensor is not there as a whole."""
    shards: dict[str, list[Written]] = {}
    for each in found:
        shards.setdefault(each.key, []).append(each)
    return Metadata(
        state_dict_metadata={key: _tensor(key, each) for key, each in shards.items()},
        planner_data={key: (key,) for key in shards},
    )


def _tensor(key: str, shards: list[Written]) -> TensorStorageMetadata:
    first = shards[0]
    if any((s.whole, s.dtype) != (first.whole, first.dtype) for s in shards):
        raise OSError(errno.EILSEQ, f"{key}: ranks differ over its shape or type")
    places = {s.starts for s in shards}
    if len(places) != len(shards) or sum(math.prod(s.shape) for s in shards) != math.prod(
        first.whole
    ):
        raise OSError(errno.EILSEQ, f"{key}: the ranks' shards don't make the whole tensor")
    return TensorStorageMetadata(
        properties=TensorProperties(dtype=getattr(torch, first.dtype)),
        size=torch.Size(first.whole),
        chunks=[ChunkStorageMetadata(torch.Size(s.starts), torch.Size(s.shape)) for s in shards],
    )


def _result(each: Written) -> WriteResult:
    from torch.distributed.checkpoint.filesystem import _StorageInfo

    return WriteResult(
        index=MetadataIndex(each.key, each.starts),
        size_in_bytes=each.length,
        storage_data=_StorageInfo(each.file, each.offset, each.length),
    )


def _parse_written(fields: dict[str, Any]) -> Written:
    lists = {name: tuple(map(int, fields[name])) for name in ("whole", "starts", "shape")}
    return Written(**{**fields, **lists})


def write_parts(asked: WriteParts, slots: Sequence[SealedSlot], tell: Tell) -> WrittenPart:
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
    return WrittenPart(facts, time.monotonic() - start_s)


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


def _item(entry: TensorEntry, tensor: torch.Tensor) -> WriteItem:
    return WriteItem(
        index=MetadataIndex(entry.key, entry.starts),
        type=WriteItemType.SHARD,
        tensor_data=TensorWriteData(
            chunk=ChunkStorageMetadata(torch.Size(entry.starts), torch.Size(entry.shape)),
            properties=TensorProperties(dtype=tensor.dtype),
            size=torch.Size(entry.whole),
        ),
    )


def _written(entry: TensorEntry, stored: Any) -> Written:
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


def _view(slot: SealedSlot, entry: TensorEntry) -> torch.Tensor:
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
