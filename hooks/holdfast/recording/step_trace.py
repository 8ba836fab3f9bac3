"""Traces of chosen steps, on request: when to begin and to end, and what becomes of the request.

What profiles is behind `Profiler`; until somebody asks for a trace nothing of it is loaded, and a
step costs one comparison (see `Recorder.on_trace`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from holdfast.contract.page import (
    TRACED_PARTS,
    TRACES,
    Order,
    OrderKind,
    Phase,
    Record,
    RecordFlag,
    Reply,
    ReplyState,
    trace_facts_name,
    trace_name,
)
from holdfast.recording.interface import Recording


class Profiler(Protocol):
    """One trace, from its warm-up to its file. Every call may raise RuntimeError."""

    taken_by: str
    """Who took the profiler away from it, in words; empty: nobody."""

    def obstacle(self) -> str:
        """Why no trace may begin now; empty: it may."""

    def warm_up(self) -> None:
        """Do what takes long the first time, and record nothing yet."""

    def begin(self) -> None:
        """Record from now on."""

    def mark(self, step: int) -> None:
        """From now on it is this step."""

    def end(self) -> None:
        """Record no longer; what was recorded stays until it is written."""

    def write(self, path: Path) -> int:
        """Write what was recorded; its size in bytes. Also raises OSError."""

    def drop(self) -> None:
        """Give up, wherever it is; what was recorded is lost."""


@dataclass
class StepTrace:
    """What one rank does about orders to trace. One per attempt."""

    recording: Recording
    rank: int
    evidence: Path
    """Folder of this rank's evidence; the traces go below it."""
    open_profiler: Callable[[], Profiler]
    clock_ns: Callable[[], int]
    write_later: Callable[[Callable[[], None]], None]
    """Has something done beside the training; files may take their time."""
    _heard: str = ""
    _armed: Order | None = None
    _profiler: Profiler | None = None
    _began: bool = False
    _kept_ns: int = 0
    _records: list[Record] = field(default_factory=list)

    def follow(self, order: Order | None, step: int, record: Record | None) -> bool:
        """So many steps are complete, the newest told by the record; whether to call it again at
        the next one."""
        if order is not None and order.identifier != self._heard:
            self._hear(order, step)
        armed = self._armed
        if armed is None:
            return False
        is_over = order is None or order.is_withdrawn or self.clock_ns() > armed.deadline_ns
        if is_over:
            self.give_up(ReplyState.VOID, "" if order is not None else "no order")
            return False
        if self._began and record is not None:
            self._records.append(record)
        if step >= armed.step - 1:
            self._go_on(armed, step)
        return self._armed is not None

    def give_up(
        self, state: ReplyState = ReplyState.FAILED, error: str = "the hook failed"
    ) -> None:
        """Let go of the profiler, and say that nothing will come of the order."""
        armed, profiler = self._armed, self._profiler
        self._forget()
        if profiler is not None:
            profiler.drop()
        if armed is not None:
            self._conclude(armed, state, error=error)

    def _hear(self, order: Order, step: int) -> None:
        if self._armed is not None:
            self.give_up(ReplyState.VOID, "another trace was asked for")
        self._heard = order.identifier
        if order.is_withdrawn:
            return
        if step > order.step:
            self._reply(order, ReplyState.MISSED)
            return
        self._armed = order
        self._reply(order, ReplyState.ARMED)

    def _go_on(self, order: Order, step: int) -> None:
        # No ordinary step: nobody shall be called slow for it.
        self.recording.note_trace()
        before = self.recording.enter(Phase.SAVING)
        started_ns = self.clock_ns()
        try:
            self._do(order, step)
        except RuntimeError as error:
            self.give_up(ReplyState.FAILED, _one_line(error))
        finally:
            self._kept_ns += self.clock_ns() - started_ns
            self.recording.enter(before)

    def _do(self, order: Order, step: int) -> None:
        if self._profiler is None:
            self._profiler = self._open(order)
        profiler = self._profiler
        if profiler is None:
            return
        if profiler.taken_by:
            self.give_up(ReplyState.FAILED, profiler.taken_by)
        elif self._began and step >= order.step + order.every:
            profiler.end()
            self._keep(order, profiler)
        elif step >= order.step:
            if not self._began:
                profiler.begin()
                self._began = True
                self._reply(order, ReplyState.SAVING)
            profiler.mark(step)

    def _open(self, order: Order) -> Profiler | None:
        """Warmed up, one step ahead; None when there is something in the way."""
        profiler = self.open_profiler()
        if obstacle := profiler.obstacle():
            self.give_up(ReplyState.FAILED, obstacle)
            return None
        profiler.warm_up()
        return profiler

    def _keep(self, order: Order, profiler: Profiler) -> None:
        parts, kept_ns = mean_parts(self._records), self._kept_ns
        self._forget()
        folder = self._folder(order)

        def write() -> None:
            try:
                make_private(folder)
                size = profiler.write(folder / trace_name(self.rank))
            except (OSError, RuntimeError) as error:
                self._tell(order, ReplyState.FAILED, {"error": _one_line(error)})
            else:
                self._tell(order, ReplyState.SAVED, {"parts_us": parts}, size, kept_ns)

        self.write_later(write)

    def _conclude(self, order: Order, state: ReplyState, error: str) -> None:
        facts = {"error": error}
        self.write_later(lambda: self._tell(order, state, facts))

    def _tell(
        self,
        order: Order,
        state: ReplyState,
        facts: Mapping[str, object],
        size: int = 0,
        kept_ns: int = 0,
    ) -> None:
        """Beside the trace, and then in the page, which is what the sidecar waits for."""
        try:
            folder = self._folder(order)
            make_private(folder)
            write_whole(folder / trace_facts_name(self.rank), json.dumps(facts).encode())
        except OSError:
            state = ReplyState.FAILED
        self._reply(order, state, size, kept_ns)

    def _folder(self, order: Order) -> Path:
        return self.evidence / TRACES / order.identifier

    def _forget(self) -> None:
        self._armed = self._profiler = None
        self._began, self._kept_ns, self._records = False, 0, []

    def _reply(
        self, order: Order, state: ReplyState, size_bytes: int = 0, duration_ns: int = 0
    ) -> None:
        reply = Reply(state, order.step, size_bytes, duration_ns, order.identifier)
        self.recording.reply(reply, OrderKind.TRACE)


def mean_parts(records: list[Record]) -> dict[str, int]:
    """Part of a step -> microseconds, the mean of these steps; empty where none was measured."""
    measured = [record for record in records if not record.flags & RecordFlag.WHOLE_ONLY]
    return {
        part: sum(getattr(record, f"{part}_us") for record in measured) // len(measured)
        for part in TRACED_PARTS
        if measured
    }


def make_private(folder: Path) -> None:
    """Make the folder and what is missing above it, for this user alone. Raises OSError."""
    for place in (folder.parent.parent, folder.parent, folder):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Under another name first, so that nobody reads half of it. Raises OSError."""
    draft = path.with_name(f".{path.name}.part")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    draft.replace(path)


def _one_line(error: Exception) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text[:300]
