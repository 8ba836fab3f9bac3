"""The lines of the kernel's log of late, as they are kept of an incident."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from holdfast.contract import page
from holdfast_sidecar import __version__
from holdfast_sidecar.components.machine import MachineReading
from holdfast_sidecar.config.paths import NAME, Paths
from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.incidents.aftermath import (
    DONE,
    IncidentContext,
    ReadKernelLines,
    archive_of,
    keep_aftermath,
    pack,
    with_exits,
)
from holdfast_sidecar.incidents.collect import EvidenceKeeping
from holdfast_sidecar.linux.kmsg import (
    KMSG,
    LEVELS,
    KernelRecord,
    open_log,
    parse_records,
    read_chunks,
)
from holdfast_sidecar.linux.threads import start_thread
from holdfast_sidecar.policy.budget import PLANNED
from holdfast_sidecar.ranks.ending import ActionRunner
from holdfast_sidecar.ranks.page import RankPage
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.plan import Incident, Plan
from holdfast_sidecar.store.orders import Orders
from holdfast_sidecar.store.protocol import Section, View

LINES_KEPT = 2000


def read_kernel_lines(since_s: float, path: Path = KMSG) -> list[str]:
    """Lines logged since then (seconds of the kernel's clock, which starts at boot), the newest
    `LINES_KEPT` of them. Raises OSError where the log may not be read."""
    lines: deque[str] = deque(maxlen=LINES_KEPT)
    descriptor = open_log(path)
    try:
        for chunk in read_chunks(descriptor):
            records = parse_records(chunk or b"")
            lines.extend(draw_line(record) for record in records if record.at_s >= since_s)
    finally:
        os.close(descriptor)
    return list(lines)


def draw_line(record: KernelRecord) -> str:
    """`[seconds] level: text`."""
    return f"[{record.at_s:.6f}] {LEVELS[record.level]}: {record.text}"


# Closes an incident's evidence on this node: what keeps after the end is added in a thread of its
# own, and once the incident is over all of it is packed into one file.

CONCLUDE_S = 2.0
"""A sidecar that leaves gives its last bundle so long: its launcher waits 5 s for all it does."""

BUNDLES_TOLD = 4
"""Of the newest incidents; the leader writes them down at its next reading."""

_TOLD = (Section.AGENTS, Section.NODES, Section.INCIDENTS, Section.CHECKPOINT, Section.LEDGER)
"""What everybody read of the job: never its requests' texts nor its key."""


@dataclass
class BundleKeeping:
    """One incident at a time, the newest; others wait in line."""

    node: str
    places: Paths
    settings: Settings
    evidence: EvidenceKeeping
    runner: ActionRunner
    read_kernel_lines: ReadKernelLines = read_kernel_lines
    _scene: IncidentContext | None = None
    _packed: dict[str, str] = field(default_factory=dict)
    _ahead: set[str] = field(default_factory=set)
    """Names of jobs that wait, run, or are done."""
    _line: deque[Callable[[], object]] = field(default_factory=deque)
    _thread: threading.Thread | None = None

    @property
    def bundles(self) -> dict[str, str]:
        """incident -> `host:path` of what this node packed of the newest ones."""
        newest = list(self._packed.items())[-BUNDLES_TOLD:]
        host = socket.gethostname()
        return {incident: f"{host}:{path}" for incident, path in newest}

    def follow(self, orders: Orders, machine: MachineReading, held: Iterable[RankPage]) -> None:
        """Take in what is so now; files are written meanwhile."""
        plan, view = orders.plan, orders.view
        if plan is None or view is None:
            return
        if self._scene is not None and _is_past(self._scene.plan, plan):
            self._close(with_exits(self._scene, view.section(Section.AGENTS)))
        if _is_of_fault(plan) and plan.state != "running":
            self._scene = self._look(plan, view, machine, held)
        for incident in _over(view):
            self._pack_later(incident)
        self._go_on()

    def conclude(self, orders: Orders) -> None:
        """Close what is open: this sidecar leaves."""
        if self._scene is not None:
            self._close(self._scene)
        incidents = {} if orders.view is None else orders.view.section(Section.INCIDENTS)
        for identifier in sorted(incidents):
            self._pack_later(identifier)
        until_s = time.monotonic() + CONCLUDE_S
        self._go_on()
        while self._thread is not None and self._thread.is_alive() and time.monotonic() < until_s:
            self._thread.join(max(0.0, until_s - time.monotonic()))
            self._go_on()

    def _look(
        self, plan: Plan, view: View, machine: MachineReading, held: Iterable[RankPage]
    ) -> IncidentContext:
        ranks = [one for one in held if one.identity.attempt == plan.attempt]
        before = self._scene
        if not ranks and before is not None and before.plan.incident == plan.incident:
            local_ranks, last_words = dict(before.local_ranks), dict(before.last_words)
        else:
            local_ranks = {one.identity.local_rank: one.identity.rank for one in ranks}
            last_words = {one.identity.rank: _last_words(one) for one in ranks}
        return IncidentContext(
            plan=plan,
            node=self.node,
            places=self.places,
            settings=self.settings,
            facts=self.evidence.facts.of_attempt(plan.attempt),
            local_ranks=local_ranks,
            last_words={rank: words for rank, words in last_words.items() if words},
            machine=machine,
            records={section.value: dict(view.section(section)) for section in _TOLD},
            redaction=self.evidence.redaction,
        )

    def _close(self, scene: IncidentContext) -> None:
        self._scene = None

        def keep() -> bool:
            return keep_aftermath(scene, self.read_kernel_lines, time.time(), time.monotonic())

        self._do_once(
            f"close {scene.plan.incident}", lambda: self.runner.run("keep_aftermath", keep)
        )

    def _pack_later(self, identifier: str) -> None:
        """Once the aftermath is there: without it nothing of this node was kept, or not yet."""
        directory = self.places.incident(identifier)
        if identifier in self._packed or not NAME.fullmatch(identifier):
            return
        if (directory / DONE).exists() or f"close {identifier}" in self._ahead:
            self._do_once(
                f"pack {identifier}",
                lambda: self.runner.run("pack_bundle", partial(self._pack, directory)),
            )

    def _pack(self, directory: Path) -> bool:
        archive = archive_of(directory)
        is_new = not archive.exists()
        if is_new:
            facts = {
                "incident": directory.name,
                "node": self.node,
                "host_name": socket.gethostname(),
                "holdfast": __version__,
                "at_unix_s": time.time(),
            }
            pack(directory, facts)
        self._packed[directory.name] = str(archive)
        return is_new

    def _do_once(self, name: str, job: Callable[[], object]) -> None:
        if name not in self._ahead:
            self._ahead.add(name)
            self._line.append(job)

    def _go_on(self) -> None:
        if self._line and (self._thread is None or not self._thread.is_alive()):
            self._thread = start_thread(self._work, "bundles")

    def _work(self) -> None:
        while self._line:
            self._line.popleft()()


def _is_of_fault(plan: Plan) -> bool:
    return bool(plan.incident) and plan.cause not in PLANNED and bool(NAME.fullmatch(plan.incident))


def _is_past(before: Plan, now: Plan) -> bool:
    """Whether the job went on from there: what is not known by now will not come."""
    return now.incident != before.incident or now.state == "running"


def _over(view: View) -> list[str]:
    """Incidents that are over, by their records."""
    known = (decode(Incident, text) for text in view.section(Section.INCIDENTS).values())
    return [
        one.identifier
        for one in known
        if one is not None and (one.recovered_unix_s or one.decided == "stop")
    ]


def _last_words(held: RankPage) -> str:
    words: Mapping[str, object] = page.parse_last_words(held.read()) or {}
    return ": ".join(str(words[name]) for name in ("type", "message") if words.get(name))
