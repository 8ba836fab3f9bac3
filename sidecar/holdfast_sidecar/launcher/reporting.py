"""Tells the job how this node's agent is: a thread repeats the newest report as a heartbeat.

Reports are levels: what could not be written while the store was away is written when it returns.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import threading
from typing import Any

from holdfast_sidecar.coordination.exchange_guard import ExchangeGuard
from holdfast_sidecar.coordination.keys import Section
from holdfast_sidecar.coordination.store import Store, StoreUnavailable
from holdfast_sidecar.records.agent import AgentReport
from holdfast_sidecar.records.codec import encode

logger = logging.getLogger(__name__)


class Reporter:
    """Writes one agent's report. The store belongs to this thread alone."""

    def __init__(self, store: Store, report: AgentReport, heartbeat_s: float) -> None:
        self._store = store
        self._report = report
        self._heartbeat_s = heartbeat_s
        self._endpoint: tuple[str, str] | None = None
        self._said = 1
        self._written = 0
        self._closing = False
        self._guard = ExchangeGuard(logger)
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="holdfast-report", daemon=True)

    def start(self) -> None:
        """Begin to report."""
        self._thread.start()

    @property
    def report(self) -> AgentReport:
        """What is being reported."""
        return self._report

    def say(self, **changes: Any) -> None:
        """Change fields of the report; written at once, and again until it could be."""
        with self._changed:
            report = dataclasses.replace(self._report, **changes)
            if report != self._report:
                self._report = report
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
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        is_up = True
        while True:
            with self._changed:
                self._changed.wait_for(self._has_work, self._heartbeat_s)
                self._report = dataclasses.replace(self._report, beat=self._report.beat + 1)
                report, endpoint, said = self._report, self._endpoint, self._said
                if self._closing and said == self._written:
                    return
            write = functools.partial(self._write, report, endpoint, said != self._written)
            error = self._guard.run(write)
            if error is None:
                is_up, self._written = True, said
                continue
            if is_up and isinstance(error, StoreUnavailable):
                logger.debug("can't report for now: %s", error)
            is_up = False
            with self._changed:
                if self._closing:
                    return
                self._changed.wait(self._heartbeat_s)

    def _has_work(self) -> bool:
        return self._closing or self._said != self._written

    def _write(self, report: AgentReport, endpoint: tuple[str, str] | None, is_news: bool) -> None:
        if endpoint is not None and is_news:
            self._store.report(Section.ENDPOINTS, *endpoint)
        self._store.report(Section.AGENTS, report.node, encode(report), wake=is_news)
