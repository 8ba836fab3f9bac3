"""What a script says of its process groups when it makes them: `new_group(..., group_desc="pp")`.

A group of a well-known purpose places its members: along its dimension they stand in the order of
their ranks in it. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

PIPELINE = "pp"
"""What the dimension along which stages lie is called here; scripts have more names for it."""

_DIMENSIONS = {
    **dict.fromkeys(("pp", "pipe", "pipeline", "pipe_parallel"), PIPELINE),
    **dict.fromkeys(("pipeline_parallel", "pipeline_model_parallel"), PIPELINE),
    **dict.fromkeys(("tp", "tensor_parallel", "tensor_model_parallel"), "tp"),
    **dict.fromkeys(("dp", "data_parallel"), "dp"),
    **dict.fromkeys(("cp", "context_parallel"), "cp"),
}
"""Only names that mean one thing: Megatron's MODEL_PARALLEL_GROUP lies along two dimensions, its
experts' groups across the others, and a group called `stage` or `pp0` may as well be the ranks of
one stage."""

_WORDS = re.compile(r"[^a-z0-9]+")
_FRAME = re.compile(r"^mesh_|(_gloo|_nccl|_cpu|_process)?(_group|_groups|_pg)?(_gloo|_nccl|_cpu)?$")
"""Of a title, what is not the purpose: `mesh_pp` of a mesh, `DATA_PARALLEL_GROUP_GLOO`."""


class Dimension(NamedTuple):
    """Where a rank stands along it, and of how many."""

    name: str
    at: int
    size: int


def dimension_of(title: str) -> str:
    """That a group with this title lies along; empty where the title doesn't tell."""
    words = _WORDS.sub("_", title.casefold()).strip("_")
    return _DIMENSIONS.get(_FRAME.sub("", words), "")


def dimensions(groups: Mapping[str, Any], rank: int) -> list[Dimension]:
    """Those along which this rank's groups place it. Where groups of one purpose place it in
    different ways nothing is said of that dimension."""
    found: dict[str, set[Dimension]] = {}
    for one in _placed(groups, rank):
        found.setdefault(one.name, set()).add(one)
    return [one for places in found.values() if len(places) == 1 for one in places]


def _placed(groups: Mapping[str, Any], rank: int) -> Iterator[Dimension]:
    for group in groups.values():
        try:
            name, ranks = dimension_of(str(group["title"])), list(group["ranks"])
        except (KeyError, TypeError):
            continue
        if name and rank in ranks:
            yield Dimension(name, ranks.index(rank), len(ranks))
