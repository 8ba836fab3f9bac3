"""One job under one contestant: started, watched by its ranks' own lines, and always ended."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from bench.benchmark import NotRun
from bench.launch.contestants import HOLDFAST, Contestant, Scenario, environment
from bench.launch.processes import Launched, kill_marked
from bench.launch.redis_server import RedisServer
from bench.launch.steps import Event, parse_event
from holdfast_sidecar.config.settings import PathSettings

LOOK_S = 0.02
"""How often the ranks' lines are read; times come from the lines, so this only delays the fault."""


class NotReached(NotRun):
    """The job did not get where it should within the time; the text says where it was."""


class Job:
    """A context: leaving it kills everything that the job started and removes its files."""

    def __init__(self, contestant: Contestant, scenario: Scenario) -> None:
        self.contestant = contestant
        self.directory = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
        self.server: RedisServer | None = None
        self.scenario = replace(
            scenario,
            run=f"bench-{uuid.uuid4().hex[:12]}",
            directory=self.directory,
            port=free_port(),
        )
        self.launched: dict[str, Launched] = {}

    def __enter__(self) -> Job:
        if self.contestant.name == HOLDFAST.name:
            try:
                self.server = RedisServer(self.directory)
            except NotRun:
                shutil.rmtree(self.directory, ignore_errors=True)
                raise
            self.scenario = replace(self.scenario, redis_url=self.server.url)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._clean()
        except KeyboardInterrupt:  # a second Ctrl-C, or one sent to the whole group: clean first
            self._clean()
            raise

    def _clean(self) -> None:
        kill_marked(self.scenario.run)
        for launched in self.launched.values():
            launched.process.wait(timeout=10)
        if self.server is not None:
            self.server.stop()
        shutil.rmtree(self.directory, ignore_errors=True)
        shutil.rmtree(shared_memory(self.scenario.run), ignore_errors=True)

    def start(
        self, node: str, variables: Mapping[str, str] | None = None, settings: Sequence[str] = ()
    ) -> None:
        """Start the launcher of this node, with these environment variables and settings of
        Holdfast beside its own."""
        command = self.contestant.command(self.scenario, node)
        self.launched[node] = Launched(
            with_settings(command, settings),
            {**environment(self.contestant, self.scenario, node), **(variables or {})},
            self.directory,
        )

    def events(self) -> list[Event]:
        """Everything that the ranks wrote so far, in order of time."""
        events = []
        for path in self.directory.glob("rank-*.log"):
            with path.open() as lines:
                events += [event for line in lines if (event := parse_event(line)) is not None]
        return sorted(events, key=lambda event: event.at_ns)

    def wait_until(
        self, reached: Callable[[list[Event]], bool], within_s: float, *, must: bool
    ) -> list[Event]:
        """Look until the ranks' lines say so; NotReached if they must and don't in time."""
        deadline = time.monotonic() + within_s
        while True:
            events = self.events()
            if reached(events):
                return events
            if time.monotonic() > deadline:
                break
            time.sleep(LOOK_S)
        self._tell_last_lines()
        if must:
            raise NotReached(f"{self.contestant.name} was not there after {within_s:g} s")
        return events

    def _tell_last_lines(self) -> None:
        """For whoever looks on; results hold no output, which may name hosts and paths."""
        for node, launched in self.launched.items():
            for line in launched.tail():
                print(f"  {self.contestant.name}, node {node}: {line}", file=sys.stderr)


def with_settings(command: Sequence[str], settings: Sequence[str]) -> list[str]:
    """The command of `holdfast run` with settings, before the script."""
    script = next(n for n, word in enumerate(command) if word.endswith(".py"))
    return [*command[:script], *(f"--set={one}" for one in settings), *command[script:]]


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def shared_memory(run: str) -> Path:
    """Where Holdfast's pages of a killed job lie; nobody is left to sweep them."""
    return Path(PathSettings().shm_dir) / f"holdfast-{os.getuid()}" / run
