"""Tries at the first steps whether what was named can be given back, before anybody needs it.

The state is taken as for a checkpoint and goes through text as it does there. What it says is
compared with what the objects hold. Nothing is loaded but by torch's own code, into optimizers made
for that, without numbers (large tensors are on the meta device): a `load_state_dict` of somebody
else's may reach what the training uses, its files and the other ranks.
"""

from __future__ import annotations

import json
import logging
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from holdfast.contract.page import Phase
from holdfast.guard import Raised, tried
from holdfast.recording.interface import Recording, Unwatched
from holdfast.recording.placement import Placement
from holdfast.state.data_position import Position
from holdfast.state.optimizer_state import give_optimizer
from holdfast.state.own_state import MARK, CannotSave, decode, encode
from holdfast.state.registered import OwnState, Registered, SharedState, parameter_names
from holdfast.state.saving import Mark, Savable, take_state

log = logging.getLogger(__name__)

SMALL_BYTES = 4096
"""Counters, learning rates, scales: what loading may look at. These are copied as they are."""

HEAD = 1024
"""Numbers that are compared of two tensors: moments that are alike so far are the same."""

TRIED_AFTER = (1, 3)
"""Steps, the same on all ranks, since some state is taken by all of them together. Twice, as
optimizers make their state as they step, and a scaler may pass the first ones over."""

_FUNCTIONS = "pass save= and load= functions"

_MARK = Mark("", 0, 0, "", (), Position(0, 0))


@dataclass(frozen=True)
class Doubt:
    """Something that would not come back as it was, and what to do instead."""

    text: str
    refuses: bool = False
    """The training would go on from it, and wrong: so nothing is saved."""


@dataclass
class StateTrial:
    """One per attempt: tries behind the first steps."""

    recording: Recording
    savable: Savable
    place: Placement
    refusal: str = ""
    """Why nothing is saved; empty: nothing that was found would come back wrong."""
    is_over: bool = False
    said: list[str] = field(default_factory=list)
    """Each thing that was found."""
    _first: int | None = None
    _looks: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.recording, Unwatched) or not self.savable:
            self.is_over = True

    def cross(self, step: int) -> None:
        """Try, once the first step is completed; say what was found."""
        if self._first is None:
            self._first = step
        if self.is_over or step - self._first < TRIED_AFTER[self._looks]:
            return
        self._looks += 1
        self.is_over = self._looks == len(TRIED_AFTER)
        before = self.recording.enter(Phase.SAVING)
        try:
            self._say(try_state(self.savable, self.place.world_size))
        finally:
            self.recording.enter(before)

    def _say(self, doubts: list[Doubt]) -> None:
        if not doubts or [doubt.text for doubt in doubts] == self.said:
            return
        refusals = [doubt.text for doubt in doubts if doubt.refuses]
        self.refusal = refusals[0] if refusals else ""
        self.said = [doubt.text for doubt in doubts]
        self.recording.say_unrestorable(self.said)
        if self.place.rank == 0:  # what ranks find, they mostly all find
            end = "; nothing is saved" if refusals else ""
            for doubt in doubts:
                log.warning("holdfast: this job could not be resumed: %s%s", doubt.text, end)


def try_state(savable: Savable, world_size: int) -> list[Doubt]:
    """What could not be restored; empty: everything that could be tried came back. Each object is
    tried by itself: what one of them raises hides nothing of the others."""
    doubts: list[Doubt] = []
    _try_each(doubts, {"the adapter": savable}, _ask_adapter)
    registered = savable.registered
    if not registered:
        return doubts
    taken = tried(_take, registered, world_size)
    if isinstance(taken, Raised):
        return [*doubts, _not_taken(taken.error)]
    _give_back(doubts, registered, taken)
    return doubts


@dataclass(frozen=True)
class _Taken:
    """The state as a checkpoint would hold it."""

    shared: SharedState
    text: str
    """Own state, but for its tensors."""
    tensors: list[torch.Tensor]
    shapes: dict[str, torch.Size]
    """Of what models told, by `parameter_names`."""

    @property
    def saved(self) -> list[torch.Tensor]:
        """Every tensor of it."""
        return [*self.shared.values(), *self.tensors]


def _give_back(doubts: list[Doubt], registered: Registered, taken: _Taken) -> None:
    lights = {key: _light(tensor) for key, tensor in taken.shared.items()}
    names = parameter_names(registered.models)
    optimizers, others = registered.optimizers, registered.others
    decoded = tried(_decoded, taken)
    if isinstance(decoded, Raised) and not _is_for_want_of_numbers(decoded.error):
        doubts.append(_not_taken(decoded.error))
    back = None if isinstance(decoded, Raised) else decoded
    seen: list[Any] = [*optimizers.values(), *others.values()]
    _try_each(doubts, optimizers, lambda n, one: _left_out(n, one, names, taken))
    _try_each(doubts, optimizers | others, lambda n, one: _hidden_states(n, one, seen, taken.saved))
    _try_each(doubts, optimizers, lambda n, one: _try_optimizer(n, one, names, back, lights))


def _decoded(taken: _Taken) -> OwnState:
    """Optimizers' own state as a checkpoint gives it back."""
    plain = json.loads(taken.text, object_hook=_where_it_is)["optimizers"]
    back: OwnState = decode(plain, [_light(tensor) for tensor in taken.tensors])
    return back


def _try_each(
    doubts: list[Doubt],
    things: dict[str, Any],
    check: Callable[[str, Any], Iterator[Doubt]],
) -> None:
    for name, thing in things.items():
        answered = tried(_append, doubts, check, name, thing)
        if isinstance(answered, Raised):
            error = answered.error
            log.warning(
                "holdfast: whether %s could be resumed was not tried to the end: %s: %s",
                name,
                type(error).__name__,
                error,
            )


def _append(
    doubts: list[Doubt], check: Callable[[str, Any], Iterator[Doubt]], name: str, thing: Any
) -> None:
    for doubt in check(name, thing):
        doubts.append(doubt)


def _ask_adapter(_: str, savable: Savable) -> Iterator[Doubt]:
    for text in savable.trial():
        yield Doubt(text)


def _take(registered: Registered, world_size: int) -> _Taken:
    shared, own = take_state(registered, _MARK, world_size)
    shapes = {
        f"{name}.{key}": value.shape
        for name in registered.models
        for key, value in _of_model(name, shared, own).items()
        if isinstance(value, torch.Tensor)
    }
    plain, tensors = encode(own)
    return _Taken(shared, json.dumps(plain, allow_nan=False), tensors, shapes)


def _of_model(name: str, shared: SharedState, own: OwnState) -> dict[str, Any]:
    told = f"{name}/"
    of_all = {key.removeprefix(told): one for key, one in shared.items() if key.startswith(told)}
    return {**of_all, **own["models"][name]}


def _not_taken(error: Exception) -> Doubt:
    if isinstance(error, CannotSave):
        return Doubt(str(error))
    return Doubt(f"the state can't be taken ({type(error).__name__}: {error}); {_FUNCTIONS}")


def _try_optimizer(
    name: str, optimizer: Any, names: dict[int, str], back: OwnState | None, lights: SharedState
) -> Iterator[Doubt]:
    told = optimizer.state_dict()
    if _some_state(optimizer) and not any(_tensors(one) for one in told["state"].values()):
        text = f"the state_dict of {name} tells nothing of its state; {_FUNCTIONS}"
        yield Doubt(text, refuses=True)
        return
    if back is None or not _is_torchs(optimizer):
        return
    hollow = _hollow(optimizer)
    pairs = zip(_parameters(optimizer), _parameters(hollow), strict=True)
    titles = {id(twin): names[id(one)] for one, twin in pairs if id(one) in names}

    def give() -> Any:
        give_optimizer(name, hollow, titles, back[name], lights)
        return hollow.state_dict()

    returned = tried(give)
    if isinstance(returned, Raised):
        if not _is_for_want_of_numbers(returned.error):
            yield Doubt(_did_not_load(name, returned.error), refuses=True)
    elif differs := _difference(told, returned):
        place, one, other = differs
        text = f"{name}{place} would come back as {other} and is {one}; {_FUNCTIONS}"
        yield Doubt(text, refuses=not _is_rounded(one, other))


def _did_not_load(name: str, error: Exception) -> str:
    first = next(iter(str(error).splitlines()), "")
    return (
        f"{name} does not take back its own state ({type(error).__name__}: {first}); {_FUNCTIONS}"
    )


def _is_for_want_of_numbers(error: Exception) -> bool:
    """Whether the copy's own emptiness is why: that proves nothing."""
    return "meta" in str(error).lower()


def _left_out(name: str, optimizer: Any, names: dict[int, str], taken: _Taken) -> Iterator[Doubt]:
    """Parameters that are trained and that their model's own state_dict does not tell of. What it
    tells by their names may be copies in other numbers, which their load_state_dict takes back."""
    begins = {_local(tensor).data_ptr() for tensor in taken.saved}
    for one in _parameters(optimizer):
        if taken.shapes.get(names.get(id(one), "")) == one.shape:
            continue
        is_told = one.numel() == 0 or _local(one).data_ptr() in begins
        if id(one) in names and not is_told and not _is_among(one, taken.saved):
            yield Doubt(
                f"{names[id(one)]} is trained by {name} and is not in its model's state_dict; "
                f"leave it there, or {_FUNCTIONS}",
                refuses=True,
            )
            return


def _hidden_states(
    name: str, thing: Any, seen: list[Any], saved: list[torch.Tensor]
) -> Iterator[Doubt]:
    """Optimizers inside of what was named, with state that no state_dict told of."""
    for attribute, inner in _optimizers_in(thing):
        if any(inner is one for one in seen):
            continue
        seen.append(inner)
        if any(not _is_among(tensor, saved) for tensor in _some_state(inner)):
            yield Doubt(
                f"the state of {name}.{attribute} ({type(inner).__name__}) is in the "
                f"state_dict of nothing that was attached; attach it too, or {_FUNCTIONS}",
                refuses=isinstance(thing, torch.optim.Optimizer),
            )


def _optimizers_in(thing: Any) -> Iterator[tuple[str, torch.optim.Optimizer]]:
    for attribute, value in getattr(thing, "__dict__", {}).items():
        members: Iterable[Any] = (value,)
        if isinstance(value, (list, tuple)):
            members = value
        elif isinstance(value, dict):
            members = value.values()
        for member in members:
            if isinstance(member, torch.optim.Optimizer):
                yield attribute, member


def _some_state(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Of one parameter."""
    return next(filter(None, map(_tensors, optimizer.state.values())), [])


def _tensors(values: Any) -> list[torch.Tensor]:
    """Of an optimizer's state of one parameter, but for counters."""
    members = values.values() if isinstance(values, dict) else ()
    return [one for one in members if isinstance(one, torch.Tensor) and one.numel() > 1]


def _is_among(tensor: torch.Tensor, saved: list[torch.Tensor]) -> bool:
    if any(one is tensor for one in saved):
        return True
    alike = (one for one in saved if (one.shape, one.dtype) == (tensor.shape, tensor.dtype))
    return any(torch.equal(_head(one), _head(tensor)) for one in alike)


def _head(tensor: torch.Tensor) -> torch.Tensor:
    return _local(tensor).detach().reshape(-1)[:HEAD].cpu()


def _local(tensor: torch.Tensor) -> torch.Tensor:
    local: torch.Tensor = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return local


def _is_torchs(optimizer: Any) -> bool:
    """Whether torch's own code alone tells its state and takes it back."""
    return all(
        name not in vars(optimizer)
        and str(getattr(type(optimizer), name).__module__).startswith("torch.optim.")
        for name in ("state_dict", "load_state_dict", "__setstate__")
    )


def _hollow(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Another one of its kind with the same groups and state, but without numbers, and without the
    hooks of the script's."""
    twins: dict[int, torch.Tensor] = {}
    hollow = object.__new__(type(optimizer))
    of_ours = {name: _twin(getattr(optimizer, name), twins) for name in _GROUPS_AND_STATE}
    hooks = {name: OrderedDict[int, Any]() for name in vars(optimizer) if name.endswith("hooks")}
    hollow.__dict__.update({**vars(optimizer), **hooks, **of_ours})
    return hollow


_GROUPS_AND_STATE = ("defaults", "param_groups", "state")


def _twin(value: Any, twins: dict[int, torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return twins.setdefault(id(value), _light(value))
    if isinstance(value, dict):
        made = {_twin(key, twins): _twin(one, twins) for key, one in value.items()}
        return defaultdict(dict, made) if isinstance(value, defaultdict) else made
    if type(value) in (list, tuple):
        return type(value)(_twin(one, twins) for one in value)
    return value


def _light(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of that shape, on the meta device unless it is small."""
    if isinstance(tensor, DTensor):
        return DTensor.from_local(
            _light(tensor.to_local()),
            tensor.device_mesh,
            tensor.placements,
            run_check=False,
            shape=tensor.size(),
            stride=tensor.stride(),
        )
    tensor = tensor.detach()
    if tensor.numel() * tensor.element_size() <= SMALL_BYTES:
        return tensor.clone()
    return torch.empty_like(tensor, device="meta")


def _where_it_is(plain: dict[str, Any]) -> dict[str, Any]:
    """The copies' tensors stay on the device that they are on."""
    if MARK in plain:
        plain.pop("on", None)
    return plain


def _parameters(optimizer: Any) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _difference(one: Any, other: Any, place: str = "") -> tuple[str, str, str] | None:
    """Where two states differ in structure, kinds of values, shapes or types of numbers."""
    if isinstance(one, dict) and isinstance(other, dict):
        # What comes on top are defaults that loading fills in.
        if lost := one.keys() - other.keys():
            return f"{place}[{min(lost, key=str)!r}]", "there", "missing"
        pairs = ((f"{place}[{key!r}]", one[key], other[key]) for key in one)
    elif isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        if len(one) != len(other):
            return place, f"{len(one)} long", f"{len(other)} long"
        twos = enumerate(zip(one, other, strict=True))
        pairs = ((f"{place}[{index}]", *two) for index, two in twos)
    elif (before := _kind(one)) != (after := _kind(other)):
        return place, before, after
    else:
        return None
    for where, left, right in pairs:
        if found := _difference(left, right, where):
            return found
    return None


def _is_rounded(one: str, other: str) -> bool:
    """Whether only the type of a tensor's numbers differs."""
    shapes = one.partition(" of ")[2], other.partition(" of ")[2]
    return bool(shapes[0]) and shapes[0] == shapes[1]


def _kind(value: Any) -> str:
    """`float32 of [3, 4]`, or the type. A number is one in a tensor too: optimizers move counters
    there as they load."""
    if isinstance(value, (int, float)) or (isinstance(value, torch.Tensor) and value.numel() == 1):
        return "a number"
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} of {list(value.shape)}"
    return type(value).__name__
