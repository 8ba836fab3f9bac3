"""Which ranks share a role and which a node, counted once per change of places, not per frame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast_sidecar.stragglers.place import Place


@dataclass
class Census:
    """Of the places that were read last."""

    by_role: dict[str, list[int]] = field(default_factory=dict)
    by_node: dict[str, list[int]] = field(default_factory=dict)
    _places: Mapping[int, Place] | None = None

    def read(self, places: Mapping[int, Place]) -> None:
        """Count again if anything is another than before."""
        if places is self._places or places == self._places:
            return
        self._places, self.by_role, self.by_node = dict(places), {}, {}
        for rank, place in places.items():
            self.by_role.setdefault(place.role, []).append(rank)
            self.by_node.setdefault(place.node, []).append(rank)
