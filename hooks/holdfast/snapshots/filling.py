"""Puts a rank's state into a slot: where each tensor lies there, and what copies it.

Which slot, and when, is `taking`'s affair.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from holdfast.placement import Placement
from holdfast.registered import Registered
from holdfast.snapshots import layout
from holdfast.snapshots.captured import Captured, steady_places
from holdfast.snapshots.copying import Copier, Copying, GpuCopier, HostCopier
from holdfast.snapshots.layout import Layout
from holdfast.snapshots.slot import Author, Slot, Writing


@dataclass
class Filling:
    """The layout of one rank's slots, kept for as long as its state fits into it."""

    author: Author
    place: Placement
    registered: Registered
    planned: Layout | None = None
    """None: nothing was planned yet."""
    _copier: Copier = field(default_factory=HostCopier)
    _views: dict[Slot, list[torch.Tensor]] = field(default_factory=dict)

    def plan(self, captured: Captured) -> Layout:
        """Work out anew where everything goes. Raises CannotLayOut."""
        self.planned = layout.plan(captured.sources, len(captured.text), self.place)
        self._views.clear()
        if any(source.tensor.is_cuda for source in captured.sources):
            self._copy_from_gpus()
        return self.planned

    def fill(
        self, step: int, captured: Captured, slot: Slot, writing: Writing, may_overlap: bool
    ) -> Copying:
        """Begin to copy what fits. `may_overlap`: it may go on behind the next step."""
        assert self.planned is not None
        writing.describe(self.author, self.planned, step)
        writing.state(captured.text)
        tensors = [source.tensor for source in captured.sources]
        aside = [False] * len(tensors)
        if may_overlap and self._copier.overlaps:
            places = steady_places(self.registered)
            aside = [tensor.data_ptr() in places for tensor in tensors]
        return self._copier.start(self._views_of(slot, self.planned), tensors, aside)

    def prepare(self, slot: Slot) -> None:
        """Make a slot ready to be copied into at full speed, and say so."""
        try:
            slot.populate()
            self._copier.register(slot.address, slot.size)
        finally:
            slot.say_ready()

    def drop(self, slot: Slot) -> None:
        """A slot is about to be unmapped."""
        self._views.pop(slot, None)
        self._copier.unregister(slot.address)

    def _copy_from_gpus(self) -> None:
        if isinstance(self._copier, HostCopier):
            from torch.optim.optimizer import register_optimizer_step_pre_hook

            self._copier = copier = GpuCopier()
            register_optimizer_step_pre_hook(copier.before_step)

    def _views_of(self, slot: Slot, planned: Layout) -> list[torch.Tensor]:
        views = self._views.get(slot)
        if views is None:
            data = slot.data(planned.data_offset, planned.data_size)
            views = [layout.view(data, entry) for entry in planned.entries]
            self._views[slot] = views
        return views
