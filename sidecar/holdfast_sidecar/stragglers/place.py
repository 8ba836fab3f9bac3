"""Where a rank stands: on which node, with whom it is compared, in which process groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from holdfast_sidecar.records.steps import Group, StepLine
from holdfast_sidecar.stragglers.described_groups import PIPELINE

OF_A_MESH = "mesh_"
"""So torch calls the groups of a DeviceMesh, with the name of the dimension behind it."""

_WAITS = tuple(StepLine._fields.index(f"wait_{slot}") for slot in (1, 2, 3, 4))


@dataclass(frozen=True)
class Place:
    """One rank."""

    rank: int
    node: str
    role: str = ""
    """Ranks of equal role have the same kind of work: they are compared with one another."""
    coordinate: Mapping[str, int] = field(default_factory=dict)
    """Dimension of the parallel layout (`dp`, `tp`, `pp`) -> where it stands; empty: not known."""
    shape: Mapping[str, int] = field(default_factory=dict)
    """Dimension -> how many there are."""
    groups: tuple[Group | None, ...] = (None, None, None, None)
    """Those whose waits its lines tell apart, in their order."""
    has_device: bool = False
    """It trains on a GPU."""
    is_host_only: bool = False
    """It trains on none, and all its process groups are gloo's: devices of other kinds, which
    nobody asks here, have backends of their own."""

    is_unknown_stage: bool = False
    """It sends to others and hears from them in each step, and nothing tells what it does of the
    work: its role is like nobody else's."""

    micro_batches: int = 0
    """Into so many its pipeline cuts a batch; 0: not known."""

    @property
    def stages(self) -> int:
        """Of its pipeline; 1: it is in none."""
        return self.shape.get(PIPELINE, 1)

    @cached_property
    def waits_elsewhere(self) -> tuple[int, ...]:
        """The fields of its lines in which it waits for others than its pipeline's stages."""
        groups = zip(_WAITS, self.groups, strict=True)
        return tuple(at for at, group in groups if group and not _is_pipeline(group, self.stages))


def _is_pipeline(group: Group, stages: int) -> bool:
    """Stages may also send each other messages in a group of all ranks; then it has their number
    only where there is nothing but the pipeline."""
    if group.title.startswith(OF_A_MESH):
        return group.title == OF_A_MESH + PIPELINE
    title = group.title.casefold()
    return PIPELINE in title or "pipe" in title or group.size == stages
