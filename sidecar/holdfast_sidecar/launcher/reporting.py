"""Tells the job how this node's agent is: a thread repeats the newest report as a heartbeat.

Reports are levels: what could not be written while the store was away is written when it returns.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import math
import threading
import time
from collections.abc import Iterable
from typing import Any

from holdfast_sidecar.linux.threads import start_needed_thread
from holdfast_sidecar.policy.election import Namesake, watch_launcher
from holdfast_sidecar.records.codec import decode, encode, incarnation_in
from holdfast_sidecar.records.reports import AgentReport
from holdfast_sidecar.store.protocol import ExchangeGuard, Section, Store, StoreUnavailable

logger = logging.getLogger(__name__)


class Reporter:
    """Writes one agent's report. The store belongs to this thread alone.

    `dead`: incarnations of launchers of this node that are known to be gone. The report of another
    one is replaced only once its heartbeat stands still, or it has left.
    """

    def __init__(
        self, store: Store, report: AgentReport, heartbeat_s: float, dead: Iterable[str] = ()
    ) -> None:
        self._store = store
        self._report = report
        self._ends_s = time.monotonic() + report.left_s if report.left_s else math.inf
        self._heartbeat_s = heartbeat_s
        self._endpoint: tuple[str, str] | None = None
        self._said = 1
        self._written = 0
        self._replaced = {report.incarnation, *dead}
        self._namesake_watch = watch_launcher(heartbeat_s)
        self._is_in_the_way = False
        self.has_namesake = False
        """Whether a living launcher elsewhere has this node's name, so that nothing can be said."""
        self._closing = False
        self._guard = ExchangeGuard(logger)
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to report. Raises BadInput where no thread can be started."""
        self._thread = start_needed_thread(self._run, "holdfast-report")

    @property
    def report(self) -> AgentReport:
        """What is being reported."""
        return self._report

    def say(self, **changes: Any) -> None:
        """Change fields of the report; written at once, and again until it could be."""
        with self._changed:
            if all(getattr(self._report, name) == value for name, value in changes.items()):
                return
            self._report = dataclasses.replace(self._report, **changes)
            self._said += 1
            self._changed.notify_all()

    def publish_endpoint(self, attempt: int, endpoint: str) -> None:
        """Tell the other members where the attempt's store is."""
        with self._changed:
            self._endpoint = (str(attempt), endpoint)
            self._said += 1
            self._changed.notify_all()

    def close(self, timeout_s: float) -> None:
        """Write what was said last, if the store takes it within this time, and end."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        is_up = True
        while True:
            with self._changed:
                self._changed.wait_for(self._has_work, self._heartbeat_s)
                self._report = dataclasses.replace(
                    self._report, beat=self._report.beat + 1, left_s=self._left_s()
                )
                report, endpoint, said = self._report, self._endpoint, self._said
                if self._closing and said == self._written:
                    return
            write = functools.partial(self._write, report, endpoint, said != self._written)
            error = self._guard.run(write)
            if error is None and not self._is_in_the_way:
                is_up, self._written = True, said
                continue
            if is_up and isinstance(error, StoreUnavailable):
                logger.debug("can't report for now: %s", error)
            is_up = error is None
            with self._changed:
                if self._closing:
                    return
                self._changed.wait(self._heartbeat_s)

    def _left_s(self) -> float:
        """0 means that there is no limit."""
        return 0.0 if math.isinf(self._ends_s) else max(0.001, self._ends_s - time.monotonic())

    def _has_work(self) -> bool:
        return self._closing or self._said != self._written

    def _write(self, report: AgentReport, endpoint: tuple[str, str] | None, is_news: bool) -> None:
        if endpoint is not None and is_news:
            self._store.report(Section.ENDPOINTS, *endpoint)
        text, asked_at = encode(report), time.monotonic()
        held = self._put(report.node, text, is_news)
        if held is not None and self._is_gone(held, asked_at):
            held = self._put(report.node, text, is_news)
        self._is_in_the_way = held is not None
        if held is None:
            self.has_namesake = False

    def _put(self, node: str, text: str, is_news: bool) -> str | None:
        return self._store.report_as(Section.AGENTS, node, text, self._replaced, wake=is_news)

    def _is_gone(self, held: str, asked_at: float) -> bool:
        """Whether the launcher may be replaced whose report this is, as the store had it when it
        was asked then."""
        other = decode(AgentReport, held)
        known = Namesake.GONE
        if other is not None:
            known = self._namesake_watch.judge(other, asked_at, time.monotonic())
        if known is Namesake.GONE:
            self._replaced.add(incarnation_in(held) or "")
        self.has_namesake |= known is Namesake.STAYS
        return known is Namesake.GONE
