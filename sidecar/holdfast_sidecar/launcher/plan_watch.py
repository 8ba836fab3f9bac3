"""Keeps the newest view of the job at hand, in a thread, and wakes whoever waits for news.

A store that is away changes nothing: the last plan stays in force until a newer one is read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from holdfast_sidecar.linux.threads import start_needed_thread
from holdfast_sidecar.performance.summary import heard
from holdfast_sidecar.policy.election import DuplicateSidecar, watch_launcher
from holdfast_sidecar.records.checkpoint import CheckpointOrder
from holdfast_sidecar.records.codec import decode, encode, incarnation_in
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.records.reports import AgentReport, GateVerdict, NodeReport
from holdfast_sidecar.records.steps import SlownessReport
from holdfast_sidecar.store.protocol import (
    CURRENT,
    ExchangeGuard,
    Section,
    Store,
    StoreUnavailable,
    View,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

WATCHED = (Section.PLAN, Section.ENDPOINTS, Section.CHECKPOINT)
"""What an agent follows; reading all reports at each news would cost n nodes n² of them."""

SLOW_EVERY_S = 10.0
"""How often who is slow is looked up where that is told: it is said once it has lasted for minutes,
and one launcher of a job reads all reports for it."""

LOOK_EVERY_S = 1.0
"""Every write of an order wakes its readers. Only a server that went away and a lease that ran out
are found by looking."""

RETRY_S = 0.2
"""Pause before a store that is away is asked again; recovery should not wait for more."""


class PlanWatch:
    """Reads the store at every order. The store is for this alone: it need not hear reports."""

    def __init__(self, store: Store, look_every_s: float = LOOK_EVERY_S) -> None:
        self._store = store
        self._look_every_s = look_every_s
        self._view: View | None = None
        self._plan: Plan | None = None
        self._plan_text = ""
        self._standing: SlownessReport | None = None
        self._standing_due_s = 0.0
        self.hears_slowness = False
        """Whether `standing` is to be looked up."""
        self._is_up = True
        self._guard = ExchangeGuard(logger)
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self._news = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def start(self) -> None:
        """Begin to watch. Raises BadInput where no thread can be started."""
        start_needed_thread(self._run, "holdfast-plan")

    def stop(self) -> None:
        """Stop watching; returns before the thread's last wait is over."""
        self._stopping.set()

    @property
    def plan(self) -> Plan | None:
        """The newest plan that was read; kept while the store is away or was emptied."""
        return self._plan

    @property
    def plan_text(self) -> str:
        """The same plan, verbatim."""
        return self._plan_text

    @property
    def view(self) -> View | None:
        """The newest reading."""
        return self._view

    @property
    def checkpoint(self) -> CheckpointOrder | None:
        """The newest order to save."""
        text = "" if self._view is None else self._view.section(Section.CHECKPOINT).get(CURRENT, "")
        return decode(CheckpointOrder, text)

    @property
    def standing(self) -> SlownessReport | None:
        """Who is slow, as the leader said a moment ago; None where it is not looked up."""
        return self._standing

    @property
    def is_up(self) -> bool:
        """Whether the last call to the store was answered."""
        return self._is_up

    @property
    def why_unled(self) -> str:
        """Why nobody could say now that the job is done; empty: somebody leads."""
        if not self._is_up:
            return "the coordination server is away"
        is_led = self._view is not None and bool(self._view.lease.candidate)
        return "" if is_led else "no sidecar leads the job"

    @property
    def news_fd(self) -> int:
        """Becomes readable at every view that is not the one before; `drain` makes it quiet."""
        return self._news

    def wake(self) -> None:
        """Let whoever sleeps on `news_fd` look, though the view is the same."""
        os.eventfd_write(self._news, 1)

    def drain(self) -> None:
        """Forget news that was noticed."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._news)

    def wait_for(self, answer: Callable[[], T | None], timeout_s: float) -> T | None:
        """Ask `answer` at every new view until it is not None; None when the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: answer() is not None, timeout_s)
            return answer()

    def read_agents(self) -> list[AgentReport]:
        """What all agents report just now; nothing while the store is away."""
        try:
            fields = self._store.read((Section.AGENTS,)).section(Section.AGENTS)
        except StoreUnavailable:
            return []
        reports = (decode(AgentReport, text) for text in fields.values())
        return [report for report in reports if report is not None]

    def read_leader_waits(self) -> str:
        """Why the leader takes no step just now; empty where it does, or can't be asked."""
        try:
            view = self._store.read((Section.NODES,))
        except StoreUnavailable:
            return ""
        reports = (decode(NodeReport, text) for text in view.section(Section.NODES).values())
        led = (one for one in reports if one is not None and one.candidate == view.lease.candidate)
        return next((one.waiting for one in led), "")

    def read_unfit(self) -> dict[str, GateVerdict]:
        """Nodes whose health gate finds them unfit, just now; nothing while the store is away."""
        try:
            fields = self._store.read((Section.NODES,)).section(Section.NODES)
        except StoreUnavailable:
            return {}
        reports = ((name, decode(NodeReport, text)) for name, text in fields.items())
        found = ((name, report.gate) for name, report in reports if report is not None)
        return {name: one for name, one in found if one is not None and one.state == "unfit"}

    def _run(self) -> None:
        while not self._stopping.is_set():
            error = self._guard.run(self._follow)
            if error is not None:
                self._lose(error)
                self._stopping.wait(RETRY_S)

    def _follow(self) -> None:
        self._take(self._store.read(WATCHED))
        if self.hears_slowness and time.monotonic() >= self._standing_due_s:
            self._standing_due_s = time.monotonic() + SLOW_EVERY_S
            before, self._standing = self._standing, self._read_standing()
            if self._standing != before:
                self.wake()
        self._store.wait(self._look_every_s)

    def _read_standing(self) -> SlownessReport | None:
        view = self._store.read((Section.NODES,))
        reports = (decode(NodeReport, text) for text in view.section(Section.NODES).values())
        told = [report for report in reports if report is not None]
        return heard(told, view.lease.candidate)

    def _take(self, view: View) -> None:
        text = view.section(Section.PLAN).get(CURRENT)
        with self._changed:
            is_news = not self._is_up or view != self._view
            if not self._is_up:
                logger.info("the coordination server is back")
            self._is_up = True
            self._view = view
            if text is not None and text != self._plan_text:
                plan = decode(Plan, text)
                if plan is not None:
                    self._plan, self._plan_text = plan, text
            self._changed.notify_all()
        if is_news:
            os.eventfd_write(self._news, 1)

    def _lose(self, error: Exception) -> None:
        with self._changed:
            if self._is_up and isinstance(error, StoreUnavailable):
                logger.warning(
                    "the coordination server is away: %s; nothing is restarted until it is back",
                    error,
                )
            self._is_up = False
            self._changed.notify_all()
        os.eventfd_write(self._news, 1)


# Tells the job how this node's agent is: a thread repeats the newest report as a heartbeat.
#
# Reports are levels: what could not be written while the store was away is written when it returns.


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
        known = DuplicateSidecar.GONE
        if other is not None:
            known = self._namesake_watch.judge(other, asked_at, time.monotonic())
        if known is DuplicateSidecar.GONE:
            self._replaced.add(incarnation_in(held) or "")
        self.has_namesake |= known is DuplicateSidecar.STAYS
        return known is DuplicateSidecar.GONE
