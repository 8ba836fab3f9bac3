"""Puts a rank's state into a slot: where each tensor lies there, and what copies it.

Which slot, and when, is `taking`'s affair.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from holdfast.guard import Guard
from holdfast.recording.placement import Placement
from holdfast.snapshots import layout
from holdfast.snapshots.captured import Captured, steady_places
from holdfast.snapshots.copying import Copier, Copying, GpuCopier, HostCopier
from holdfast.snapshots.layout import SlotLayout
from holdfast.snapshots.slot import Author, Slot, Writing
from holdfast.state.registered import Registered


@dataclass
class Filling:
    """The layout of one rank's slots, kept for as long as its state fits into it."""

    author: Author
    place: Placement
    registered: Registered
    guard: Guard
    """Of what optimizers call."""
    planned: SlotLayout | None = None
    """None: nothing was planned yet."""
    _copier: Copier = field(default_factory=HostCopier)
    _listening: Any = None
    """What ends the hearing of optimizers' steps."""
    _is_paged: bool = False
    """Whether a GPU writes into some of what seems to lie in host memory (bitsandbytes)."""
    _views: dict[Slot, list[torch.Tensor]] = field(default_factory=dict)

    def plan(self, captured: Captured) -> SlotLayout:
        """Work out anew where everything goes. Raises CannotLayOut."""
        self.planned = layout.plan(captured.sources, len(captured.text), self.place)
        self._views.clear()
        on_gpus = (source.tensor for source in captured.sources if source.tensor.is_cuda)
        if devices := tuple(dict.fromkeys(tensor.device for tensor in on_gpus)):
            self._copy_from_gpus(devices)
        self._is_paged = any(
            getattr(value, "is_paged", False)
            for optimizer in self.registered.optimizers.values()
            for values in optimizer.state.values()
            for value in values.values()
        )
        return self.planned

    def fill(
        self, step: int, captured: Captured, slot: Slot, writing: Writing, may_overlap: bool
    ) -> Copying:
        """Begin to copy what fits. `may_overlap`: it may go on behind the next step."""
        assert self.planned is not None
        writing.describe(self.author, self.planned, step)
        writing.state(captured.text)
        self._listen()
        tensors = [source.tensor for source in captured.sources]
        # What is pinned is there to be written into by a GPU, without waiting (`non_blocking`).
        if self._is_paged or any(tensor.is_cpu and tensor.is_pinned() for tensor in tensors):
            self._copier.await_devices()
        aside = [False] * len(tensors)
        if may_overlap and self._copier.heard:
            places = steady_places(self.registered, self._copier.heard)
            aside = [tensor.data_ptr() in places for tensor in tensors]
        return self._copier.start(self._views_of(slot, self.planned), tensors, aside)

    def prepare(self, slot: Slot) -> None:
        """Make a slot ready to be copied into at full speed, and say so."""
        try:
            slot.populate()
            self._copier.register(slot.address, slot.size, lambda: not slot.is_dropped)
        finally:
            slot.say_ready()

    def drop(self, slot: Slot) -> None:
        """A slot is about to be unmapped, once the thread that prepares it lets go of it."""
        self._views.pop(slot, None)
        slot.is_dropped = True
        self._copier.unregister(slot.address)

    def leave(self) -> None:
        """No more is copied for now. Optimizers call nothing of it until there is."""
        if self._listening is not None:
            self._listening.remove()
            self._listening = None

    def _copy_from_gpus(self, devices: tuple[torch.device, ...]) -> None:
        if isinstance(self._copier, GpuCopier):
            self._copier.lay_out(devices)
        else:
            self._copier = GpuCopier(devices, guard=self.guard)
        self._listen()

    def _listen(self) -> None:
        if self._listening is None and isinstance(self._copier, GpuCopier):
            self._listening = self._copier.listen()

    def _views_of(self, slot: Slot, planned: SlotLayout) -> list[torch.Tensor]:
        views = self._views.get(slot)
        if views is None:
            data = slot.data(planned.data_offset, planned.data_size)
            views = [layout.view(data, entry) for entry in planned.entries]
            self._views[slot] = views
        return views
