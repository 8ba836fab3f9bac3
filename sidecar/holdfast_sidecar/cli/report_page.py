"""How well a job does, as a page for people and as data for scripts. Pure, except that paint looks
at the terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from holdfast_sidecar.cli.columns import bar_width, wrapped
from holdfast_sidecar.cli.loss_tables import loss_tables, plain_losses
from holdfast_sidecar.cli.memory_table import memory_table, plain_memory
from holdfast_sidecar.cli.performance_recall import Recalled
from holdfast_sidecar.cli.rank_bars import OWN
from holdfast_sidecar.cli.slow_page import NOT_JUDGED
from holdfast_sidecar.config.settings import CostSettings
from holdfast_sidecar.performance.summary import lines_of, losses_of, median_us
from holdfast_sidecar.records.formatting import changed, counted, exact_percent, percent, span
from holdfast_sidecar.records.reports import Performance
from holdfast_sidecar.records.steps import Efficiency

PARTS = {
    "data": "data",
    "transfer": "to the device",
    "forward": "forward",
    "backward": "backward",
    "communicating": "communicating",
    "optimizer": "optimizer",
    "other": "other",
    "lost": "saving, evaluating, compiling",
}
"""Field of a StepLine -> what people call it. `lost` is per step over all of them."""

SHARES = {
    "communication_share": "communication",
    "data_share": "data",
    "bubble_share": "bubble",
}

UNUSUAL = 0.1
"""By that part the mean of steps may differ from the middle one before both are told."""

MUCH_MORE = 0.05
"""Of a step: as who is called slow."""

INDENT = 15

FIGURES = 48
"""Columns of a part's name, of its time and of its share."""


def page(recalled: Recalled, now_unix_s: float, price: CostSettings) -> str:
    """All that is known of how well the job does."""
    performance = recalled.performance
    if performance is None:
        return f"job {recalled.job}: {NOT_JUDGED}"
    parts = [
        "\n".join(_heading(recalled, performance, now_unix_s)),
        "\n".join(_where_it_goes(performance)),
        memory_table(performance),
        loss_tables(recalled, performance, price),
    ]
    return "\n\n".join(part for part in parts if part)


def plain(recalled: Recalled, price: CostSettings) -> dict[str, Any]:
    """The same for scripts."""
    performance = recalled.performance
    standing = None if performance is None else performance.standing
    efficiency = None if standing is None else standing.efficiency
    change = None if standing is None else standing.change
    ranks = [] if performance is None else performance.ranks
    lines = list(lines_of(ranks).values())
    world_size = 0 if performance is None else performance.world_size
    return {
        "job": recalled.job,
        "is_over": recalled.is_over,
        "is_of_earlier_run": recalled.is_of_earlier_run,
        "attempt": recalled.attempt,
        "remark": recalled.remark,
        "step": None if standing is None else standing.step,
        "at_unix_s": None if standing is None else standing.at_unix_s,
        "world_size": world_size,
        "change": None if change is None else dataclasses.asdict(change),
        "efficiency": None if efficiency is None else dataclasses.asdict(efficiency),
        "median_step_us": {part: median_us(lines, part) for part in ("total", *PARTS)},
        "memory": [plain_memory(rank) for rank in ranks if rank.memory_total],
        "lost": plain_losses(losses_of(performance), world_size, price),
        "lost_before": plain_losses(recalled.before, world_size, price),
        "per_gpu_hour": price.per_gpu_hour,
        "currency": price.currency,
    }


def _heading(recalled: Recalled, performance: Performance, now_unix_s: float) -> Iterator[str]:
    standing = performance.standing
    which = ", the run before this one" if recalled.is_of_earlier_run else ""
    over = ", over" if recalled.is_over and not recalled.is_of_earlier_run else ""
    yield f"job {recalled.job}: {counted(performance.world_size)}{which}{over}"
    if standing is None:
        yield NOT_JUDGED
        return
    ago = span(max(now_unix_s - standing.at_unix_s, 0.0))
    yield _line(
        "watched", f"{span(standing.watched_s)} of steps, up to step {standing.step:,}, {ago} ago"
    )
    yield from _efficiency(standing.efficiency or Efficiency(), standing.step)
    if standing.change is not None:
        yield _line("changed", changed(standing.change))
    for line in standing.efficiency.unknown if standing.efficiency else []:
        yield from _wrapped("not known", line)


def _efficiency(one: Efficiency, up_to: int) -> Iterator[str]:
    if one.step_s is not None:
        yield _line("step", _step(one, up_to))
    if one.tokens_per_s is not None:
        yield _line("tokens/s", f"{one.tokens_per_s:,.0f}")
    if one.mfu is not None:
        hardware = "" if one.hfu is None else f", HFU {exact_percent(one.hfu)}"
        yield _line("MFU", f"{exact_percent(one.mfu)}{hardware}")
    for field, name in SHARES.items():
        share = getattr(one, field)
        if share is not None:
            yield _line(name, f"{percent(share)} of a step")
    if one.pace is not None:
        yield _line("pace", f"{percent(one.pace)} of the first steps' throughput")


def _step(one: Efficiency, up_to: int) -> str:
    """A mean, and what is usual where that is something else."""
    step_s = one.step_s or 0.0
    steps = f", the mean of steps {one.from_step:,} to {up_to:,}" if one.from_step else ""
    usual_s = one.usual_step_s
    differs = usual_s is not None and abs(usual_s - step_s) > UNUSUAL * step_s
    usual = f"; the middle one took {span(usual_s)}" if usual_s is not None and differs else ""
    return f"{span(step_s)}{steps}{usual}"


def _where_it_goes(performance: Performance) -> Iterator[str]:
    """Over the same steps as what is told above, as far as somebody judged them."""
    lines = list(lines_of(performance.ranks).values())
    standing = performance.standing
    one = None if standing is None else standing.efficiency
    if one is not None and one.parts_us and one.step_s:
        yield from _parts(one.parts_us, one.step_s * 1e6, performance.world_size)
        yield from _most(one, one.step_s * 1e6)
    elif lines:
        parts = {part: median_us(lines, part) for part in (*PARTS, "overlapped", "collector")}
        yield from _parts(parts, median_us(lines, "total"), len(lines))
    if not all(line.waits_seen for line in lines):
        yield "backward holds waiting for others, too: their reducers can't be watched here"


def _parts(parts: Mapping[str, float], total: float, ranks: int) -> Iterator[str]:
    longest = max((parts.get(part, 0.0) for part in PARTS), default=0.0) or 1.0
    whose = f"the middle of {counted(ranks)}" if ranks > 1 else "of 1 rank"
    yield f"where a step's time goes ({whose}, {span(total / 1e6)})"
    for part, name in PARTS.items():
        if parts.get(part):
            yield _part(name, parts[part], longest, total)
    if overlapped := parts.get("overlapped"):
        yield f"besides, {span(overlapped / 1e6)} of communication behind the computing"
    if collector := parts.get("collector"):
        yield f"in it {span(collector / 1e6)} of Python's garbage collector"


def _most(one: Efficiency, total: float) -> Iterator[str]:
    """Where one rank spends much more than the middle one."""
    names = {**PARTS, "collector": "the garbage collector"}
    # Who waits longest is who has least to do.
    names.pop("communicating")
    for part, name in names.items():
        most = one.most_us.get(part, 0.0)
        if most - one.parts_us.get(part, 0.0) > MUCH_MORE * total:
            yield f"longest in {name}: rank {one.most_rank[part]}, {_short(most)} of a step"


def _part(name: str, microseconds: float, longest: float, total: float) -> str:
    width = bar_width(FIGURES)
    bar = OWN * max(1, round(width * microseconds / longest))
    share = percent(microseconds / total) if total else "-"
    return f"{name:<30}{bar:<{width}}  {_short(microseconds):>8}  {share:>6}"


def _short(microseconds: float) -> str:
    """Parts of a step may be far below a millisecond."""
    if microseconds < 10_000:
        return f"{microseconds / 1e3:.2f} ms"
    return span(microseconds / 1e6)


def _line(head: str, text: str) -> str:
    return "\n".join(_wrapped(head, text))


def _wrapped(head: str, text: str) -> list[str]:
    return wrapped(head, text, INDENT)
