"""The file of a rank's own state: its plain part as JSON, its tensors as torch saves tensors.

Read with weights_only, so that no class in it is ever looked up.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from typing import Any, BinaryIO

import torch

from holdfast.state.own_state import decode
from holdfast.state.torch_checkpoint import told_by_storage


def write_own(stream: BinaryIO, plain: Any, tensors: Sequence[torch.Tensor]) -> None:
    """Write what encode() made of an own state."""
    text = json.dumps(plain, allow_nan=False)
    with told_by_storage():
        torch.save({"plain": text, "tensors": [_alone(tensor) for tensor in tensors]}, stream)


def read_own(stream: BinaryIO) -> Any:
    """The own state in a file; raises ValueError when there is none in it."""
    try:
        document = torch.load(stream, map_location="cpu", weights_only=True)
        plain, tensors = json.loads(document["plain"]), document["tensors"]
    except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError, TypeError) as error:
        raise ValueError(f"it is no file of a rank's own state: {_first_line(error)}") from error
    return decode(plain, tensors)


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without what lies beside it in memory, all of which torch would save."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    size = tensor.numel() * tensor.element_size()
    if tensor.untyped_storage().nbytes() == size and tensor.is_contiguous():
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
