"""The trouble of a pipeline stage that takes longer than the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast_sidecar.records.findings import Finding
from holdfast_sidecar.records.steps import Cause
from holdfast_sidecar.stragglers.advice import advise
from holdfast_sidecar.stragglers.case import Case
from holdfast_sidecar.stragglers.causes import ENOUGH, Named, name_cause
from holdfast_sidecar.stragglers.frame import Excess, Frame
from holdfast_sidecar.stragglers.place import Place
from holdfast_sidecar.stragglers.signals import Signals, middle
from holdfast_sidecar.stragglers.stages import HeavyStage
from holdfast_sidecar.stragglers.step_model import StepModel
from holdfast_sidecar.stragglers.trouble import Trouble, lasts
from holdfast_sidecar.stragglers.witness import hear

BY_LAYERS = frozenset({Cause.COMPUTE, Cause.DATA_LOADING, Cause.UNKNOWN})
"""What is guessed of one rank beside its peers is no guess about a whole stage: it has other layers
to compute, and the first stage alone loads data."""

SURE = 0.9
SURE_OF_ONE = 0.6
"""A stage of one rank may have a slow rank instead, and no peer to compare it with."""


def heavy_stages(
    heavy: HeavyStage | None,
    frame: Frame,
    places: Mapping[int, Place],
    findings: Sequence[Finding],
    model: StepModel,
) -> list[Trouble]:
    """None or one: layers, or what all ranks of the stage have in common."""
    if heavy is None:
        return []
    nodes = {places[rank].node for rank in heavy.ranks}
    named = _why(heavy, frame, places, findings, len(nodes) == 1)
    # Layers that go elsewhere are still computed; what is wrong with a node is not.
    is_uneven = named.cause is Cause.PIPELINE
    wanted = heavy.even if is_uneven else {heavy.stage: heavy.others_us / max(1.0, heavy.own_us)}
    times = model.stage_times()
    quick = {stage: times[stage] * ratio for stage, ratio in wanted.items() if stage in times}
    return [
        Trouble(
            ranks=heavy.ranks,
            node=nodes.pop() if len(nodes) == 1 else "",
            role=f"stage {heavy.stage}",
            named=named,
            slowdown=heavy.slowdown,
            confidence=named.confidence,
            since_step=heavy.since_step,
            is_persistent=lasts(heavy.since_step, frame.step, model.total_us / 1e6),
            accounts=(f"stage {heavy.stage}",),
            quick=model.with_stages(quick),
            blames_ranks=not is_uneven,
        )
    ]


def _why(
    heavy: HeavyStage,
    frame: Frame,
    places: Mapping[int, Place],
    findings: Sequence[Finding],
    is_one_node: bool,
) -> Named:
    own, others = _signals(heavy, frame)
    place = places[heavy.ranks[0]]
    if own is not None and others is not None:
        # What is wrong with one node explains nothing of a stage that lies on several.
        witness = hear(findings if is_one_node else (), place)
        named = name_cause(Case(_as_excess(heavy), own, others, witness))
        if named.cause not in BY_LAYERS and named.confidence >= ENOUGH:
            return named
    text = (
        f"stage {heavy.stage} takes {heavy.own_us / 1e3:.1f} ms of a step by itself, the others "
        f"{heavy.others_us / 1e3:.1f} ms, most of it more in {heavy.part}"
    )
    if len(heavy.ranks) == 1:
        alone = f"rank {heavy.ranks[0]} is alone in it, and may be slow itself"
        return _pipeline(SURE_OF_ONE, text, alone, heavy)
    return _pipeline(SURE, text, f"its {len(heavy.ranks)} ranks are alike", heavy)


def _pipeline(sure: float, text: str, more: str, heavy: HeavyStage) -> Named:
    return Named(Cause.PIPELINE, sure, (text, more), advise(Cause.PIPELINE), heavy.part)


def _signals(heavy: HeavyStage, frame: Frame) -> tuple[Signals | None, Signals | None]:
    own = frozenset(heavy.ranks)
    mine = [line for rank, line in frame.lines.items() if rank in own]
    theirs = [line for rank, line in frame.lines.items() if rank not in own]
    return middle(mine), middle(theirs)


def _as_excess(heavy: HeavyStage) -> Excess:
    return Excess(
        rank=heavy.ranks[0],
        role="",
        slowdown=heavy.slowdown,
        confidence=1.0,
        since_step=heavy.since_step,
        steps=0,
        own_us=heavy.own_us,
        peers_us=heavy.others_us,
        parts_us=heavy.parts_us,
    )
