"""Which ranks share a role, a node or a pipeline stage, counted once per change of places, not per
frame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast_sidecar.stragglers.described_groups import PIPELINE
from holdfast_sidecar.stragglers.place import Place


@dataclass
class Census:
    """Of the places that were read last."""

    by_role: dict[str, list[int]] = field(default_factory=dict)
    by_node: dict[str, list[int]] = field(default_factory=dict)
    by_stage: dict[int, list[int]] = field(default_factory=dict)
    """Both in order; without the ranks that are in no pipeline."""
    _places: Mapping[int, Place] | None = None

    def read(self, places: Mapping[int, Place]) -> bool:
        """Count again if anything is another than before; whether it is. The places are held, and
        nobody changes them there."""
        before, self._places = self._places, places
        if places is before or places == before:
            return False
        self.by_role, self.by_node = {}, {}
        stages: dict[int, list[int]] = {}
        for rank, place in places.items():
            self.by_role.setdefault(place.role, []).append(rank)
            self.by_node.setdefault(place.node, []).append(rank)
            if PIPELINE in place.coordinate:
                stages.setdefault(place.coordinate[PIPELINE], []).append(rank)
        self.by_stage = {stage: sorted(ranks) for stage, ranks in sorted(stages.items())}
        return True
