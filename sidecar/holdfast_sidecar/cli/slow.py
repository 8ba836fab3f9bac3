"""Who is slow and why, as a page for people and as data for scripts. Pure, except that paint looks
at the terminal.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from holdfast_sidecar.cli.recall import Recalled
from holdfast_sidecar.cli.tables import BAD, GOOD, bar_width, paint, size, table, wrapped
from holdfast_sidecar.config.settings import CostSettings
from holdfast_sidecar.performance.summary import SHOWN, lines_of, losses_of, shortened, slow_ranks
from holdfast_sidecar.records import formatting
from holdfast_sidecar.records.formatting import gpu_hours, hours_of, money, percent, span
from holdfast_sidecar.records.reports import Losses, Performance, RankSteps
from holdfast_sidecar.records.steps import Slowness, SlownessReport, StepLine, parse

# A bar for each rank: what of a step it worked itself, and what it waited for the others. Pure,
# except that paint looks at the terminal.
#
# Who waits least is who the others wait for.

OWN, UNCLEAR, WAIT = "█", "▒", "░"


def bars(performance: Performance) -> str:
    """The picture with its legend; empty where no rank told of its steps."""
    shown = shortened(performance)
    lines = lines_of(shown.ranks)
    if not lines:
        return ""
    nodes = {one.rank: one.node for one in shown.ranks}
    slow = slow_ranks(shown.standing)
    rows = [heading(lines.values()), *_rows(lines, nodes, slow)]
    everybody = lines_of(performance.ranks)
    if left_out := performance.left_out + len(everybody) - len(lines):
        rows.append(_others(everybody, left_out))
    return "\n".join(rows)


def heading(lines: Collection[StepLine]) -> str:
    """Of which steps it is, and what the signs mean."""
    line = next(iter(lines))
    first = line.step - line.stride + 1
    steps = f"steps {first:,} to {line.step:,}, means" if line.stride > 1 else f"step {line.step:,}"
    signs = f"{OWN} own work  {WAIT} waiting for others"
    if not all(one.waits_seen for one in lines):
        signs += f"  {UNCLEAR} backward, in which waiting can't be told apart"
    return "\n".join(wrapped("", f"{steps}: {signs}", 0))


def parts_of(line: StepLine) -> tuple[int, int, int]:
    """Own work, what may be either, and waiting, microseconds."""
    unclear = 0 if line.waits_seen else line.backward
    return line.own_us, unclear, line.communicating


def _rows(
    lines: Mapping[int, StepLine], nodes: Mapping[int, str], slow: Collection[int]
) -> list[str]:
    longest = max(sum(parts_of(line)) for line in lines.values()) or 1
    wide_rank = max(len(str(rank)) for rank in lines)
    wide_node = max(len(nodes[rank]) for rank in lines)
    names = {rank: f"rank {rank:>{wide_rank}}  {nodes[rank]:<{wide_node}}" for rank in lines}
    figures = {rank: _figures(line, rank in slow) for rank, line in lines.items()}
    taken = len("rank   " + "    ") + wide_rank + wide_node + max(map(len, figures.values()))
    width, rows = bar_width(taken), []
    for rank, line in sorted(lines.items()):
        bar = _bar(parts_of(line), longest, width)
        row = f"{names[rank]}  {bar:<{width}}  {figures[rank]}"
        rows.append(paint(row, BAD) if rank in slow else row)
    return rows


def _figures(line: StepLine, is_slow: bool) -> str:
    own, _, wait = parts_of(line)
    mark = "  <- slow" if is_slow else ""
    return f"{span(own / 1e6)} own, {span(wait / 1e6)} waiting{mark}"


def _bar(parts: tuple[int, int, int], longest: int, width: int) -> str:
    """Each sign ends where its sum does, so that rounding does not add up."""
    text, total = "", 0
    for part, sign in zip(parts, (OWN, UNCLEAR, WAIT), strict=True):
        total += part
        text += sign * (round(width * total / longest) - len(text))
    return text


def _others(everybody: Mapping[int, StepLine], left_out: int) -> str:
    own = sorted(line.own_us for line in everybody.values())
    if len(own) <= SHOWN:
        return f"and {left_out:,} more ranks"
    middle = statistics.median(own)
    among = f"{span(own[0] / 1e6)} to {span(own[-1] / 1e6)} own, in the middle {span(middle / 1e6)}"
    return f"and {left_out:,} more; of all {len(own):,}: {among}"


INDENT = 12

EVIDENCE_SHOWN = 6

WHAT_IFS_SHOWN = 8

NAMED = 4
"""In the first line; below it stands everyone."""

ALONE = "one rank alone, which can be compared with nobody"

STAGE = "stage "
"""So the role of a whole stage begins, which is compared with the others."""

NOT_JUDGED = (
    "nobody has judged this job's steps yet: that takes some ten steps of every rank, the hooks in"
    " them (`holdfast doctor`), and that `straggler.enabled` is on"
)


def page(recalled: Recalled, now_unix_s: float, price: CostSettings) -> str:
    """All that is known of who is slow."""
    performance = _here(recalled)
    standing = None if performance is None else performance.standing
    if performance is None or standing is None:
        picture = "" if performance is None else bars(performance)
        told = f"job {recalled.job}: {NOT_JUDGED}"
        return "\n\n".join(filter(None, [told, picture]))
    # A job that is over is slow no longer, and nothing has been so since then.
    as_of = standing.at_unix_s if recalled.is_over else now_unix_s
    parts = [
        "\n".join([_verdict(recalled, standing, now_unix_s), *_changed(standing)]),
        *("\n".join(_one(one, performance, as_of, price)) for one in standing.slow),
        "\n".join(_what_ifs(standing, performance, price)),
        "\n".join(row for line in standing.unjudged for row in _wrapped("not judged", line)),
        bars(_of_now(recalled, performance, standing)),
    ]
    return "\n\n".join(part for part in parts if part)


def _of_now(recalled: Recalled, performance: Performance, standing: SlownessReport) -> Performance:
    """The steps of the attempt under way: who was slow in the one before may be on another node."""
    if recalled.attempt <= standing.attempt:
        return performance
    return dataclasses.replace(performance, standing=dataclasses.replace(standing, slow=[]))


def _here(recalled: Recalled) -> Performance | None:
    """What is kept of a job that is over says nothing of what is done next."""
    seen = recalled.performance
    return seen if seen is None or not recalled.is_over else dataclasses.replace(seen, staying={})


def plain(recalled: Recalled, price: CostSettings) -> dict[str, Any]:
    """The same for scripts."""
    performance = _here(recalled)
    standing = None if performance is None else performance.standing
    world_size = 0 if performance is None else performance.world_size
    lost = [] if standing is None else [_price(one, world_size, price) for one in standing.slow]
    return {
        "job": recalled.job,
        "is_over": recalled.is_over,
        "is_of_earlier_run": recalled.is_of_earlier_run,
        "attempt": recalled.attempt,
        "remark": recalled.remark,
        "is_anybody_slow": bool(lost),
        "costs": lost,
        "not_replaced": {} if performance is None else performance.staying,
        "per_gpu_hour": price.per_gpu_hour,
        "currency": price.currency,
        "world_size": world_size,
        "standing": None if standing is None else dataclasses.asdict(standing),
        "steps": [] if performance is None else [_steps(one) for one in performance.ranks],
    }


def _steps(one: RankSteps) -> dict[str, Any]:
    """A rank with the means of its newest steps by name; None where it told none."""
    told = vars(one).copy()
    line = parse(told.pop("line"))
    return told | {"means": None if line is None else line._asdict() | {"own": line.own_us}}


def _price(one: Slowness, ranks: int, price: CostSettings) -> dict[str, Any]:
    return {
        "who": formatting.who(one),
        "lost_s": one.lost_s,
        "gpu_hours": gpu_hours(one.lost_s, ranks),
        "money": money(one.lost_s, ranks, price),
    }


def _verdict(recalled: Recalled, standing: SlownessReport, now_unix_s: float) -> str:
    ago = span(max(now_unix_s - standing.at_unix_s, 0.0))
    told = _nobody(standing) if not standing.slow else paint(_who_is_slow(standing.slow), BAD)
    if recalled.attempt > standing.attempt:
        told = f"attempt {recalled.attempt} is too young to judge; in the one before: {told}"
    which = "the run before this one, " if recalled.is_of_earlier_run else ""
    watched = (
        f"{which}{formatting.counted(standing.judged_ranks)}"
        f"{' compared' * (standing.judged_ranks > 1)} up to step"
        f" {standing.step:,} of attempt"
        f" {standing.attempt}, {span(standing.watched_s)} of steps in all, judged {ago} ago"
    )
    job = f"{recalled.job} is over; last judged" if recalled.is_over else recalled.job
    return "\n".join([f"job {job}: {told}", *_wrapped("watched", watched)])


def _changed(standing: SlownessReport) -> list[str]:
    change = standing.change
    return [] if change is None else _wrapped("changed", formatting.changed(change))


def _nobody(standing: SlownessReport) -> str:
    """Only of those that could be judged."""
    if standing.judged_ranks == 1:
        return ALONE
    if not standing.unjudged_ranks:
        return paint("nobody is slow", GOOD)
    judged = standing.judged_ranks - standing.unjudged_ranks
    if judged <= 0:
        return "who is slow can't be judged"
    return f"nobody is slow of the {judged:,} in {standing.judged_ranks:,} ranks that can be judged"


def _who_is_slow(slow: Sequence[Slowness]) -> str:
    """`rank 5 on b is slow`, `2 are slow: rank 5 on b, rank 9 on c`."""
    if len(slow) == 1:
        one = slow[0]
        lasting = "" if one.is_persistent else " (it may pass)"
        return f"{formatting.who(one)} {formatting.verb(one)} slow{lasting}"
    names = ", ".join(formatting.who(one) for one in slow[:NAMED]) + ", …" * (len(slow) > NAMED)
    passing = sum(not one.is_persistent for one in slow)
    return f"{len(slow)} are slow: {names}" + f" ({passing} of them may pass)" * bool(passing)


def _one(
    one: Slowness, performance: Performance, now_unix_s: float, price: CostSettings
) -> Iterator[str]:
    lasting = "" if one.is_persistent else ", which may pass"
    yield paint(f"{formatting.who(one)}: {percent(one.slowdown)} slower{lasting}", BAD)
    ago = span(max(now_unix_s - one.since_unix_s, 0.0))
    where = f" in the process group {one.group}" * bool(one.group)
    in_part = f"; the time goes into: {one.part}{where}" * bool(one.part)
    yield _line("compared", f"with {_with_whom(one)}{in_part}")
    yield _line("since", f"step {one.since_step:,}, {ago} ago")
    yield _line("cause", f"{one.cause.value}: {formatting.why(one)}")
    yield _line("sure", formatting.sureness(one))
    for line in one.evidence[:EVIDENCE_SHOWN]:
        yield from _wrapped("because", line)
    if one.advice:
        yield from _wrapped("next", one.advice)
    gain = formatting.gained(one) or "the job hardly waits for it"
    yield _line("costs", gain)
    if one.lost_s > 0:
        yield _line("lost", formatting.cost(one.lost_s, performance, price))
    if stays := performance.staying.get(formatting.who(one)):
        yield _line("stays", f"not replaced: {stays}")


def _with_whom(one: Slowness) -> str:
    if one.group:
        return "steps in which nobody waits longer than usual in exchanges"
    if one.role.startswith(STAGE):
        return "the other stages"
    return f"the others of role {one.role}" if one.role else "all others"


def _what_ifs(
    standing: SlownessReport, performance: Performance, price: CostSettings
) -> Iterator[str]:
    """What would make it how much faster, and what everything together has cost."""
    for number, one in enumerate(standing.what_ifs[:WHAT_IFS_SHOWN]):
        head = "this job would be " if not number else ""
        # What a slow rank or stage lost stands with it, as its share of what all of them lost.
        lost = f" ({span(one.lost_s)} so far)" if one.kind == "work" and one.lost_s >= 1 else ""
        yield _line("what if" if not number else "", f"{head}{formatting.if_only(one)}{lost}")
    total_s = sum(standing.lost_s.values())
    if total_s >= 1:
        share = f" ({percent(total_s / standing.watched_s)})" if standing.watched_s else ""
        cost = formatting.cost(total_s, performance, price)
        yield _line("in all", f"{cost}{share}; for what: holdfast report")


def _line(head: str, text: str) -> str:
    return "\n".join(_wrapped(head, text))


def _wrapped(head: str, text: str) -> list[str]:
    return wrapped(head, text, INDENT)


# What slowness cost, as tables for people and as data for scripts. Pure.

CAUSES_SHOWN = 12


def loss_tables(recalled: Recalled, performance: Performance, price: CostSettings) -> str:
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


def plain_losses(lost: Losses, ranks: int, price: CostSettings) -> dict[str, Any]:
    """The same for scripts, of one run or several."""
    total_s = sum(lost.by_cause.values())
    return {
        "watched_s": lost.watched_s,
        "total_s": total_s,
        "gpu_hours": gpu_hours(total_s, ranks),
        "money": money(total_s, ranks, price),
        "by_cause_s": lost.by_cause,
        "by_rank_s": lost.by_rank,
    }


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


# Memory of ranks' devices, as a table for people and as data for scripts. Pure, except that paint
# looks at the terminal.

LITTLE_ROOM = 0.05
"""Of a device: below it one longer sequence may end the job. torch's allocator asks for blocks of
2 to 20 MiB and more, and gives back what it keeps before it gives up, which costs steps."""


def memory_table(performance: Performance) -> str:
    """Of those ranks that train on a device; empty where none does."""
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


def _room(rank: RankSteps) -> str:
    left = headroom(rank)
    return paint(size(left), BAD) if left < LITTLE_ROOM * rank.memory_total else size(left)
