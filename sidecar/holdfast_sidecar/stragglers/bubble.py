"""How much of a step the stages of a pipeline have nothing to do, by a model. Pure.

Were every batch cut into endlessly many pieces, a step would last as long as the stage with most to
do works, and what it waits for others besides: gradients, shards, parts of a tensor. What a step
lasts longer than that is the bubble: the pipeline filling and draining, and messages between
stages. That smaller stages stand because they have less to do is not a bubble but an uneven
pipeline, and told as a cause.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast_sidecar.records.steps import StepLine
from holdfast_sidecar.stragglers.described_groups import PIPELINE
from holdfast_sidecar.stragglers.place import Place

NO_WAITS = "bubble: what the stages wait for in their backward passes is not told from their work"
NO_STAGE = "bubble: of some stages no rank told of the newest steps"


def bubble_share(
    lines: Sequence[StepLine], places: Mapping[int, Place]
) -> tuple[float | None, str]:
    """Parts of one, and why it isn't known. Neither: there is no pipeline."""
    stages: dict[int, list[tuple[StepLine, Place]]] = {}
    count = 1
    for line in lines:
        place = places.get(line.rank)
        if place is not None and place.stages > 1:
            count = place.stages
            stages.setdefault(place.coordinate.get(PIPELINE, 0), []).append((line, place))
    if not stages:
        return None, ""
    if not all(line.waits_seen for line in lines):
        return None, NO_WAITS
    if len(stages) < count:
        return None, NO_STAGE
    busy_us = max(_busy_us(ranks) for ranks in stages.values())
    total_us = sum(line.total for line in lines) / len(lines)
    return max(0.0, 1.0 - busy_us / total_us), ""


def _busy_us(ranks: Sequence[tuple[StepLine, Place]]) -> float:
    """A stage's own work, and what it waits for besides the pipeline; mean of its ranks."""
    busy = 0
    for line, place in ranks:
        busy += line.own_us
        for waits in place.waits_elsewhere:
            busy += line[waits]
    return busy / len(ranks)
