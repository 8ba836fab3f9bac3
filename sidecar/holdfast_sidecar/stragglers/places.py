"""Where all ranks of an attempt stand, from what their nodes report of them. Pure.

Ranks are compared with those of their role alone. Of equal role are those whose launchers say so
(`--role`), whose scripts say so, and who hold the same stage of a pipeline.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from holdfast_sidecar.records.rank import RankReport
from holdfast_sidecar.stragglers.layout import PIPELINE, parse_groups, parse_layout
from holdfast_sidecar.stragglers.place import Place


def find_places(
    nodes: Mapping[str, Iterable[RankReport]], roles: Mapping[int, str]
) -> dict[int, Place]:
    """Of the ranks that are still at it. roles: rank -> what its launcher's `--role` says."""
    return {
        rank.rank: _place(rank.rank, node, rank.layout, tuple(rank.groups), roles.get(rank.rank))
        for node, ranks in nodes.items()
        for rank in ranks
        if rank.alive and not rank.has_finished
    }


@lru_cache(maxsize=16384)
def _place(
    rank: int, node: str, layout: str, groups: tuple[str, ...], launched_as: str | None
) -> Place:
    """Remembered, as it hardly ever changes and is asked of thousands of ranks every second."""
    coordinate, shape, called, micro_batches = parse_layout(layout)
    stage = f"{PIPELINE} {coordinate[PIPELINE]}" if shape.get(PIPELINE, 1) > 1 else ""
    return Place(
        rank=rank,
        node=node,
        role=", ".join(filter(None, (launched_as, called, stage))),
        coordinate=coordinate,
        shape=shape,
        groups=parse_groups(list(groups)),
        micro_batches=micro_batches,
    )
