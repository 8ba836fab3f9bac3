"""Whether gradients wait for an optimizer that has not used them yet: then a moment between two
batches is no boundary, because gradients are in no snapshot and in no checkpoint.

Known from what passes by (backward passes, optimizer steps, steps that a scaler passes over) and
from some parameters of each optimizer; nothing waits for a GPU. What is not known counts as
waiting. Gradients that a script keeps in buffers of its own can't be seen, so where optimizers are
named, a turn counts only if one of them stepped in it.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

Reference = Callable[[], Any]

_MOST_LOOKED_AT = 64
"""Parameters that are looked at for one with a gradient: some optimizers free theirs."""

_MOST_BEHIND = 16
"""Parameters that are looked at where a backward pass follows the step: it may reach only some."""

MOST_GATHERED = 256
"""Batches in a row without a boundary, after which it is said: hardly anybody gathers as many."""


def _nothing() -> None:
    return None


@dataclass(slots=True)
class _Sample:
    """One parameter as it was at some moment."""

    parameter: Reference = _nothing
    gradient: Reference = _nothing
    gradient_version: int = -1
    weight_version: int = -1

    @classmethod
    def of(cls, parameter: Any) -> _Sample:
        gradient = parameter.grad
        return cls(
            weakref.ref(parameter),
            _nothing if gradient is None else weakref.ref(gradient),
            -1 if gradient is None else _version(gradient),
            _version(parameter),
        )

    def has_other_gradient(self) -> bool:
        """Whether a gradient is there that was not, or that was written since."""
        parameter = self.parameter()
        gradient = None if parameter is None else parameter.grad
        if gradient is None:
            return False
        return gradient is not self.gradient() or _version(gradient) != self.gradient_version


@dataclass(slots=True)
class _Owner:
    """An optimizer or a module, which is not kept alive."""

    thing: Reference
    _counted: int = -1
    _owned: frozenset[int] = frozenset()

    def owns(self, parameter: Any) -> bool:
        thing = self.thing()
        counted = sum(len(group["params"]) for group in getattr(thing, "param_groups", ()))
        if counted != self._counted:
            self._counted, self._owned = counted, frozenset(map(id, parameters_of(thing)))
        return id(parameter) in self._owned


@dataclass(slots=True)
class _Stepping(_Owner):
    """An optimizer that was heard to step, or to be passed over by a scaler."""

    turn: int = -1
    """In which it was heard last."""
    backwards: int = 0
    """How many backward passes had been heard then."""
    sample: _Sample = field(default_factory=_Sample)
    """A parameter of it just after that step."""
    behind: tuple[_Sample, ...] = ()
    """More of them, as a backward pass began that came after the step, but in the same turn."""
    carried: Reference = _nothing
    """The gradient of it that was there at the end of a turn, and not used."""
    carried_version: int = -1
    """Its version at the end of the turn before this one."""
    uses_carried: bool | None = None
    """Whether it steps on gradients of earlier turns. False: they are thrown away first, as those
    are that a GAN's generator leaves in its discriminator. None: that was not seen yet."""

    def note_backward_behind(self) -> None:
        """One begins after the step. Gradients that the script has zeroed in place since are other
        ones, but not new: only what changes from here on is."""
        parameter = self.sample.parameter()
        if parameter is not None:
            self.sample = _Sample.of(parameter)
        parameters = list(parameters_of(self.thing()))
        spread = parameters[:: len(parameters) // _MOST_BEHIND + 1]
        self.behind = tuple(map(_Sample.of, spread))

    def note_backward(self) -> None:
        """The first of a turn: what was carried and is gone by now, or was written with no backward
        pass, was thrown away. Zeros in place and the views of a bucket come back as the same
        tensor, so that the next step can't tell them from gradients that were kept."""
        parameter, carried = self.sample.parameter(), self.carried()
        if parameter is None or carried is None:
            return
        gradient = parameter.grad
        is_zeroed = gradient is carried and _version(carried) != self.carried_version
        if gradient is None or is_zeroed:
            self.uses_carried = self.uses_carried or False
            self.carried = _nothing

    def note_step(self, optimizer: Any, turn: int, backwards: int) -> None:
        parameter = self.sample.parameter()
        if parameter is None or parameter.grad is None:
            some = list(itertools.islice(parameters_of(optimizer), _MOST_LOOKED_AT))
            parameter = next((p for p in some if p.grad is not None), some[0] if some else None)
        if self.carried is not _nothing:
            carried = self.carried()
            was_used = carried is not None and parameter is not None and parameter.grad is carried
            # Who gathers may still drop what the last batches of a pass have left.
            self.uses_carried = self.uses_carried or was_used
            self.carried = _nothing
        self.turn, self.backwards, self.behind = turn, backwards, ()
        self.sample = _Sample() if parameter is None else _Sample.of(parameter)

    def waits(self) -> bool:
        """Whether it will step on gradients that came after its last step."""
        if not self.sample.has_other_gradient():
            return any(sample.has_other_gradient() for sample in self.behind)
        gradient = self.sample.parameter().grad
        if self.carried() is None:
            self.carried = weakref.ref(gradient)
        self.carried_version = _version(gradient)
        return self.uses_carried is not False


class WaitingGradients:
    """Asked once at the end of each turn of the loop; told of everything else as it happens."""

    def __init__(self) -> None:
        self.is_capturing: Callable[[], bool] = lambda: False
        """Whether a CUDA graph is being captured now."""
        self.is_training: Callable[[], bool] = lambda: False
        """Whether this thread, which is not the one that runs the loop, trains all the same."""
        self._is_asked = False
        self._thread = -1
        self._stepping: dict[int, _Stepping] = {}
        self._named: list[_Owner] = []
        """What is saved; where it is known, no other optimizer matters."""
        self._needs_step = False
        """Whether optimizers are named."""
        self._unheard: list[tuple[_Owner, _Sample]] = []
        """Of those, who was not heard to step."""
        self._turn = 0
        self._heard_in = self._began_in = -1
        """Turns in which an optimizer was heard last, and a backward pass."""
        self._written_in = -1
        """In which an optimizer that is never heard was seen to have stepped last."""
        self._without_step = 0
        """Turns in a row in which none of those named has stepped."""
        self._waited = False
        """At the end of the turn before."""
        self._backwards = 0
        self._used = 0
        """So many backward passes had been heard when an optimizer was heard last."""
        self._graph_has_backward = self._graph_has_step = False

    def expect(self, owners: Iterable[Any]) -> None:
        """Whose gradients matter: optimizers, else modules. Before it, nothing is noted."""
        self._thread = threading.get_ident()
        self._named = [_Owner(weakref.ref(owner)) for owner in owners]
        self._needs_step = any(_is_optimizer(owner.thing()) for owner in self._named)
        self._unheard = [(owner, _Sample()) for owner in self._named]
        self._is_asked = True

    def note_backward(self) -> None:
        """A backward pass begins."""
        if not self._is_asked or self._is_elsewhere():
            return
        for one in list(self._stepping.values()):
            if self._began_in != self._turn:
                one.note_backward()
            if one.turn == self._turn and one.backwards == self._backwards and self._needs_step:
                one.note_backward_behind()
        self._began_in = self._turn
        self._backwards += 1
        if self.is_capturing():
            self._graph_has_backward = True

    def note_step(self, optimizer: Any) -> None:
        """An optimizer has used its gradients, or a scaler has passed it over."""
        if not self._is_asked or self._is_elsewhere():
            return
        if self.is_capturing():
            self._graph_has_step = True
        self._heard_in, self._used = self._turn, self._backwards
        known = self._stepping.get(id(optimizer))
        if known is None or known.thing() is not optimizer:
            known = self._stepping[id(optimizer)] = _Stepping(weakref.ref(optimizer))
        known.note_step(optimizer, self._turn, self._backwards)

    def end_turn(self, is_turn: bool = True) -> bool:
        """Whether gradients wait now, between two batches. Not `is_turn`: a loop only begins, and
        what waited at the end of the one before does so still."""
        if not self._is_asked:
            return False
        self._thread = threading.get_ident()
        is_heard, is_used = self._heard_in == self._turn, self._used == self._backwards
        is_simple = len(self._stepping) == 1 and not self._unheard and is_heard and is_used
        waits = not is_simple and self._look(is_heard, is_used, is_turn)
        if is_simple:
            self._without_step = 0
        self._turn += 1
        self._waited = waits or (self._waited and not is_turn)
        return self._waited

    def _is_elsewhere(self) -> bool:
        """Whether this thread has nothing to do with the training: it may train something else."""
        return threading.get_ident() != self._thread and not self.is_training()

    def _look(self, is_heard: bool, is_used: bool, is_turn: bool) -> bool:
        """All are looked at, also where one is enough: the next look needs what this one notes."""
        self._sort_out()
        unheard = [self._does_unheard_wait(n, is_used) for n in range(len(self._unheard))]
        stepping = [self._does_wait(one, is_heard) for one in list(self._stepping.values())]
        if is_turn and self._needs_step and not self._graph_has_step:
            if self._has_named_stepped():
                self._without_step = 0
                return any(unheard) or any(stepping)
            self._without_step += 1
            if self._without_step <= MOST_GATHERED:
                return True
        if not self._stepping:
            if not is_used and unheard and not any(unheard):
                self._used = self._backwards
            return any(unheard) or not (is_used or unheard)
        if is_used and not is_heard and self._graph_has_backward and not self._graph_has_step:
            return True  # a graph is silent when it is replayed
        return not is_used or any(unheard) or any(stepping)

    def _has_named_stepped(self) -> bool:
        """Whether one of the optimizers that are named has used its gradients in this turn, or one
        that steps its parameters for it."""
        if self._written_in == self._turn:
            return True
        heard = [one for one in list(self._stepping.values()) if one.turn == self._turn]
        if not heard:
            return False
        if any(owner.thing() is one.thing() for owner in self._named for one in heard):
            return True
        parameters = [p for one in heard if (p := one.sample.parameter()) is not None]
        return any(owner.owns(p) for owner in self._named for p in parameters)

    def _does_wait(self, one: _Stepping, is_heard: bool) -> bool:
        if one.turn == self._turn and one.backwards == self._backwards:
            return False
        parameter = one.sample.parameter()
        if parameter is None or (one.turn != self._turn and self._was_stepped(parameter)):
            return False  # put aside for another optimizer
        if self._named and not any(owner.owns(parameter) for owner in self._named):
            return False
        # Gradients that nobody was heard to make are gathered in some way of the script's own.
        return one.waits() or (not is_heard and one.sample.has_other_gradient())

    def _does_unheard_wait(self, number: int, is_used: bool) -> bool:
        """Of one that was never heard. Inside another it is not, nor where torch.compile has taken
        it in whole; then its weights are written."""
        owner, before = self._unheard[number]
        known, thing = before.parameter(), owner.thing()
        parameter = known
        if parameter is None or parameter.grad is None:
            parameter = _first_with_gradient(thing)
        if parameter is None:
            return False
        self._unheard[number] = (owner, _Sample.of(parameter))
        is_seen = parameter is known or _is_optimizer(thing)
        is_written = known is not None and _version(known) != before.weight_version
        if (is_seen and is_written) or self._was_stepped(parameter) or self._has_inner(thing):
            if _is_optimizer(thing):
                self._written_in = self._turn
            return False
        if parameter.grad is None:  # of a sharded one it may lie elsewhere
            return not is_used and hasattr(parameter, "to_local")
        return True

    def _has_inner(self, thing: Any) -> bool:
        """Whether an optimizer inside of it stepped, on copies of the weights, say."""
        inside = getattr(thing, "__dict__", {}).values()
        heard = ((self._stepping.get(id(value)), value) for value in inside)
        return any(
            one is not None and one.turn == self._turn and one.thing() is value
            for one, value in heard
        )

    def _was_stepped(self, parameter: Any) -> bool:
        stepped = (one for one in list(self._stepping.values()) if one.turn == self._turn)
        return any(one.owns(parameter) for one in stepped)

    def _sort_out(self) -> None:
        """Forget who is gone; and modules, once an optimizer was heard."""
        for key in [key for key, one in list(self._stepping.items()) if one.thing() is None]:
            self._stepping.pop(key, None)
        self._unheard = [
            (owner, sample)
            for owner, sample in self._unheard
            if (thing := owner.thing()) is not None
            and id(thing) not in self._stepping
            and (_is_optimizer(thing) or not self._stepping)
        ]


def parameters_of(owner: Any) -> Iterator[Any]:
    """Of an optimizer, or of a module; of what is gone: none."""
    groups = getattr(owner, "param_groups", None)
    if groups is not None:
        for group in groups:
            yield from group["params"]
    elif owner is not None:
        yield from owner.parameters()


def _first_with_gradient(owner: Any) -> Any:
    trained = [p for p in parameters_of(owner) if p.requires_grad]
    return next((p for p in trained if p.grad is not None), trained[0] if trained else None)


def _is_optimizer(owner: Any) -> bool:
    return hasattr(owner, "param_groups")


def _version(tensor: Any) -> int:
    """Rises with each writing. Of tensors that were made for inference none is kept."""
    try:
        return int(tensor._version)
    except RuntimeError:
        return -1
