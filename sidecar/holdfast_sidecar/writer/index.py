"""torch's index of a checkpoint (`.metadata`), made from what each rank's part says it wrote.

torch makes it by a collective over all ranks; here nobody needs to be alive for it.
"""

from __future__ import annotations

import errno
import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.storage import WriteResult

from holdfast.checkpoint_files import TORCH_METADATA
from holdfast.storage import Folder
from holdfast.torch_checkpoint import FolderWriter
from holdfast_sidecar.records.checkpoint import FileFact
from holdfast_sidecar.writer.hashed_folder import HashedFolder


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
        return [_written(fields) for fields in json.loads(text)]
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


def _written(fields: dict[str, Any]) -> Written:
    lists = {name: tuple(map(int, fields[name])) for name in ("whole", "starts", "shape")}
    return Written(**{**fields, **lists})
