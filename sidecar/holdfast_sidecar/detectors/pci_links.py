"""Whether GPUs compute behind links narrower or slower than they can be; remembered over idleness.

A GPU with nothing to do slows its link down to save power, so an idle reading says nothing new:
what counts is what was last seen at work, or a link that is as good as it can be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast_sidecar.readings.gpu import Gpu, Signal

AT_WORK_RATIO = 0.05
"""A GPU that was busy in a twentieth of the sampling time had its link awake at the end of it."""


@dataclass(frozen=True)
class Link:
    """Lanes and PCIe generation."""

    width: int
    generation: int

    def is_below(self, other: Link) -> bool:
        """Whether either is less."""
        return self.width < other.width or self.generation < other.generation

    @property
    def words(self) -> str:
        """As on a data sheet."""
        return f"PCIe {self.generation} x{self.width}"


@dataclass(frozen=True)
class LinkMemory:
    """By the GPU's UUID: the best link it was ever seen with, and what is wrong with it since."""

    best: Mapping[str, Link] = field(default_factory=dict)
    wrong: Mapping[str, str] = field(default_factory=dict)

    def slow(self, uuid: str) -> str:
        """What is less than it should be; empty: nothing that is known of."""
        return self.wrong.get(uuid, "")


def remember_links(memory: LinkMemory, gpus: Iterable[Gpu]) -> LinkMemory:
    """The memory with what these GPUs say now."""
    best, wrong = dict(memory.best), dict(memory.wrong)
    for gpu in gpus:
        if (link := _link(gpu)) is None:
            continue
        had = best.get(gpu.uuid, link)
        best[gpu.uuid] = Link(max(had.width, link.width), max(had.generation, link.generation))
        able = _most(gpu) or best[gpu.uuid]
        if not link.is_below(able):
            wrong.pop(gpu.uuid, None)
        elif (gpu.value(Signal.BUSY) or 0.0) >= AT_WORK_RATIO:
            wrong[gpu.uuid] = f"{link.words}, which could be {able.words}"
    return memory if (best, wrong) == (memory.best, memory.wrong) else LinkMemory(best, wrong)


def _link(gpu: Gpu) -> Link | None:
    return _of(gpu, Signal.PCIE_WIDTH, Signal.PCIE_GENERATION)


def _most(gpu: Gpu) -> Link | None:
    """What GPU, slot and board can do together, as the driver says."""
    return _of(gpu, Signal.PCIE_WIDTH_MOST, Signal.PCIE_GENERATION_MOST)


def _of(gpu: Gpu, width: Signal, generation: Signal) -> Link | None:
    wide, fast = gpu.value(width), gpu.value(generation)
    if gpu.lost or not wide or not fast or wide < 0 or fast < 0:
        return None
    return Link(int(wide), int(fast))
