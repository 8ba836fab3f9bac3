"""Copies a rank's tensors into a slot, at the speed of memory.

From a GPU the copy may overlap the next forward and backward pass; then the optimizer waits for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import threading
import weakref
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from holdfast.guard import Guard
from holdfast.snapshots.aside import Aside, Copied, CopyUnderWay, Part, Samples

log = logging.getLogger(__name__)

_RELAXED = 2
"""cudaStreamCaptureModeRelaxed."""

SPOILS = 2
"""Copies that a tensor may spoil in a row before it is no longer copied aside. Once is an event
(weights are loaded, or exchanged for an evaluation); twice running is how this script trains."""

_PORTABLE = 1
"""cudaHostRegisterPortable: pinned for every device of this process."""


class Copying(Protocol):
    """One copy that was begun."""

    def is_done(self) -> bool:
        """Whether every byte is there; never waits."""

    def wait(self) -> bool:
        """Wait until every byte is there; False when what was copied may have changed meanwhile."""

    def kept_ns(self) -> int:
        """For how long it kept the device from training, as far as is known once it is over; rather
        too much than too little."""


class Copier(Protocol):
    """How the tensors of a rank are copied."""

    @property
    def heard(self) -> Collection[Any]:
        """Optimizers that told of a step since the last copy: until the next one of theirs, a copy
        of what they alone change may go on."""

    def register(self, address: int, size: int, is_wanted: Callable[[], bool]) -> None:
        """Make memory ready to be copied into; called in a thread of its own. What is not wanted
        any more in the end is undone."""

    def unregister(self, address: int) -> None:
        """That memory is not wanted any more. Waits for no thread."""

    def await_devices(self) -> None:
        """Wait for what was begun on the devices: they may write into host memory as well."""

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

    def kept_ns(self) -> int:
        """Only the host was kept."""
        return 0


class HostCopier:
    """State in host memory: copied here and now."""

    heard = ()

    def __init__(self, cuda: Any = torch.cuda) -> None:
        self._cuda = cuda

    def register(self, address: int, size: int, is_wanted: Callable[[], bool]) -> None:
        """Host memory needs no registering."""

    def unregister(self, address: int) -> None:
        """Nor this."""

    def await_devices(self) -> None:
        """The current one, if any: nothing tells which one writes into host memory."""
        if self._cuda.is_initialized():
            self._cuda.current_stream().synchronize()

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
    its stream wait for the copy; what something else has changed by then spoils it (samples show it
    where torch does not count the writes). The rest
    (buffers, say) is copied in the training's own stream, before anything that follows, and so is
    what has spoilt copies. Where no hook can be relied on (a captured graph or a compiled optimizer
    steps without one, and a hook that failed once held nobody back), everything is, and waited for.
    """

    def __init__(
        self, devices: Sequence[Any], cuda: Any = torch.cuda, guard: Guard | None = None
    ) -> None:
        self.devices = tuple(devices)
        """Where the tensors lie. The current device may be another one, on which whatever is asked
        of CUDA would make a context: the same GPU's memory, taken by every rank of the node."""
        self._cuda = cuda
        guard = guard or Guard(lambda: None)
        self.before_step = guard.wrap("snapshots before a step", self._before_step, None)
        """An optimizer is about to change what is being copied. Raises nothing of ours."""
        self._streams: dict[Any, Any] = {}
        self._under_way: CopyUnderWay | None = None
        self._pinned: dict[int, _Pinned] = {}
        self._spoils: dict[int, int] = {}
        """Place of a tensor in the layout -> copies in a row that were spoilt because it was
        written into. Not where it lies: scripts also put other memory in its place."""
        self._lock = threading.Lock()
        self._heard: weakref.WeakSet[Any] = weakref.WeakSet()
        self._is_unsafe = False
        """Whether an optimizer once stepped that could not be made to wait."""

    def lay_out(self, devices: Sequence[Any]) -> None:
        """The tensors are others from now on, on these devices."""
        self.devices = tuple(devices)
        self._spoils.clear()

    @property
    def heard(self) -> Collection[Any]:
        """Each for itself: one that is in a graph, replayed, is silent beside others."""
        return () if self._is_unsafe else self._heard

    def listen(self) -> Any:
        """Hear of every optimizer's step before it is made; answers a handle to end that.

        Nothing of it is traced by torch.compile: a compiled step is silent, as a captured one is.
        """
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        self._heard.clear()  # of a time before, since which nobody listened
        is_compiling = torch.compiler.is_compiling
        before_step = self.before_step

        def hear(optimizer: Any, *_: Any) -> None:
            if not is_compiling():
                before_step(optimizer)

        return register_optimizer_step_pre_hook(hear)

    def _before_step(self, optimizer: Any) -> None:
        if self._is_unsafe:
            return
        held_back = False
        try:
            held_back = self._hold_back(optimizer)
        finally:  # whatever ended it, a signal's handler too: the optimizer won't wait
            if not held_back:
                self._is_unsafe = True
                if self._under_way is not None:
                    self._under_way.spoil()

    def _hold_back(self, optimizer: Any) -> bool:
        """Whether the optimizer that is about to step waits for the copy."""
        if any(map(self._is_capturing, self.devices)):
            # A wait for what lies outside would break the user's graph.
            return False
        self._heard.add(optimizer)
        copy = self._under_way
        if copy is not None:
            copy.hold_back()
            if copy.is_done():
                self._under_way = None
        return True

    def _is_capturing(self, device: Any) -> bool:
        with self._cuda.device(device):
            return bool(self._cuda.is_current_stream_capturing())

    def register(self, address: int, size: int, is_wanted: Callable[[], bool]) -> None:
        """Pin memory, else each copy would go through a buffer of the driver's, and wait.

        In one piece: a copy into two that are pinned side by side may be refused.
        """
        pinned = _Pinned()
        with self._lock:
            if not is_wanted():
                return
            self._pinned[address] = pinned
        with self._cuda.device(self.devices[0]):
            _let_others_capture()
            is_pinned = int(self._cuda.cudart().cudaHostRegister(address, size, _PORTABLE)) == 0
        with self._lock:
            pinned.is_ready = True
            is_kept = is_pinned and is_wanted()
            if not is_kept:
                del self._pinned[address]
        if is_pinned and not is_kept:
            self._unpin(address)

    def unregister(self, address: int) -> None:
        """Unpin memory before it is unmapped; while it is being pinned, that thread will."""
        with self._lock:
            pinned = self._pinned.get(address)
            if pinned is None or not pinned.is_ready:
                return
            del self._pinned[address]
        self._unpin(address)

    def _unpin(self, address: int) -> None:
        with self._cuda.device(self.devices[0]):
            self._cuda.cudart().cudaHostUnregister(address)

    def await_devices(self) -> None:
        """Wait for the training's streams."""
        for device in self.devices:
            self._cuda.current_stream(device).synchronize()

    def start(
        self,
        targets: Sequence[torch.Tensor],
        tensors: Sequence[torch.Tensor],
        aside: Sequence[bool],
    ) -> Copying:
        """Copy; without anything aside it is finished here. What raises has ended as well."""
        try:
            return self._start(targets, tensors, aside)
        except BaseException:
            self._end_copies()
            raise

    def _start(
        self,
        targets: Sequence[torch.Tensor],
        tensors: Sequence[torch.Tensor],
        aside: Sequence[bool],
    ) -> Copying:
        now: list[int] = []
        later: dict[Any, list[int]] = {}
        for index, (tensor, may_wait) in enumerate(zip(tensors, aside, strict=True)):
            is_steady = may_wait and tensor.is_cuda and self._spoils.get(index, 0) < SPOILS
            (later.setdefault(tensor.device, []) if is_steady else now).append(index)
        parts = self._copy_in_line(Copied.of(now, targets, tensors))
        for device, indexes in later.items():
            parts.append(self._copy_aside(device, Copied.of(indexes, targets, tensors)))
        copy = CopyUnderWay(self._cuda, parts, self._note_spoilt)
        self._heard.clear()
        if later:
            self._under_way = copy
        else:
            copy.wait()
        return copy

    def _end_copies(self) -> None:
        """Wait for whatever was begun: its slot is about to be given back, and may be read or
        written by somebody else."""
        self._under_way = None
        streams = [self._cuda.current_stream(device) for device in self.devices]
        for stream in (*streams, *self._streams.values()):
            with contextlib.suppress(RuntimeError):  # a device that failed copies nothing any more
                stream.synchronize()

    def _note_spoilt(self, aside: Sequence[int], spoilt: Collection[int]) -> None:
        """Which of a copy's tensors were written into. What is copied in line is not in `aside`,
        and stays so."""
        was_told = SPOILS in self._spoils.values()
        for index in aside:
            if index in spoilt:
                self._spoils[index] = self._spoils.get(index, 0) + 1
            else:
                self._spoils.pop(index, None)
        if not was_told and SPOILS in self._spoils.values():
            log.warning(
                "holdfast: %d tensors are written before their optimizer steps, which spoilt %d "
                "snapshots in a row: from now on they are copied before the next step begins",
                sum(count >= SPOILS for count in self._spoils.values()),
                SPOILS,
            )

    def _copy_in_line(self, copied: Copied) -> list[Part]:
        copy_all(copied.targets, copied.tensors, True)
        devices = dict.fromkeys(tensor.device for tensor in copied.tensors if tensor.is_cuda)
        return [
            Part(device, self._cuda.current_stream(device).record_event(self._cuda.Event()))
            for device in devices
        ]

    def _copy_aside(self, device: Any, copied: Copied) -> Part:
        stream = self._streams.get(device)
        if stream is None:
            stream = self._streams[device] = self._cuda.Stream(device)
        with torch.no_grad():
            samples = Samples(copied.tensors)  # in the training's stream: as they are now
        stream.wait_stream(self._cuda.current_stream(device))
        begin = stream.record_event(self._cuda.Event(enable_timing=True))
        with self._cuda.stream(stream):
            copy_all(copied.targets, copied.tensors, True)
            samples.fetch(stream)
        for tensor in copied.tensors:
            # Else memory that is let go of could become something else while it is read.
            tensor.record_stream(stream)
        end = stream.record_event(self._cuda.Event(enable_timing=True))
        return Part(device, end, begin, Aside(copied, samples))


@dataclass
class _Pinned:
    """Memory that is pinned, or about to be."""

    is_ready: bool = False


def _let_others_capture() -> None:
    """From here on no call of this thread ends the capture of a CUDA graph in another one."""
    exchange = getattr(ctypes.CDLL(None), "cudaThreadExchangeStreamCaptureMode", None)
    if exchange is not None:
        exchange(ctypes.byref(ctypes.c_int(_RELAXED)))
