"""The trouble of ranks that compile again and again: one for all of them, as it is the script's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast_sidecar.records.steps import Cause
from holdfast_sidecar.stragglers.advice import advise
from holdfast_sidecar.stragglers.causes import Named
from holdfast_sidecar.stragglers.place import Place
from holdfast_sidecar.stragglers.recompiling import Recompiling
from holdfast_sidecar.stragglers.trouble import Trouble, lasts

SURE = 0.9


def compilers(
    found: Sequence[Recompiling], places: Mapping[int, Place], step: int, step_us: float
) -> list[Trouble]:
    """None or one."""
    known = [one for one in found if one.rank in places]
    if not known:
        return []
    worst = max(known, key=lambda one: one.lost_us)
    nodes = {places[one.rank].node for one in known}
    steps = step - worst.since_step + 1
    text = (
        f"rank {worst.rank} compiled something in {worst.times} of {steps} steps, which took "
        f"{worst.lost_us / 1e3:.1f} ms a step"
    )
    since = min(one.since_step for one in known)
    return [
        Trouble(
            ranks=tuple(sorted(one.rank for one in known)),
            node=nodes.pop() if len(nodes) == 1 else "",
            role="",
            named=Named(
                Cause.RECOMPILATION, SURE, (text,), advise(Cause.RECOMPILATION), "compiling"
            ),
            slowdown=worst.lost_us / max(1.0, step_us),
            confidence=SURE,
            since_step=since,
            is_persistent=lasts(since, step, step_us / 1e6),
            accounts=("compilers",),
            extra_us=worst.lost_us,
        )
    ]
