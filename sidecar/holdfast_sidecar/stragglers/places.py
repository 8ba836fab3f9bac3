"""Where all ranks of an attempt stand, from what their nodes report of them. Pure.

Ranks are compared with those of their role alone. Of equal role are those whose launchers say so
(`--role`), whose scripts say so, and who hold the same stage of a pipeline. Where ranks send to one
another in each step and it is not known which stage each holds, nobody has the role of another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from holdfast_sidecar.records.rank import RankReport
from holdfast_sidecar.stragglers.chains import Stage, find_stages
from holdfast_sidecar.stragglers.described_groups import PIPELINE
from holdfast_sidecar.stragglers.layout import WITH, parse_groups, parse_layout, parse_messages
from holdfast_sidecar.stragglers.place import Place


def find_places(
    nodes: Mapping[str, Iterable[RankReport]], roles: Mapping[int, str]
) -> dict[int, Place]:
    """Of the ranks that are still at it. roles: rank -> what its launcher's `--role` says."""
    known = {node: tuple(ranks) for node, ranks in nodes.items()}
    stages = _stages(
        tuple(
            (rank.rank, rank.layout)
            for ranks in known.values()
            for rank in ranks
            if WITH in rank.layout
        )
    )
    get = stages.get
    return {
        rank.rank: _place(
            rank.rank,
            node,
            rank.layout,
            tuple(rank.groups),
            roles.get(rank.rank),
            get(rank.rank),
            rank.memory_total > 0,
            rank.is_gloo_alone,
        )
        for node, ranks in known.items()
        for rank in ranks
        if rank.alive and not rank.has_finished
    }


UNKNOWN = Stage(-1, 0)


@lru_cache(maxsize=4)
def _stages(layouts: tuple[tuple[int, str], ...]) -> Mapping[int, Stage]:
    """Of the ranks whose messages say that they may be stages, and of those they name."""
    told = {rank: one for rank, text in layouts if (one := parse_messages(text)) is not None}
    named = {*told, *(peer for one in told.values() for peer in one.beside)}
    return find_stages(told) or dict.fromkeys(named, UNKNOWN)


@lru_cache(maxsize=16384)
def _place(
    rank: int,
    node: str,
    layout: str,
    groups: tuple[str, ...],
    launched_as: str | None,
    found: Stage | None,
    has_device: bool,
    is_gloo_alone: bool,
) -> Place:
    """Remembered, as it hardly ever changes and is asked of thousands of ranks every second."""
    coordinate, shape, called, micro_batches = parse_layout(layout)
    if found is not None and found is not UNKNOWN:
        coordinate = {**coordinate, PIPELINE: found.at}
        shape = {**shape, PIPELINE: found.of}
    stage = f"{PIPELINE} {coordinate[PIPELINE]}" if shape.get(PIPELINE, 1) > 1 else ""
    is_unknown = found is UNKNOWN and not stage and not called
    stage = f"stage of rank {rank}" if is_unknown else stage
    return Place(
        rank=rank,
        node=node,
        role=", ".join(filter(None, (launched_as, called, stage))),
        coordinate=coordinate,
        shape=shape,
        groups=parse_groups(list(groups)),
        is_unknown_stage=is_unknown,
        has_device=has_device,
        is_host_only=is_gloo_alone and not has_device,
        micro_batches=micro_batches,
    )
