"""A rank's own state as plain JSON data and a list of tensors, so that no pickle is needed.

Types are kept exactly. What can't be kept is refused, with the place where it was found in the
user's words; nothing is ever turned into something similar.
"""

from __future__ import annotations

import base64
import math
import sys
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import torch

from holdfast.state.data_position import Position
from holdfast.state.random_state import RandomState

MARK = "!"
"""A JSON object with this key says which type it stands for; `v` is the value."""

DEEPEST = 100
"""More levels than any honest state has: beyond, it contains itself."""

_DECIMAL_BITS = 2048
"""Longer integers go as hexadecimal: Python refuses decimal ones of more than 4300 digits."""

_RECORDS = {"Position": Position, "RandomState": RandomState}
_FACTORIES: dict[str, type] = {kind.__name__: kind for kind in (int, float, str, list, dict, set)}
_NEVER_ODD = frozenset({bool, str, type(None)})
_LARGE = 1 << 63


class CannotSave(TypeError):
    """State that could not come back as it is; says where it lies and what to do."""


class NotPlain(CannotSave):
    """State that could only be saved by pickling it; says where it lies and what to do."""


def encode(own: Any) -> tuple[Any, list[torch.Tensor]]:
    """State as data for `json.dumps`, and the tensors it refers to: the live ones, not copies.

    Raises NotPlain. What decode() makes of both is equal to `own`, and of the same types.
    """
    encoder = _Encoder()
    try:
        return encoder.encode(own, 0), encoder.tensors
    except _Odd as odd:
        raise NotPlain(
            f"{_in_users_words(odd.path[::-1])} {odd.reason}, which only a pickle could hold; "
            "keep plain values there (numbers, text, lists, dicts, tensors, arrays), or pass "
            "save= and load= functions"
        ) from None


def decode(plain: Any, tensors: list[torch.Tensor]) -> Any:
    """The state that was encoded; raises ValueError when it is none.

    The tensors are handed on as they are, those that were on another device than the CPU moved to
    such a one; arrays are copied out of them.
    """
    try:
        return _Decoder(tensors).decode(plain)
    except (KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise ValueError(f"this is no state that was saved: {error!r}") from error


class _Odd(Exception):
    """Found something that isn't plain; the path grows on the way out, innermost key first."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[Any] = []


class _Encoder:
    """Encodes one state; one method per type, found by the exact type."""

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []
        self._places: dict[int, int] = {}
        self._keeps_devices = True

    def encode(self, value: Any, depth: int) -> Any:
        """A value of any type."""
        kind = type(value)
        if kind in _NEVER_ODD:
            return value
        encode = _BY_TYPE.get(kind)
        if encode is not None:
            if depth > DEEPEST:
                raise _Odd("contains itself")
            return encode(self, value, depth + 1)
        return self._encode_other(value, kind)

    def integer(self, value: int, _: int) -> Any:
        """JSON's own where every reader agrees on it."""
        if -_LARGE < value < _LARGE:
            return value
        if value.bit_length() <= _DECIMAL_BITS:
            return value
        return {MARK: "int", "v": hex(value)}

    def number(self, value: float, _: int) -> Any:
        """JSON has no word for what is not finite."""
        return value if math.isfinite(value) else {MARK: "float", "v": repr(value)}

    def items(self, values: Any, depth: int) -> list[Any]:
        """The members of a list, tuple or set."""
        kinds = set(map(type, values))
        if kinds <= _NEVER_ODD:
            return list(values)
        if kinds == {int} and min(values) > -_LARGE and max(values) < _LARGE:
            return list(values)
        if kinds == {float} and all(map(math.isfinite, values)):
            return list(values)
        encoded = []
        for index, value in enumerate(values):
            try:
                encoded.append(self.encode(value, depth))
            except _Odd as odd:
                odd.path.append(index)
                raise
        return encoded

    def mapping(self, values: dict[Any, Any], depth: int) -> Any:
        """As an object where all keys are text, in the same order; else as pairs."""
        if set(map(type, values)) <= {str} and MARK not in values:
            encoded = {}
            for key, value in values.items():
                # A model's loading copies into its own tensors, wherever they are.
                self._keeps_devices = self._keeps_devices if depth > 1 else key != "models"
                try:
                    encoded[key] = self.encode(value, depth)
                except _Odd as odd:
                    odd.path.append(key)
                    raise
            return encoded
        return {MARK: "dict", "v": self.pairs(values, depth)}

    def pairs(self, values: dict[Any, Any], depth: int) -> list[Any]:
        """Keys and values of a dict whose keys are not all text."""
        encoded = []
        for key, value in values.items():
            try:
                encoded.append([self.encode(key, depth), self.encode(value, depth)])
            except _Odd as odd:
                odd.path.append(key)
                raise
        return encoded

    def default_dict(self, values: defaultdict[Any, Any], depth: int) -> Any:
        """Only with a factory that has a name everybody knows."""
        factory = values.default_factory
        name = None if factory is None else getattr(factory, "__name__", "")
        if factory is not None and _FACTORIES.get(str(name)) is not factory:
            raise _Odd("is a defaultdict with a function of its own")
        return {MARK: "defaultdict", "f": name, "v": self.pairs(values, depth)}

    def tensor(self, value: torch.Tensor, _: int) -> Any:
        """By its place in the list; one that occurs twice is listed once."""
        if value.layout != torch.strided or value.is_quantized or value.is_nested or value.is_meta:
            raise _Odd("is a sparse, quantized, nested or meta tensor")
        place = self._places.get(id(value))
        if place is None:
            place = self._places[id(value)] = self._put(value)
        encoded = {MARK: "tensor", "v": place}
        if self._keeps_devices and not value.is_cpu:
            encoded["on"] = spell_device(value.device, _current_index(value.device.type))
        return encoded

    def record(self, value: Any, depth: int) -> Any:
        """One of our own dataclasses."""
        return {MARK: type(value).__name__, "v": self.mapping(vars(value), depth)}

    def _encode_other(self, value: Any, kind: type) -> Any:
        numpy = sys.modules.get("numpy")
        if numpy is not None and kind is numpy.ndarray:
            return self._encode_array(value, numpy)
        if numpy is not None and isinstance(value, numpy.generic):
            return {MARK: "scalar", "d": _numpy_type(value), "v": _text(value.tobytes())}
        raise _Odd(_describe(value, kind))

    def _encode_array(self, value: Any, numpy: Any) -> Any:
        name = _numpy_type(value)
        flat = numpy.ascontiguousarray(value).reshape(-1).view(numpy.uint8)
        if not flat.flags.writeable:  # torch would warn, though nobody writes into it
            flat = flat.copy()
        place = self._put(torch.from_numpy(flat))
        return {MARK: "array", "d": name, "s": list(value.shape), "v": place}

    def _put(self, tensor: torch.Tensor) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1


_BY_TYPE: dict[type, Callable[[_Encoder, Any, int], Any]] = {
    int: _Encoder.integer,
    float: _Encoder.number,
    list: _Encoder.items,
    dict: _Encoder.mapping,
    tuple: lambda self, v, depth: {MARK: "tuple", "v": self.items(v, depth)},
    set: lambda self, v, depth: {MARK: "set", "v": self.items(v, depth)},
    frozenset: lambda self, v, depth: {MARK: "frozenset", "v": self.items(v, depth)},
    OrderedDict: lambda self, v, depth: {MARK: "OrderedDict", "v": self.pairs(v, depth)},
    Counter: lambda self, v, depth: {MARK: "Counter", "v": self.pairs(v, depth)},
    defaultdict: _Encoder.default_dict,
    complex: lambda _, v, __: {MARK: "complex", "v": repr(v)},
    bytes: lambda _, v, __: {MARK: "bytes", "v": _text(v)},
    bytearray: lambda _, v, __: {MARK: "bytearray", "v": _text(v)},
    torch.Tensor: _Encoder.tensor,
    torch.nn.Parameter: _Encoder.tensor,
    torch.Size: lambda _, v, __: {MARK: "Size", "v": list(v)},
    torch.dtype: lambda _, v, __: {MARK: "dtype", "v": str(v).removeprefix("torch.")},
    torch.device: lambda _, v, __: {MARK: "device", "v": str(v)},
    Position: _Encoder.record,
    RandomState: _Encoder.record,
}


class _Decoder:
    """Decodes one state."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self._tensors = tensors
        self._moved: dict[int, torch.Tensor] = {}

    def decode(self, plain: Any) -> Any:
        """A value of any type."""
        if type(plain) is list:
            return [self.decode(value) for value in plain]
        if type(plain) is not dict:
            return plain
        if MARK not in plain:
            return {key: self.decode(value) for key, value in plain.items()}
        return self._decode_marked(plain[MARK], plain)

    def _decode_marked(self, kind: str, plain: dict[str, Any]) -> Any:
        value = plain["v"]
        if kind in _RECORDS:
            return _RECORDS[kind](**{name: self.decode(item) for name, item in value.items()})
        if kind in _FROM_ITEMS:
            return _FROM_ITEMS[kind](map(self.decode, value))
        if kind in _FROM_PAIRS:
            pairs = [(self.decode(key), self.decode(item)) for key, item in value]
            return _FROM_PAIRS[kind](pairs)
        if kind == "defaultdict":
            factory = None if plain["f"] is None else _FACTORIES[plain["f"]]
            pairs = [(self.decode(key), self.decode(item)) for key, item in value]
            return defaultdict(factory, pairs)
        if kind == "tensor":
            return self._decode_tensor(self._tensors[value], plain.get("on"))
        if kind in ("array", "scalar"):
            return self._decode_numpy(kind, plain)
        return _FROM_VALUE[kind](value)

    def _decode_tensor(self, tensor: torch.Tensor, spelt: list[Any] | None) -> torch.Tensor:
        """Moved once, however often it occurs."""
        if spelt is None or not _is_there(str(spelt[0])):
            return tensor
        moved = self._moved.get(id(tensor))
        if moved is None:
            kind = str(spelt[0])
            device = parse_device(spelt, _current_index(kind), _device_count(kind))
            try:
                moved = self._moved[id(tensor)] = tensor.to(device)
            except RuntimeError as error:
                raise ValueError(f"a tensor that belongs on {device}: {error}") from error
        return moved

    def _decode_numpy(self, kind: str, plain: dict[str, Any]) -> Any:
        import numpy

        dtype = numpy.dtype(plain["d"])
        if kind == "scalar":
            return numpy.frombuffer(_bytes(plain["v"]), dtype)[0]
        flat = self._tensors[plain["v"]].cpu().numpy().copy()
        return flat.view(dtype).reshape(plain["s"])


_FROM_ITEMS: dict[str, Callable[[Any], Any]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "Size": torch.Size,
}

_FROM_PAIRS: dict[str, Callable[[Any], Any]] = {
    "dict": dict,
    "OrderedDict": OrderedDict,
    "Counter": lambda pairs: Counter(dict(pairs)),
}

_FROM_VALUE: dict[str, Callable[[Any], Any]] = {
    "int": lambda text: int(text, 16),
    "float": float,
    "complex": complex,
    "bytes": lambda text: _bytes(text),
    "bytearray": lambda text: bytearray(_bytes(text)),
    "dtype": lambda name: _torch_dtype(name),
    "device": torch.device,
}


def spell_device(device: torch.device, current: int) -> list[Any]:
    """Type of a device, and its index counted from the current one: a rank that comes back may be
    given other devices, and has its tensors on its own."""
    return [device.type, 0 if device.index is None else device.index - current]


def parse_device(spelt: list[Any], current: int, count: int) -> torch.device:
    """The device that spell_device() meant, seen from another current one; that one itself where
    so many devices are too few, as on a machine where each rank sees its own GPU alone."""
    kind, offset = spelt
    index = current + int(offset)
    if not 0 <= index < count:
        index = current
    try:
        return torch.device(kind) if _module(kind) is None else torch.device(kind, index)
    except RuntimeError as error:
        raise ValueError(f"{kind!r} is no kind of device") from error


def _current_index(kind: str) -> int:
    module = _module(kind)
    return 0 if module is None else int(module.current_device())


def _device_count(kind: str) -> int:
    module = _module(kind)
    return 0 if module is None else int(module.device_count())


def _is_there(kind: str) -> bool:
    """Whether there are such devices here: else whoever takes the tensor has none there either."""
    module = _module(kind)
    return module is None or bool(module.is_available())


def _module(kind: str) -> Any:
    """torch.cuda for cuda; None for devices that have no index (meta, mps)."""
    module = getattr(torch, kind, None)
    return module if hasattr(module, "current_device") else None


def _torch_dtype(name: str) -> torch.dtype:
    found = getattr(torch, name)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"torch.{name} is no dtype")
    return found


def _numpy_type(value: Any) -> str:
    dtype = value.dtype
    if dtype.kind not in "biufcSUmM":
        raise _Odd(f"is a NumPy array of {dtype}")
    return str(dtype.str)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _describe(value: Any, kind: type) -> str:
    if isinstance(value, torch.Tensor):
        return f"is a {kind.__name__}, a tensor of a kind of its own"
    if isinstance(value, type):
        return f"is the class {value.__name__}"
    if callable(value) and hasattr(value, "__qualname__"):
        return f"is the function {value.__qualname__}"
    article = "an" if kind.__name__[:1] in "AEIOUaeiou" else "a"
    return f"is {article} {kind.__name__}"


_SECTIONS = frozenset({"models", "optimizers", "others"})
_INSIDE = {"groups": "param_groups", "own_values": "state"}
_SHOWN = 8
"""Keys of a place that are told; what contains itself has a hundred of them."""


def _in_users_words(path: list[Any]) -> str:
    """`others`, `scheduler`, `gammas`, 0 -> scheduler['gammas'][0]."""
    keys = list(path)
    if keys[:2] == ["position", "loader_state"]:
        keys = ["loader", *keys[2:]]
    elif len(keys) > 1 and keys[0] in _SECTIONS:
        section, *keys = keys
        if section == "optimizers" and len(keys) > 1:
            keys[1] = _INSIDE.get(keys[1], keys[1])
    if not keys:
        return "the state"
    shown = "".join(f"[{key!r}]" for key in keys[1:_SHOWN])
    return f"{keys[0]}{shown}{'[…]' if len(keys) > _SHOWN else ''}"
