"""How well a job does, as a page for people and as data for scripts. Pure, except that paint looks
at the terminal.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping
from typing import Any

from holdfast_sidecar.cli.recall import Recalled
from holdfast_sidecar.cli.slow import (
    NOT_JUDGED,
    OWN,
    loss_tables,
    memory_table,
    plain_losses,
    plain_memory,
)
from holdfast_sidecar.cli.tables import BAD, GOOD, bar_width, paint, table, wrapped
from holdfast_sidecar.config.settings import CostSettings
from holdfast_sidecar.performance.goodput.summary import (
    CATEGORIES,
    PENDING_WORDS,
    PHASES,
    Billed,
    CategoryTime,
    Summary,
    name_gain,
)
from holdfast_sidecar.performance.summary import lines_of, losses_of, median_us
from holdfast_sidecar.records.account import Category
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

REPORT_FIGURES = 48
"""Columns of a part's name, of its time and of its share."""


def report_page(recalled: Recalled, now_unix_s: float, price: CostSettings) -> str:
    """All that is known of how well the job does."""
    performance = recalled.performance
    if performance is None:
        return f"job {recalled.job}: {NOT_JUDGED}"
    parts = [
        "\n".join(_report_heading(recalled, performance, now_unix_s)),
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


def _report_heading(
    recalled: Recalled, performance: Performance, now_unix_s: float
) -> Iterator[str]:
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
    width = bar_width(REPORT_FIGURES)
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


# A run's account as a page for people: where its time went, what each incident cost, what would
# gain most. Pure, except that paint looks at the terminal.

BAR, EIGHTHS = "█", ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")

ACCOUNT_FIGURES = 72
"""Columns of a category's name, of its time, its share, its hours and its price."""


INCIDENTS_SHOWN = 12
GAINS_SHOWN = 4


def account_page(summary: Summary, hours: str) -> str:
    """All of it. hours: what an hour of a rank is called."""
    parts = [
        "\n".join(_account_heading(summary, hours)),
        "\n".join(_partition(summary, hours)),
        _incidents(summary, hours),
        _lost(summary, hours),
        "\n".join(_gains(summary)),
    ]
    return "\n\n".join(part for part in parts if part)


def _account_heading(summary: Summary, hours: str) -> Iterator[str]:
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(summary.began_unix_s))
    over = ", over" if summary.is_over else ""
    yield from wrapped("run", f"{span(summary.life_s)} since {since}{over}", INDENT)
    if summary.goodput is not None and summary.ettr is not None:
        share = exact_percent(summary.goodput)
        well = paint(share, GOOD if summary.goodput >= 0.9 else BAD)
        trained = f"; it trained for {exact_percent(summary.ettr)} (ETTR)"
        yield f"{'goodput':<{INDENT}}{well} of it was productive and stands{trained}"
    if bad := summary.bad_gpu_hours:
        paid = "" if summary.bad_money is None else f", {summary.bad_money:,.2f} {summary.currency}"
        yield from wrapped("without use", f"{bad:,.2f} {hours}{paid}", INDENT)
    yield from wrapped("failures", _failures(summary), INDENT)


def _failures(summary: Summary) -> str:
    one = summary.reliability
    if not one.failures or one.mtbf_s is None:
        return "none so far"
    told = [f"{one.failures}, one in {span(one.mtbf_s)}"]
    if one.mttd_s is not None:
        told.append(f"seen after {span(one.mttd_s)}")
    if one.mttr_s is not None:
        told.append(f"mended after {span(one.mttr_s)} in the mean")
    if one.phases_s is not None:
        parts = (f"{PHASES[name]} {span(took)}" for name, took in one.phases_s.items() if took)
        told.append(f"a restart: {', '.join(parts)}")
    return "; ".join(told)


def _partition(summary: Summary, hours: str) -> Iterator[str]:
    yield _headings(summary, hours)
    longest = max((one.seconds for one in summary.spent), default=0.0)
    for one in summary.spent:
        yield _row(one, longest)
    if summary.pending_s >= 1.0:
        yield f"{PENDING_WORDS:<26}{span(summary.pending_s):>12}"


def _headings(summary: Summary, hours: str) -> str:
    paid = f"{summary.currency:>12}" if summary.currency else ""
    figures = f"{'time':>12}{'share':>9}{hours:>13}{paid}"
    return f"{'where the run went':<26}{'':<{bar_width(ACCOUNT_FIGURES)}}{figures}"


def _row(one: CategoryTime, longest: float) -> str:
    width = bar_width(ACCOUNT_FIGURES)
    bar = f"{_filled(width * one.seconds / longest if longest else 0.0):<{width}}"
    if one.category == Category.PRODUCTIVE.value:
        bar = paint(bar, GOOD)
    paid = "" if one.money is None else f"{one.money:>12,.2f}"
    name = CATEGORIES[one.category]
    figures = f"{span(one.seconds):>12}{percent(one.share):>9}{one.gpu_hours:>13,.2f}{paid}"
    return f"{name:<26}{bar}{figures}"


def _filled(columns: float) -> str:
    """A bar so many columns long, to an eighth of one; what is there at all is seen."""
    eighths = max(1, round(8 * columns))
    return BAR * (eighths // 8) + EIGHTHS[eighths % 8]


def _incidents(summary: Summary, hours: str) -> str:
    rows = [_incident(one, summary) for one in summary.billed[:INCIDENTS_SHOWN]]
    if not rows:
        return ""
    headings = ["incident", "cause", "node", "standing", "done again", hours]
    left = len(summary.billed) - len(rows)
    more = f"\nand {left} before these" if left else ""
    return table(headings + [summary.currency] * bool(summary.currency), rows) + more


def _incident(one: Billed, summary: Summary) -> list[str]:
    down = "not over" if one.down_s is None else span(one.down_s)
    again = "-" if not one.lost_steps else f"{one.lost_steps:,} steps, {span(one.lost_s or 0.0)}"
    hours = "-" if one.gpu_hours is None else f"{one.gpu_hours:,.2f}"
    paid = "-" if one.money is None else f"{one.money:,.2f}"
    told = [one.identifier, one.cause, one.node or "-", down, again, hours]
    return told + [paid] * bool(summary.currency)


def _lost(summary: Summary, hours: str) -> str:
    rows = [
        [
            cause,
            node or "-",
            span(one.seconds),
            f"{one.steps:,}",
            f"{one.gpu_seconds / 3600:,.2f}",
        ]
        for cause, node, one in summary.lost_by
    ]
    return table(["done again for", "node", "time", "steps", hours], rows) if rows else ""


def _gains(summary: Summary) -> Iterator[str]:
    shown = [one for one in summary.gains if one.what != Category.PAUSED.value][:GAINS_SHOWN]
    if shown:
        yield "what would gain most"
    for one in shown:
        told = f"{name_gain(one.what)}, {span(one.seconds)}: {one.advice}"
        yield from wrapped(percent(one.share), told, INDENT)
