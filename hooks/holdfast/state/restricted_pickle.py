"""Reads torch's pickled index of a checkpoint (`.metadata`) without running anything it names.

While it is unpickled every class is an inert stand-in, made for this one reading; the real records
are then built from what the stand-ins hold, field by field, and nothing else gets through.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)

_METADATA = "torch.distributed.checkpoint.metadata"
_STAND_INS = frozenset(
    {
        (_METADATA, "BytesStorageMetadata"),
        (_METADATA, "ChunkStorageMetadata"),
        (_METADATA, "Metadata"),
        (_METADATA, "MetadataIndex"),
        (_METADATA, "StorageMeta"),
        (_METADATA, "TensorProperties"),
        (_METADATA, "TensorStorageMetadata"),
        (_METADATA, "_MEM_FORMAT_ENCODING"),
        ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
        ("torch.serialization", "_get_layout"),
        ("pathlib", "PosixPath"),
        ("pathlib._local", "PosixPath"),
        ("builtins", "getattr"),
        ("__builtin__", "getattr"),
    }
)
"""What torch 2.10 to 2.15 puts there for tensors. The path is where it was saved; nobody uses it.
An early Python 3.11 (Debian's 3.11.2) writes a member of an enumeration, how memory is laid out, as
a call of `getattr`: nobody uses that either, and its stand-in looks nothing up."""


class Refused(ValueError):
    """This is no index of tensors that torch has written."""


def load_metadata(data: bytes) -> Metadata:
    """The index in a pickle; raises Refused for any but tensors and the files they lie in."""
    try:
        found = _Unpickler(io.BytesIO(data)).load()
        _expect(found, "Metadata")
        tensors = {
            _text(key): _tensor(key, value) for key, value in found.state_dict_metadata.items()
        }
        places = {_index(key): _place(value) for key, value in found.storage_data.items()}
    except Refused:
        raise
    except (
        pickle.UnpicklingError,
        AttributeError,
        EOFError,
        IndexError,
        KeyError,
        MemoryError,
        OverflowError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise Refused(f"torch's index can't be read: {type(error).__name__}: {error}") from error
    return Metadata(state_dict_metadata=tensors, storage_data=places, storage_meta=StorageMeta())


class _StandIn:
    """Takes whatever a pickle makes of it, and does nothing."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.__dict__.update(state)
        else:
            self.state = state


class _Unpickler(pickle.Unpickler):
    """Finds stand-ins, types of numbers and sizes; nothing else has a name."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream)
        self._made: dict[tuple[str, str], type] = {}

    def find_class(self, module: str, name: str) -> Any:
        """What stands for this name; raises Refused."""
        if (module, name) == ("torch", "Size"):
            return tuple
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        if (module, name) not in _STAND_INS:
            raise Refused(f"torch's index names {module}.{name}, which has no business there")
        # Of its own for each reading, as a pickle may also set attributes of a class.
        return self._made.setdefault((module, name), type(name, (_StandIn,), {}))


def _tensor(key: str, value: Any) -> TensorStorageMetadata:
    if type(value).__name__ == "BytesStorageMetadata":
        raise Refused(f"{key!r} is a pickled object; Holdfast stores none there")
    _expect(value, "TensorStorageMetadata")
    _expect(value.properties, "TensorProperties")
    dtype, layout, requires_grad, *_ = value.properties.state
    if not isinstance(dtype, torch.dtype) or layout.arguments != ("torch.strided",):
        raise Refused(f"{key!r} is no ordinary tensor")
    chunks = [_chunk(chunk) for chunk in value.chunks]
    properties = TensorProperties(dtype=dtype, requires_grad=bool(requires_grad))
    return TensorStorageMetadata(properties, _size(value.size), chunks)


def _chunk(value: Any) -> ChunkStorageMetadata:
    _expect(value, "ChunkStorageMetadata")
    return ChunkStorageMetadata(offsets=_size(value.offsets), sizes=_size(value.sizes))


def _index(value: Any) -> MetadataIndex:
    _expect(value, "MetadataIndex")
    offset = None if value.offset is None else _size(value.offset)
    index = None if value.index is None else _number(value.index)
    return MetadataIndex(_text(value.fqn), offset, index)


def _place(value: Any) -> _StorageInfo:
    _expect(value, "_StorageInfo")
    name = _text(value.relative_path)
    if "/" in name or name in ("", ".", ".."):
        raise Refused(f"a tensor lies in {name!r}, which is no file of the checkpoint")
    if vars(value).get("transform_descriptors"):
        raise Refused(f"{name} was transformed when it was written")
    return _StorageInfo(name, _number(value.offset), _number(value.length))


def _expect(value: Any, name: str) -> None:
    if not isinstance(value, _StandIn) or type(value).__name__ != name:
        raise Refused(f"torch's index holds a {type(value).__name__} where a {name} belongs")


def _text(value: Any) -> str:
    if type(value) is not str:
        raise Refused(f"{value!r} is no name")
    return value


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise Refused(f"{value!r} is no size")
    return value


def _size(value: Any) -> torch.Size:
    if type(value) is not tuple:
        raise Refused(f"{value!r} is no size")
    return torch.Size([_number(each) for each in value])
