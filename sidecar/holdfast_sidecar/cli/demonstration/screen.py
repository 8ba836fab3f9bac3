"""What the demonstration shows while it runs: news as lines, and on a terminal a live picture."""

from __future__ import annotations

import logging
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, TextIO

import click

from holdfast_sidecar.cli.demonstration import job
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.store.embedded import find_binary

PLAIN_EVERY_S = 5.0
"""Without a terminal, how often the progress is a line of its own."""


@dataclass(frozen=True)
class RunProgress:
    """How far a run is. `details` are lines below the bar, one per node."""

    what: str
    step: int
    steps: int
    details: tuple[str, ...] = ()
    said: str = ""
    """The same as a line, where there is no picture; empty: the step is all there is to say."""


class Screen(Protocol):
    """Where it is shown."""

    def tell(self, news: str) -> None:
        """Something happened: a line that stays."""

    def show(self, progress: RunProgress) -> None:
        """How things stand: replaces what was shown before."""

    def close(self) -> None:
        """Nothing more is shown."""


def screen(stream: TextIO, started: float) -> Screen:
    """The right screen for this stream; times are shown since `started` (monotonic)."""
    return LiveScreen(stream, started) if stream.isatty() else LineScreen(stream, started)


@dataclass
class LineScreen:
    """Plain lines, for files and pipes."""

    stream: TextIO
    started: float
    shown_at: float = 0.0

    def tell(self, news: str) -> None:
        """One line."""
        _print(self.stream, _stamped(news, self.started))

    def show(self, progress: RunProgress) -> None:
        """One line every few seconds."""
        now = time.monotonic()
        if now - self.shown_at >= PLAIN_EVERY_S:
            self.shown_at = now
            step = f"{progress.what}: step {progress.step} of {progress.steps}"
            self.tell(progress.said or step)

    def close(self) -> None:
        """Nothing to tidy."""


@dataclass
class LiveScreen:
    """A bar and the nodes below the news, redrawn in place."""

    stream: TextIO
    started: float
    drawn: int = 0
    latest: list[str] = field(default_factory=list)

    def tell(self, news: str) -> None:
        """Put the line above the picture."""
        self._erase()
        _print(self.stream, _stamped(news, self.started))
        self._draw()

    def show(self, progress: RunProgress) -> None:
        """Draw the picture anew."""
        width = shutil.get_terminal_size().columns
        self.latest = picture(progress, width, time.monotonic() - self.started)
        self._erase()
        self._draw()

    def close(self) -> None:
        """Take the picture away."""
        self._erase()
        self.latest = []

    def _erase(self) -> None:
        if self.drawn:
            self.stream.write(f"\x1b[{self.drawn}F\x1b[J")
            self.drawn = 0

    def _draw(self) -> None:
        for line in self.latest:
            _print(self.stream, line)
        self.drawn = len(self.latest)
        self.stream.flush()


def picture(progress: RunProgress, width: int, seconds: float) -> list[str]:
    """Bar and details, none wider than the terminal."""
    room = max(10, min(40, width - 50))
    filled = round(room * min(1.0, progress.step / progress.steps))
    bar = "█" * filled + "░" * (room - filled)
    head = f"{seconds:5.0f} s  {progress.what} {bar} {progress.step}/{progress.steps}"
    return [line[: width - 1] for line in ("", head, *_indented(progress.details))]


def _indented(details: Sequence[str]) -> list[str]:
    return [f"         {line}" for line in details]


def _stamped(news: str, started: float) -> str:
    return f"{time.monotonic() - started:5.1f} s  {news}"


def _print(stream: TextIO, line: str) -> None:
    click.echo(line, file=stream)


# What must work for the second run, tried before the first: that one takes a minute.

LIMIT_S = 60.0
"""The launcher imports torch, which takes a minute from a cold network disk at worst."""


def rehearse() -> None:
    """BadInput when there is no server, or the launcher does not start."""
    find_binary()
    check_launcher(job.launcher_help())


def check_launcher(command: Sequence[str]) -> None:
    """Let it print its help, which takes all its imports; BadInput with its last line if not."""
    try:
        tried = subprocess.run(
            command,
            env=job.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BadInput(f"holdfast run does not start within {LIMIT_S:g} s") from None
    if tried.returncode != 0:
        lines = tried.stderr.strip().splitlines() or [f"exit code {tried.returncode}"]
        raise BadInput(f"holdfast run does not start here: {lines[-1].removeprefix('holdfast: ')}")


# What every demonstration begins and ends with.


@contextmanager
def stage(keep: Path | None, as_json: bool) -> Iterator[tuple[Screen, float]]:
    """The screen, and when it began, monotonic. BadInput where nothing can be performed.

    keep: a directory that must not be there yet. as_json: stdout is for the result alone.
    """
    if find_spec("torch") is None:
        raise BadInput("the demonstration trains: pip install 'holdfast[train,server]'")
    if keep is not None and keep.exists():
        raise BadInput(f"{keep} exists already; --keep wants a new directory")
    rehearse()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    # As Ctrl-C does: leave through every `finally`, so that nothing stays behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    started = time.monotonic()
    shown = screen(sys.stderr if as_json else sys.stdout, started)
    try:
        yield shown, started
    finally:
        shown.close()
