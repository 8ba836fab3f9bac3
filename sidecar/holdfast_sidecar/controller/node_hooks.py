"""Runs the user's command for a node that is kept outside, or let in again: Slurm's drain, say.

What stands in the plan about a node comes off the wire, so it only ever becomes part of one word of
the command that this node's own settings name; no shell reads it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import IO

from holdfast.contract import environment
from holdfast.contract.ending_processes import signal_group
from holdfast.contract.permit import own_group
from holdfast_sidecar.config import timeouts
from holdfast_sidecar.config.settings import NodesSettings
from holdfast_sidecar.ranks.ending import ActionRunner
from holdfast_sidecar.records.plan import DONE, HookRun

logger = logging.getLogger(__name__)

KEPT = 32
"""Outcomes that are told on: the leader reads them within a heartbeat or two."""

WORDS = 200
"""Of a reason: what Slurm shows of one in a line, and no page of evidence."""

LAST_WORDS_BYTES = 400
"""Of what a command that failed wrote last."""

PATIENCE_S = 5.0
"""At the end of the sidecar: within what a launcher leaves it before it kills it."""

POLL_S = 0.02

KILLED_S = 0.2
"""One that hangs in the kernel is left to it: the loop goes on."""


class HookFailed(Exception):
    """The command could not be run, ended badly or took too long."""


@dataclass
class _Running:
    run: HookRun
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    until_s: float


@dataclass
class NodeHooks:
    """Looked at once per tick; a command never holds the loop."""

    settings: NodesSettings
    outcomes: dict[str, str] = field(default_factory=dict)
    """Key of a run -> `done`, or what went wrong."""
    _running: dict[str, _Running] = field(default_factory=dict)

    def follow(self, wanted: Iterable[HookRun], runner: ActionRunner, now_s: float) -> None:
        """Start what this sidecar is to run, once, and see what has ended. `now_s`: any clock."""
        for key in list(self._running):
            self._end(key, runner, now_s)
        for run in wanted:
            if not self._is_known(run):
                self._begin(run, runner, now_s)

    def conclude(self, wanted: Iterable[HookRun], runner: ActionRunner) -> None:
        """Start what is still to be started and give all a moment: nobody may be left to do it."""
        began_s = time.monotonic()
        self.follow(wanted, runner, began_s)
        while self._running and time.monotonic() - began_s < PATIENCE_S:
            time.sleep(POLL_S)
            for key in list(self._running):
                self._end(key, runner, time.monotonic())

    def _is_known(self, run: HookRun) -> bool:
        return bool(run.outcome) or run.key in self.outcomes or run.key in self._running

    def _begin(self, run: HookRun, runner: ActionRunner, now_s: float) -> None:
        try:
            self._running[run.key] = _start(run, self.settings, now_s)
        except (OSError, ValueError) as error:
            self._note(run, runner, f"it can't be run: {error}")

    def _end(self, key: str, runner: ActionRunner, now_s: float) -> None:
        running = self._running[key]
        code = running.process.poll()
        if code is None and now_s < running.until_s:
            return
        del self._running[key]
        wrong = "" if code == 0 else _what_went_wrong(running, code, self.settings.hook_timeout_s)
        running.output.close()
        self._note(running.run, runner, wrong)

    def _note(self, run: HookRun, runner: ActionRunner, wrong: str) -> None:
        self.outcomes[run.key] = wrong or DONE
        for old in list(self.outcomes)[:-KEPT]:
            del self.outcomes[old]
        action = partial(_conclude, run, wrong)
        if run.event == "quarantine":
            runner.run("on_quarantine", action)
        else:
            runner.run("on_return", action)


def words_of(run: HookRun, settings: NodesSettings) -> list[str]:
    """The command, word by word. Raises ValueError where it can't be split, or is empty."""
    command = settings.on_quarantine if run.event == "quarantine" else settings.on_return
    given = {"node": run.node, "reason": run.reason, "gpu": run.gpu, "remedy": run.remedy}
    return [_filled(word, given) for word in timeouts.split(command)]


def _filled(word: str, given: Mapping[str, str]) -> str:
    """In one go: what is put in is not looked through for more to put in."""
    filled = timeouts.PLACE.sub(lambda place: _plain(given[place[1]]), word)
    if filled.startswith("-") and not word.startswith("-"):
        raise ValueError(f"{filled!r} would be read as an option")
    return filled


def _plain(value: str) -> str:
    """In one line, without what ends a string in C: whatever else it says, it is one word."""
    return "".join(c if c.isprintable() else " " for c in value)[:WORDS]


def _start(run: HookRun, settings: NodesSettings, now_s: float) -> _Running:
    """What it writes may be told: it gets no secret of ours to write."""
    words = words_of(run, settings)
    with contextlib.ExitStack() as opened:
        output = opened.enter_context(tempfile.TemporaryFile())
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={k: v for k, v in os.environ.items() if k not in environment.NEVER_FOR_RANKS},
            start_new_session=True,
        )
        opened.pop_all()
    return _Running(run, process, output, now_s + settings.hook_timeout_s)


def _what_went_wrong(running: _Running, code: int | None, limit_s: float) -> str:
    """In words; who is not over yet is ended with all that it started."""
    if code is None:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            signal_group(own_group(running.process))
            running.process.wait(timeout=KILLED_S)
        return f"it took longer than {limit_s:g} s"
    size = running.output.seek(0, os.SEEK_END)
    running.output.seek(max(0, size - LAST_WORDS_BYTES))
    said = _plain(" ".join(running.output.read().decode(errors="replace").split()))
    how = f"exit code {code}" if code > 0 else f"ended by signal {-code}"
    return f"{how}: {said}" if said else how


def _conclude(run: HookRun, wrong: str) -> bool:
    """An action as the others are, so that it is logged and counted as they are."""
    if wrong:
        raise HookFailed(f"node {run.node}: {wrong}")
    logger.info("on_%s was run for node %s: %s", run.event, run.node, run.reason)
    return True
