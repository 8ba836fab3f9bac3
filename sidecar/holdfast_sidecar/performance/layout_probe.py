"""What this node's ranks say of where they stand: two small files beside each page.

They are written when process groups and device meshes are made, and read when they changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.contract import page
from holdfast_sidecar.linux.files import read_if_any
from holdfast_sidecar.performance.stragglers.placement import spell_groups, spell_layout
from holdfast_sidecar.ranks.page import RankPage
from holdfast_sidecar.records.steps import NOWHERE, Standing

EVERY_S = 1.0

MOST_BYTES = 1 << 20
"""The ranks of a hundred groups of a thousand are written in half of that."""

Version = tuple[int, int, int] | None
"""Of a file; None: there is none."""


@dataclass
class LayoutsProbe:
    """Reads each file once as long as it stays the same."""

    held: Callable[[], Sequence[RankPage]]
    name: str = "layouts"
    _known: dict[Path, tuple[tuple[Version, Version], Standing]] = field(default_factory=dict)

    def read(self, now_s: float) -> dict[int, Standing]:
        """By rank; those that say nothing are left out."""
        self._known = {held.path: self._look_at(held) for held in self.held()}
        ranks = {held.identity.rank: self._known[held.path][1] for held in self.held()}
        return {rank: standing for rank, standing in ranks.items() if standing != NOWHERE}

    def _look_at(self, held: RankPage) -> tuple[tuple[Version, Version], Standing]:
        path = held.path
        layout, groups = path.with_suffix(page.LAYOUT_SUFFIX), path.with_suffix(page.GROUPS_SUFFIX)
        versions = (_version(layout), _version(groups))
        known = self._known.get(path)
        if known is not None and known[0] == versions:
            return known
        in_groups = read_if_any(groups, MOST_BYTES)
        standing = Standing(
            spell_layout(read_if_any(layout, MOST_BYTES), in_groups, held.identity.rank),
            tuple(spell_groups(in_groups)),
        )
        return versions, standing


def _version(path: Path) -> Version:
    try:
        facts = path.stat()
    except OSError:
        return None
    return (facts.st_ino, facts.st_mtime_ns, facts.st_size)
