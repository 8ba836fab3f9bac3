"""How well a job does, as a page for people and as data for scripts. Pure, except that paint looks
at the terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from holdfast_sidecar.cli.columns import bar_width, wrapped
from holdfast_sidecar.cli.performance_recall import Recalled
from holdfast_sidecar.cli.rank_bars import OWN
from holdfast_sidecar.cli.slow_page import NOT_JUDGED
from holdfast_sidecar.cli.table import BAD, paint, size, table
from holdfast_sidecar.performance_seen import SHOWN, lines_of, losses_of, median_us, shortened
from holdfast_sidecar.records.performance import Losses, Performance, RankSteps
from holdfast_sidecar.records.slowness import Efficiency
from holdfast_sidecar.settings import CostSettings
from holdfast_sidecar.slow_words import changed, counted, gpu_hours, hours_of, percent
from holdfast_sidecar.span import span
from holdfast_sidecar.stragglers.cost import money

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

LITTLE_ROOM = 0.05
"""Of a device: below it one longer sequence may end the job. torch's allocator asks for blocks of
2 to 20 MiB and more, and gives back what it keeps before it gives up, which costs steps."""

UNUSUAL = 0.1
"""By that part the mean of steps may differ from the middle one before both are told."""

MUCH_MORE = 0.05
"""Of a step: as who is called slow."""

CAUSES_SHOWN = 12

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
        _memory(performance),
        _lost(recalled, performance, price),
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
        "lost": _plain_lost(losses_of(performance), world_size, price),
        "lost_before": _plain_lost(recalled.before, world_size, price),
        "per_gpu_hour": price.per_gpu_hour,
        "currency": price.currency,
    }


def plain_memory(rank: RankSteps) -> dict[str, Any]:
    """One rank's device, with what is left at its worst and what the allocator keeps unused."""
    return {
        "rank": rank.rank,
        "node": rank.node,
        "total_bytes": rank.memory_total,
        "allocated_bytes": rank.memory_allocated,
        "reserved_bytes": rank.memory_reserved,
        "peak_bytes": rank.memory_peak,
        "headroom_bytes": headroom(rank),
        "fragmentation": fragmentation(rank),
        "retries": rank.memory_retries,
    }


def headroom(rank: RankSteps) -> int:
    """Bytes that were left of its device when it needed most."""
    return max(rank.memory_total - max(rank.memory_peak, rank.memory_reserved), 0)


def fragmentation(rank: RankSteps) -> float:
    """Of what the allocator holds, the part that no tensor is in."""
    if not rank.memory_reserved:
        return 0.0
    return max(1 - rank.memory_allocated / rank.memory_reserved, 0.0)


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
        hardware = "" if one.hfu is None else f", HFU {one.hfu:.1%}"
        yield _line("MFU", f"{one.mfu:.1%}{hardware}")
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


def _memory(performance: Performance) -> str:
    having = [rank for rank in shortened(performance).ranks if rank.memory_total]
    if not having:
        return ""
    rows = [
        [
            str(rank.rank),
            rank.node,
            size(rank.memory_allocated),
            size(rank.memory_reserved),
            f"{size(rank.memory_peak)} of {size(rank.memory_total)}",
            _room(rank),
            percent(fragmentation(rank)),
            str(rank.memory_retries),
        ]
        for rank in having[:SHOWN]
    ]
    headings = ["rank", "node", "tensors", "reserved", "peak", "left", "fragmented", "retries"]
    return table(headings, rows)


def _room(rank: RankSteps) -> str:
    left = headroom(rank)
    return paint(size(left), BAD) if left < LITTLE_ROOM * rank.memory_total else size(left)


def _lost(recalled: Recalled, performance: Performance, price: CostSettings) -> str:
    """By cause and by rank: of this run, and of those before it."""
    now, before = losses_of(performance), recalled.before
    parts = [
        _table(head, lost, watched_s, performance, price)
        for head, lost, watched_s in (
            ("lost to", now.by_cause, now.watched_s),
            ("lost by", now.by_rank, now.watched_s),
            ("in runs before, to", before.by_cause, before.watched_s),
        )
    ]
    told = "\n\n".join(filter(None, parts))
    return told or ("nothing was lost to slowness so far" if now.watched_s else "")


def _table(
    head: str,
    lost: Mapping[str, float],
    watched_s: float,
    performance: Performance,
    price: CostSettings,
) -> str:
    dearest, ranks = sorted(lost.items(), key=lambda one: -one[1]), performance.world_size
    rows = [
        [
            f"rank {name}" if name[:1].isdigit() else name,
            span(seconds),
            percent(seconds / watched_s) if watched_s else "-",
            f"{gpu_hours(seconds, ranks):,.2f}",
            *([] if (paid := money(seconds, ranks, price)) is None else [f"{paid:,.2f}"]),
        ]
        for name, seconds in dearest[:CAUSES_SHOWN]
        if seconds > 0
    ]
    if not rows:
        return ""
    headings = [head, "time", "of the steps", hours_of(performance, price)]
    return table(headings + [price.currency] * (price.per_gpu_hour > 0), rows)


def _plain_lost(lost: Losses, ranks: int, price: CostSettings) -> dict[str, Any]:
    total_s = sum(lost.by_cause.values())
    return {
        "watched_s": lost.watched_s,
        "total_s": total_s,
        "gpu_hours": gpu_hours(total_s, ranks),
        "money": money(total_s, ranks, price),
        "by_cause_s": lost.by_cause,
        "by_rank_s": lost.by_rank,
    }


def _line(head: str, text: str) -> str:
    return "\n".join(_wrapped(head, text))


def _wrapped(head: str, text: str) -> list[str]:
    return wrapped(head, text, INDENT)
