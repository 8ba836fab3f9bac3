"""Copies a rank's tensors into a slot, at the speed of memory.

From a GPU the copy may overlap the next forward and backward pass; then the optimizer waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Protocol

import torch

_PORTABLE = 1
"""cudaHostRegisterPortable: pinned for every device of this process."""


class Copying(Protocol):
    """One copy that was begun."""

    def is_done(self) -> bool:
        """Whether every byte is there; never waits."""

    def wait(self) -> bool:
        """Wait until every byte is there; False when what was copied may have changed meanwhile."""


class Copier(Protocol):
    """How the tensors of a rank are copied."""

    @property
    def overlaps(self) -> bool:
        """Whether a copy may go on behind the next step."""

    def register(self, address: int, size: int) -> None:
        """Make memory ready to be copied into; called in a thread of its own."""

    def unregister(self, address: int) -> None:
        """That memory is about to go."""

    def start(
        self,
        targets: Sequence[torch.Tensor],
        tensors: Sequence[torch.Tensor],
        aside: Sequence[bool],
    ) -> Copying:
        """Copy each tensor into its target; those marked `aside` may be copied a little later."""


def copy_all(
    targets: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor], non_blocking: bool = False
) -> None:
    """Copy each tensor into its target, in one call per kind of number and device."""
    groups: dict[tuple[torch.dtype, torch.device], tuple[list[Any], list[Any]]] = {}
    for target, tensor in zip(targets, tensors, strict=True):
        into, out_of = groups.setdefault((tensor.dtype, tensor.device), ([], []))
        into.append(target)
        out_of.append(tensor)
    with torch.no_grad():
        for into, out_of in groups.values():
            torch._foreach_copy_(into, out_of, non_blocking=non_blocking)


class Done:
    """A copy that was finished when it was begun."""

    def is_done(self) -> bool:
        """It is."""
        return True

    def wait(self) -> bool:
        """Nothing to wait for."""
        return True


class HostCopier:
    """State in host memory: copied here and now."""

    overlaps = False

    def register(self, address: int, size: int) -> None:
        """Host memory needs no registering."""

    def unregister(self, address: int) -> None:
        """Nor this."""

    def start(
        self,
        targets: Sequence[torch.Tensor],
        tensors: Sequence[torch.Tensor],
        aside: Sequence[bool],
    ) -> Copying:
        """Copy."""
        copy_all(targets, tensors)
        return Done()


class GpuCopier:
    """State on GPUs: copied by a side stream while training goes on, where that is safe.

    What only an optimizer changes may be copied aside, because the optimizer's pre-step hook makes
    its stream wait for the copy; what something else has changed by then spoils it. The rest
    (buffers, say) is copied in the training's own stream, before anything that follows. Where no
    hook can be relied on (a captured graph steps the optimizer without one), everything is, and
    waited for.
    """

    def __init__(self, cuda: Any = torch.cuda) -> None:
        self._cuda = cuda
        self._device = cuda.current_device()
        self._streams: dict[Any, Any] = {}
        self._under_way: _UnderWay | None = None
        self._registered: set[int] = set()
        self._lock = threading.Lock()
        self._has_stepped = False
        self._is_captured = False

    @property
    def overlaps(self) -> bool:
        """Whether the hook was heard since the last copy: a graph that is replayed is silent."""
        return self._has_stepped and not self._is_captured

    def before_step(self, *_: Any) -> None:
        """An optimizer is about to change what is being copied."""
        if self._is_captured:
            return
        copy = self._under_way
        if self._cuda.is_current_stream_capturing():
            # A wait for what lies outside would break the user's graph.
            self._is_captured = True
            if copy is not None:
                copy.spoil()
            return
        self._has_stepped = True
        if copy is not None:
            self._under_way = None
            copy.hold_back()

    def register(self, address: int, size: int) -> None:
        """Pin memory, else each copy would go through a buffer of the driver's, and wait."""
        with self._cuda.device(self._device), self._lock:
            if int(self._cuda.cudart().cudaHostRegister(address, size, _PORTABLE)) == 0:
                self._registered.add(address)

    def unregister(self, address: int) -> None:
        """Unpin memory before it is unmapped."""
        with self._lock:
            if address in self._registered:
                self._registered.remove(address)
                self._cuda.cudart().cudaHostUnregister(address)

    def start(
        self,
        targets: Sequence[torch.Tensor],
        tensors: Sequence[torch.Tensor],
        aside: Sequence[bool],
    ) -> Copying:
        """Copy; without anything aside it is finished here."""
        now: list[tuple[torch.Tensor, torch.Tensor]] = []
        later: dict[Any, list[tuple[torch.Tensor, torch.Tensor]]] = {}
        for target, tensor, may_wait in zip(targets, tensors, aside, strict=True):
            pairs = later.setdefault(tensor.device, []) if may_wait and tensor.is_cuda else now
            pairs.append((target, tensor))
        events = self._copy_in_line(now)
        events += [self._copy_aside(device, pairs) for device, pairs in later.items()]
        aside_tensors = [tensor for pairs in later.values() for _, tensor in pairs]
        copy = _UnderWay(self._cuda, events, aside_tensors)
        self._has_stepped = False
        if later:
            self._under_way = copy
        else:
            copy.wait()
        return copy

    def _copy_in_line(self, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> list[Any]:
        copy_all([target for target, _ in pairs], [tensor for _, tensor in pairs], True)
        devices = dict.fromkeys(tensor.device for _, tensor in pairs if tensor.is_cuda)
        return [
            (device, self._cuda.current_stream(device).record_event(self._cuda.Event()))
            for device in devices
        ]

    def _copy_aside(self, device: Any, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> Any:
        stream = self._streams.get(device)
        if stream is None:
            stream = self._streams[device] = self._cuda.Stream(device)
        stream.wait_stream(self._cuda.current_stream(device))
        with self._cuda.stream(stream):
            copy_all([target for target, _ in pairs], [tensor for _, tensor in pairs], True)
        for _, tensor in pairs:
            # Else memory that is let go of could become something else while it is read.
            tensor.record_stream(stream)
        return device, stream.record_event(self._cuda.Event())


class _UnderWay:
    """A copy whose end is told by one event per device and stream."""

    def __init__(self, cuda: Any, events: list[Any], aside: list[torch.Tensor]) -> None:
        self._cuda = cuda
        self._events = events
        self._unchanged = [(tensor, tensor._version) for tensor in aside]
        """As they were, until the training waits for the copy: then they may change."""
        self._is_spoilt = False

    def is_done(self) -> bool:
        """Asks each event; never waits."""
        return all(event.query() for _, event in self._events)

    def wait(self) -> bool:
        """Wait for each event."""
        for _, event in self._events:
            event.synchronize()
        self._look()
        return not self._is_spoilt

    def hold_back(self) -> None:
        """Let the training's streams wait for the copy, without waiting here."""
        self._look()
        for device, event in self._events:
            self._cuda.current_stream(device).wait_event(event)

    def spoil(self) -> None:
        """What is copied may have changed meanwhile."""
        self._is_spoilt = True

    def _look(self) -> None:
        """A script may write into its weights between optimizer steps; torch counts such writes."""
        if any(tensor._version != version for tensor, version in self._unchanged):
            self.spoil()
        self._unchanged = []
