"""The schedule of checkpoints as a page for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast_sidecar.cli.table import table
from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.policy.checkpoint_schedule import WRITE_FACTOR, Prospect, Schedule, WhatIf
from holdfast_sidecar.records.formatting import span

BOUNDS = {
    "optimum": "Daly's optimum",
    "least_every_s": "no more often than checkpoint.least_every_s allows",
    "most_every_s": "at least as often as checkpoint.most_every_s asks",
    "write": f"{WRITE_FACTOR:g} times what writing one takes: a write must end before the next",
    "every_s": "as checkpoint.every_s says",
    "unmeasured": "the first one soon; then from what it cost",
}


def page(
    job: str,
    schedule: Schedule,
    prospect: Prospect,
    others: Sequence[WhatIf],
    settings: CheckpointSettings,
) -> str:
    """Everything `checkpoint plan` prints."""
    parts = [
        f"job {job}: {_every(schedule, prospect, settings)}" if job else "",
        "\n".join(_reasons(schedule, prospect, settings)),
        _losses(prospect),
        _what_if(others),
    ]
    return "\n\n".join(part for part in parts if part)


def _every(schedule: Schedule, prospect: Prospect, settings: CheckpointSettings) -> str:
    if not settings.dir:
        return "no checkpoints: checkpoint.dir is not set"
    if settings.every_steps > 0:
        about = "" if prospect.interval_s is None else f" (about {span(prospect.interval_s)})"
        return f"a checkpoint every {settings.every_steps} steps{about}"
    return f"a checkpoint every {span(schedule.interval.target_s)}"


def _reasons(schedule: Schedule, prospect: Prospect, settings: CheckpointSettings) -> Iterator[str]:
    cost, interval = schedule.cost, schedule.interval
    yield (
        "measured    nothing yet"
        if cost is None
        else f"measured    a checkpoint keeps the loop {span(cost.blocked_s)}"
        f" and is written in {span(cost.write_s)}"
    )
    yield f"failures    one per {span(schedule.rate.mtbf_s)}: {schedule.rate.basis}"
    if interval.young_s is not None and interval.daly_s is not None:
        yield f"optimum     {span(interval.young_s)} by Young, {span(interval.daly_s)} by Daly"
    yield (
        f"allowed     {span(settings.least_every_s)} to {span(settings.most_every_s)}"
        if settings.every_steps <= 0
        else "allowed     counted in steps: checkpoint.every_steps"
    )
    if settings.every_steps <= 0:
        yield f"taken       {span(interval.target_s)}: {BOUNDS[interval.bound]}"
    if prospect.saving_share is not None and prospect.repeating_share is not None:
        total = prospect.saving_share + prospect.repeating_share
        yield (
            f"waste       {_percent(total)} of the time: {_percent(prospect.saving_share)} saving, "
            f"{_percent(prospect.repeating_share)} doing again after failures"
        )


def _losses(prospect: Prospect) -> str:
    rows = [*_memory_losses(prospect)] if prospect.snapshot_every is not None else []
    rows += [
        ("everything in memory", "the newest checkpoint", _lost(prospect.lost_s)),
        ("sound numbers", "the newest good checkpoint", _lost(prospect.lost_to_numbers_s)),
    ]
    return table(("what is gone", "what is left", "lost, on average"), rows)


def _memory_losses(prospect: Prospect) -> Iterator[tuple[str, str, str]]:
    every, behind = prospect.snapshot_every, prospect.copies_behind
    if every:
        left = f"snapshots of every {every} steps" if every > 1 else "snapshots of every step"
        yield "a rank", left, _lost(prospect.lost_with_snapshots_s)
    else:
        yield "a rank", "no snapshots so far: the newest checkpoint", _lost(prospect.lost_s)
    if behind is None:
        yield "a node", "no copies elsewhere: the newest checkpoint", _lost(prospect.lost_s)
    else:
        yield "a node", f"copies {behind} steps behind", _lost(prospect.lost_with_copies_s)


def _what_if(others: Sequence[WhatIf]) -> str:
    if not others:
        return ""
    rows = [(one.change, span(one.interval_s), _percent(one.waste)) for one in others]
    return table(("what if", "every", "waste"), rows)


def _lost(seconds: float | None) -> str:
    return "not known yet" if seconds is None else span(seconds)


def _percent(share: float) -> str:
    if share < 0.00005:
        return "under 0.01%"
    return f"{share:.2%}" if share < 0.1 else f"{share:.0%}"
