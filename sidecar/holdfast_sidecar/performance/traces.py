"""This node's part of a trace: follows its ranks, reads what they say of it, has it summed up.

Summing up takes a child of its own, which is asked about and never waited for.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from holdfast.contract.ending_processes import signal_child
from holdfast.contract.owned import owned_file
from holdfast.contract.page import (
    TRACED_PARTS,
    OrderKind,
    ReplyState,
    parse_reply,
    trace_facts_name,
    trace_name,
)
from holdfast.contract.permit import own_child
from holdfast.contract.removing import rmtree
from holdfast_sidecar.config.paths import NAME, Paths
from holdfast_sidecar.ranks.page import RankPage
from holdfast_sidecar.records.checkpoint import OperatorTime, TracedPart, TracedRank, TraceOrder

log = logging.getLogger(__name__)

SUM_UP_S = 60.0
"""A trace of 256 MiB takes half of it on an idle core."""

KEPT = 8
"""Traces of an attempt that stay on this node's disk, the newest; the others give way."""


@dataclass
class Reading:
    """A child that sums up a file."""

    process: subprocess.Popen[bytes]
    until_s: float


@dataclass
class NodeTraces:
    """Answers at every tick how far this node's ranks are."""

    places: Paths
    _part: TracedPart | None = None
    _readings: dict[int, Reading] = field(default_factory=dict)

    def follow(
        self, order: TraceOrder | None, held: Iterable[RankPage], now_s: float
    ) -> TracedPart | None:
        """This node's part of `order` as of now; None without one, or when no rank here is meant.

        What came of it stays told until the order is gone, also when its ranks are.
        """
        # The identifier comes off the wire and becomes a directory.
        if order is None or not NAME.fullmatch(order.identifier):
            self.close()
            self._part = None
            return None
        if self._part is None or self._part.identifier != order.identifier:
            self.close()
            self._part = TracedPart(order.identifier)
            self._make_room(order)
        known = {one.rank: one for one in self._part.ranks}
        for one in held:
            if one.identity.attempt == order.attempt and one.identity.rank in order.ranks:
                before = known.get(one.identity.rank, TracedRank(one.identity.rank))
                known[before.rank] = self._look(order, before, one)
        told = [self._sum_up(order, known[rank], now_s) for rank in sorted(known)]
        self._part = replace(self._part, ranks=told)
        return self._part if told else None

    def close(self) -> None:
        """End the children."""
        for reading in self._readings.values():
            _end(reading.process)
        self._readings.clear()

    def _look(self, order: TraceOrder, before: TracedRank, held: RankPage) -> TracedRank:
        reply = parse_reply(held.read(), OrderKind.TRACE)
        if reply is None or reply.identifier != order.identifier:
            return before
        state = reply.state.name.lower()
        if state == before.state:
            return before
        folder = self.places.trace(order.attempt, order.identifier)
        facts = _read_facts(folder / trace_facts_name(before.rank))
        if reply.state is not ReplyState.SAVED:
            return replace(before, state=state, error=str(facts.get("error", "")))
        return replace(
            before,
            state=state,
            host=socket.gethostname(),
            path=str(folder / trace_name(before.rank)),
            size_bytes=reply.size_bytes,
            kept_s=round(reply.duration_ns / 1e9, 6),
            parts_us=_parts(facts),
        )

    def _sum_up(self, order: TraceOrder, one: TracedRank, now_s: float) -> TracedRank:
        if one.state != "saved" or one.is_summed_up or one.rank not in order.compared:
            return one
        reading = self._readings.get(one.rank)
        if reading is None:
            try:
                self._readings[one.rank] = Reading(_start(Path(one.path)), now_s + SUM_UP_S)
            except OSError as error:
                return replace(one, is_summed_up=True, error=f"not summed up: {error}")
            return one
        if reading.process.poll() is None:
            if now_s < reading.until_s:
                return one
            _end(reading.process)
        answer = _read_answer(reading.process)
        del self._readings[one.rank]
        return replace(
            one,
            is_summed_up=True,
            operators=_operators(answer),
            error=str(answer.get("error", "")),
        )

    def _make_room(self, order: TraceOrder) -> None:
        """Remove the oldest traces of this attempt."""
        root = self.places.trace(order.attempt, order.identifier).parent
        with contextlib.suppress(OSError):
            kept = [path for path in root.iterdir() if path.is_dir() and not path.is_symlink()]
            kept.sort(key=lambda path: path.stat().st_mtime, reverse=True)
            for old in kept[KEPT - 1 :]:
                rmtree(owned_file(old), ignore_errors=True)


def _command(path: Path) -> list[str]:
    return [sys.executable, "-m", "holdfast_sidecar.performance.trace_child", str(path)]


def _start(path: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        _command(path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    signal_child(own_child(process))
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _read_answer(process: subprocess.Popen[bytes]) -> Mapping[str, Any]:
    """What it said; its few kilobytes fit the pipe, so that it never waits for us."""
    if process.stdout is None or process.stdout.closed:
        return {"error": f"not summed up within {SUM_UP_S:g} s"}
    with process.stdout as stream:
        answer = _parse(stream.read())
    return answer or {"error": f"not summed up: its process ended with {process.returncode}"}


def _read_facts(path: Path) -> Mapping[str, Any]:
    try:
        return _parse(path.read_bytes())
    except OSError:
        return {}


def _parse(text: bytes) -> Mapping[str, Any]:
    try:
        facts = json.loads(text)
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}


def _parts(facts: Mapping[str, Any]) -> dict[str, int]:
    parts = facts.get("parts_us")
    if not isinstance(parts, dict):
        return {}
    # A rank wrote them: what is no number may not stop this node's loop.
    return {str(part): us for part, us in parts.items() if isinstance(us, int)}


def _operators(answer: Mapping[str, Any]) -> list[OperatorTime]:
    return [OperatorTime(**one) for one in answer.get("operators", [])]


# The same steps of several ranks, side by side: the parts of the step, and its operators. Pure.

LEAST_US = 10.0
"""A smaller difference between two ranks is no news: the clock and the caches do as much."""

MOST_OPERATORS = 12

LEAST_SHARE = 0.5
"""Of the difference in a part, what an operator must take of it to be called its reason."""


@dataclass(frozen=True)
class TraceRow:
    """What one thing took each of the ranks, microseconds of the mean step. None: not known."""

    name: str
    us: tuple[float | None, ...]

    @property
    def difference_us(self) -> float:
        """By how much the first rank took longer than the second; 0 where there is none."""
        if len(self.us) < 2 or self.us[0] is None or self.us[1] is None:
            return 0.0
        return self.us[0] - self.us[1]


def parts(traced: Sequence[TracedRank]) -> list[TraceRow]:
    """Part by part, then the whole step; parts that no rank spent a moment in are left out."""
    known = {part for one in traced for part, us in one.parts_us.items() if us}
    # In the order of a step; others, of newer ranks, follow.
    ordered = [*(p for p in TRACED_PARTS if p in known), *sorted(known - {*TRACED_PARTS})]
    if not ordered:
        return []
    rows = [
        TraceRow(part, tuple(one.parts_us.get(part, 0) if one.parts_us else None for one in traced))
        for part in ordered
    ]
    whole = tuple(sum(one.parts_us.values()) if one.parts_us else None for one in traced)
    return [*rows, TraceRow("step", whole)]


def operators(traced: Sequence[TracedRank]) -> list[TraceRow]:
    """Those whose time differs most between the first two, largest difference first.

    One that a rank does not tell is among its cheapest: it counts as none there.
    """
    tables = [{one.name: one.self_us for one in each.operators} for each in traced]
    names = {name for table in tables for name in table}
    rows = [
        TraceRow(name, tuple(table.get(name, 0.0) if table else None for table in tables))
        for name in sorted(names)
    ]
    if len(traced) > 1:
        rows = [row for row in rows if abs(row.difference_us) >= LEAST_US]
        rows.sort(key=lambda row: -abs(row.difference_us))
    else:
        rows.sort(key=lambda row: -(row.us[0] or 0.0))
    return rows[:MOST_OPERATORS]


def verdict(traced: Sequence[TracedRank]) -> str:
    """In one sentence where the first rank's own time goes beyond the second's; empty: nowhere."""
    own = [row for row in parts(traced)[:-1] if row.name != "communicating"]
    worst = max(own, key=lambda row: row.difference_us, default=None)
    if worst is None or worst.difference_us < LEAST_US:
        return ""
    slow, peer = traced[0].rank, traced[1].rank
    said = f"rank {slow} takes {_ms(worst)} ms longer than rank {peer} in {worst.name}"
    rows = operators(traced)
    if not rows:
        return said
    dearest = max(rows, key=lambda row: row.difference_us)
    if dearest.difference_us < LEAST_SHARE * worst.difference_us:
        return f"{said}; no operator explains it: look at Python, sleep and input between them"
    return f"{said}; of all that it runs, most of it goes to: {dearest.name} (+{_ms(dearest)} ms)"


def _ms(row: TraceRow) -> str:
    return f"{row.difference_us / 1e3:.1f}"


# Traces of chosen steps: this node's part of one, what is in a trace, and two of them compared.
