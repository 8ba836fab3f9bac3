"""Puts this node to the test when somebody asked for it, or after it was blamed."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.contract import environment
from holdfast.contract.ending_processes import signal_group
from holdfast.contract.permit import own_group
from holdfast_sidecar.components.gpu.readings import GpuReading
from holdfast_sidecar.components.health_check.component import blamed
from holdfast_sidecar.components.health_check.stress_request import CPU, GPU, Result, StressRequest
from holdfast_sidecar.config.settings import GateSettings
from holdfast_sidecar.records.codec import decode, encode
from holdfast_sidecar.records.findings import Moment
from holdfast_sidecar.records.formatting import how_it_ended
from holdfast_sidecar.records.plan import Request
from holdfast_sidecar.records.reports import AgentReport, Exertion
from holdfast_sidecar.store.orders import Orders
from holdfast_sidecar.store.protocol import Section

logger = logging.getLogger(__name__)


# A node's test as a child of the sidecar: started, listened to, ended when its time is over.
#
# Nothing here waits: whoever asks looks again at the next tick.

COMMAND = (sys.executable, "-m", "holdfast_sidecar.components.health_check.stress")


@dataclass
class TestProcess:
    """One test under way."""

    __test__ = False  # for pytest: it is none of its own

    process: subprocess.Popen[bytes]
    ends_s: float
    """CLOCK_MONOTONIC when its time is over."""
    patience_s: float
    at: str = "starting"
    """What it is doing, in its own words."""
    _heard: bytes = b""

    @classmethod
    def start(
        cls,
        errand: StressRequest,
        now_s: float,
        patience_s: float,
        command: tuple[str, ...] = COMMAND,
    ) -> TestProcess:
        """Start one in a session of its own, so that all of it can be ended. OSError if it can't
        be."""
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_surroundings(),
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(encode(errand).encode() + b"\n")
            process.stdin.flush()
        return cls(process, now_s + patience_s, patience_s)

    def look(self, now_s: float) -> Result | None:
        """The result, once there is one, good or bad."""
        # In this order: of one that has ended nothing more comes than is heard after that.
        code = self.process.poll()
        if (result := self._listen()) is not None:
            self.end()
            return result
        if code is not None:
            self.end()
            return Result(error=f"the test {how_it_ended(code)}")
        if now_s < self.ends_s:
            return None
        self.end()
        return Result(error=f"it was not over within {self.patience_s:g} s (last: {self.at})")

    def end(self) -> None:
        """End it and all that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal_group(own_group(self.process))
        # One that hangs in the kernel stays; nobody waits for it.
        self.process.poll()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _listen(self) -> Result | None:
        assert self.process.stdout is not None
        with contextlib.suppress(OSError):
            while chunk := os.read(self.process.stdout.fileno(), 1 << 16):
                self._heard += chunk
        *lines, self._heard = self._heard.split(b"\n")
        for line in lines:
            text = line.decode(errors="replace").strip()
            if text.startswith("{"):
                return decode(Result, text) or Result(error=f"the test said {text[:80]!r}")
            self.at = text or self.at
        return None


def _surroundings() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in environment.NEVER_FOR_RANKS}
    return {**kept, "PYTHONSAFEPATH": "1"}


TEST = "test"
"""Kind of request."""

FRESH_S = 3600.0
"""Of a request that nobody took back, as after the asker was killed: what was wanted an hour ago by
some node's clock is no test that a sidecar started since should make."""

Start = Callable[[StressRequest, float, float], TestProcess]


@dataclass
class Proving:
    """Looked at once per tick. `newest` is what the others read."""

    node: str
    settings: GateSettings
    start: Start = TestProcess.start
    newest: Exertion | None = None
    _answered: set[str] = field(default_factory=set)
    """Requests that were, of those that are still there: who asked may be gone."""
    _process: TestProcess | None = None
    _began_s: float = 0.0
    _is_forced: bool = False
    _is_after_blame: bool = False

    def follow(
        self,
        orders: Orders,
        ranks: Sequence[int],
        reading: GpuReading | None,
        moment: Moment,
    ) -> Exertion | None:
        """The newest test as it stands; `ranks` are those alive here."""
        if self._process is not None:
            self._look(self._process, moment)
            self._give_way(ranks, blamed(orders.plan, self.node))
        elif (wish := self._wish(orders, moment)) is not None:
            self._answer(wish, ranks, stress_request(orders, self.node, reading), moment)
        return self.newest

    def close(self) -> None:
        """End what is under way."""
        if self._process is not None:
            self._process.end()

    def _wish(self, orders: Orders, moment: Moment) -> Request | None:
        """The oldest one that was not answered yet."""
        done = self.newest.asked_by if self.newest is not None else ""
        if (incident := blamed(orders.plan, self.node)) and self.settings.test_after_blame:
            return Request(incident, TEST, node=self.node) if incident != done else None
        view = {} if orders.view is None else orders.view.section(Section.REQUESTS)
        wishes = (decode(Request, text) for text in view.values())
        mine = [
            wish
            for wish in wishes
            if wish is not None and (wish.kind, wish.node) == (TEST, self.node)
            if moment.now_unix_s - wish.at_unix_s < FRESH_S
        ]
        self._answered = {done, *self._answered} & {wish.identifier for wish in mine}
        mine = [wish for wish in mine if wish.identifier not in self._answered]
        return min(mine, key=lambda wish: (wish.at_unix_s, wish.identifier), default=None)

    def _answer(
        self, wish: Request, ranks: Sequence[int], errand: StressRequest, moment: Moment
    ) -> None:
        if ranks and not wish.is_forced:
            if not wish.at_unix_s:
                return  # after a blame: its ranks are about to go
            named = ", ".join(map(str, ranks))
            why = f"ranks run there ({named}) and would be slowed down; --force tests all the same"
            self.newest = Exertion(wish.identifier, "refused", why)
            return
        try:
            self._process = self.start(errand, moment.now_s, self.settings.test_timeout_s)
        except OSError as error:
            self.newest = Exertion(wish.identifier, "failed", f"it can't be started: {error}")
            return
        logger.info("this node is put to the test (%d x %s)", errand.devices, errand.device)
        self._began_s = moment.now_s
        self._is_forced, self._is_after_blame = wish.is_forced, not wish.at_unix_s
        self.newest = Exertion(wish.identifier, "running", self._process.at, devices=errand.devices)

    def _give_way(self, ranks: Sequence[int], blamed_for: str) -> None:
        """Ranks that start need the node for themselves, unless somebody said otherwise."""
        if self._process is None or self.newest is None or self._is_forced:
            return
        is_overtaken = self._is_after_blame and blamed_for != self.newest.asked_by
        if ranks or is_overtaken:
            self._process.end()
            self._process = None
            why = "it was ended, for the next attempt takes the node in"
            self.newest = Exertion(self.newest.asked_by, "refused", why)

    def _look(self, process: TestProcess, moment: Moment) -> None:
        assert self.newest is not None
        result = process.look(moment.now_s)
        asked_by, devices = self.newest.asked_by, self.newest.devices
        if result is None:
            self.newest = Exertion(asked_by, "running", process.at, devices=devices)
            return
        self._process = None
        self.newest = _outcome(result, asked_by, devices, moment, moment.now_s - self._began_s)
        logger.info("the test is over: %s", self.newest)


def _outcome(
    result: Result, asked_by: str, devices: int, moment: Moment, took_s: float
) -> Exertion:
    return Exertion(
        asked_by,
        "failed" if result.error else "done",
        result.error,
        list(result.wrong),
        dict(result.figures),
        result.model,
        devices,
        moment.now_unix_s,
        took_s,
    )


def stress_request(orders: Orders, node: str, reading: GpuReading | None) -> StressRequest:
    """What there is to test: every GPU; without any, as many processes as ranks run here."""
    there = () if reading is None else [gpu for gpu in reading.gpus if not gpu.lost]
    if there:
        return StressRequest(os.getpid(), GPU, len(there))
    agents: Mapping[str, str] = {} if orders.view is None else orders.view.section(Section.AGENTS)
    agent = decode(AgentReport, agents.get(node, ""))
    slots = 1 if agent is None else agent.slots
    return StressRequest(os.getpid(), CPU, max(1, min(slots, len(os.sched_getaffinity(0)))))
