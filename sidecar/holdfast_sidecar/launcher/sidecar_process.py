"""The node's sidecar as a child: started, started again when it dies, told when to leave.

It has no parent-death signal: it outlives a killed launcher for a grace, to report and tidy up.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

from holdfast.ending_processes import signal_child
from holdfast.identity import ProcessIdentity, is_alive
from holdfast.owned import owned_file
from holdfast.permit import own_child
from holdfast.removing import unlink
from holdfast_sidecar.config.paths import Places
from holdfast_sidecar.launcher.preemption import AGAIN_S
from holdfast_sidecar.launcher.sidecar_log import SidecarLog
from holdfast_sidecar.lifecycle import read_last_word, read_stay
from holdfast_sidecar.linux.threads import MORE_THREADS, NONE_LEFT, start_patiently
from holdfast_sidecar.records.formatting import how_it_ended

logger = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0
"""Between starts. Nobody waits for a sidecar, but without any no failure is answered."""

SETTLING_S = 60.0
"""A sidecar leaves word of what it serves once Python has imported it: seconds, on a machine on
which all ranks start at once tens of them."""

GLANCE_S = 0.2

LEAVE = signal.SIGINT
"""A sidecar of ours lets SIGTERM pass: a scheduler sends that to all of a job, and the job
needs its sidecars until it is saved. The second one says that nobody waits for it to tell of the
end."""

LEAVE_S = 5.0
"""Giving up the lease takes milliseconds; a store that is away costs it a timeout or two."""


class SidecarProcess:
    """Keeps one sidecar running beside this launcher."""

    def __init__(
        self, arguments: Sequence[str], places: Places, slot_holder: int | None = None
    ) -> None:
        """slot_holder: a descriptor that each sidecar inherits (`SlotHolder.link`)."""
        self._arguments = list(arguments)
        self._inherited = () if slot_holder is None else (slot_holder,)
        if slot_holder is not None:
            self._arguments += ["--slot-holder", str(slot_holder)]
        self._log_path = places.sidecar_log
        self._log = SidecarLog(places.sidecar_log, places.earlier_sidecar_log)
        self._shipping = places.shipping
        """Is there while the sidecar stays only to write a checkpoint or be scraped."""
        self._told_to_end = places.told_to_end
        self.left_s: Callable[[], float] = lambda: math.inf
        """Until this launcher may be killed itself."""
        self._record = places.sidecar_record
        self._told_unserved = ""
        self._obstacle = ""
        """Why none could be started last; empty: one was."""
        self._process: subprocess.Popen[bytes] | None = None
        self.tell_end: Callable[[int], None] = lambda pid: None
        """Called with the pid of a sidecar that ended unasked, before another one is started."""
        self._leaving = threading.Event()
        self._launching = threading.Lock()
        self._keeper: threading.Thread | None = None

    def start(self) -> None:
        """Start it, and keep it running in a thread, which tries on where none can be started:
        ranks train without one."""
        self._try_to_launch()
        self._keeper = start_patiently(self._keep, "holdfast-sidecar")
        if self._keeper is None:
            logger.warning(
                "%s: the sidecar of this node is not started again should it end; %s",
                NONE_LEFT,
                MORE_THREADS,
            )

    def note_told_to_end(self) -> None:
        """This launcher leaves since somebody told it to: its sidecar says so before it leaves."""
        with contextlib.suppress(OSError):  # it leaves without a word then
            self._told_to_end.touch()

    def stop(self) -> None:
        """Tell it to leave and wait: briefly, or while it has something to write or to tell."""
        self._leaving.set()
        with self._launching:  # none is launched after this
            process = self._process
        if process is None:
            self._log.close()
            return
        with contextlib.suppress(ProcessLookupError):
            signal_child(own_child(process), LEAVE)
        with _asked_again() as again:
            self._await(process, again)
        if line := read_last_word(self._shipping):
            logger.warning("%s", line)
        if process.poll() is None:
            logger.warning("the sidecar did not leave in time: killed")
            signal_child(own_child(process))
            with contextlib.suppress(subprocess.TimeoutExpired):  # where no keeper awaits it
                process.wait(LEAVE_S)
        if self._keeper is not None:
            self._keeper.join(LEAVE_S)
        self._log.close()

    def _await(self, process: subprocess.Popen[bytes], again: threading.Event) -> None:
        """again: somebody does not want to wait. What is being written is waited for even so."""
        end_s, known, is_hurried = time.monotonic() + LEAVE_S, None, False
        while time.monotonic() < end_s and not _has_left(process, GLANCE_S):
            stay = read_stay(self._shipping)
            if stay is not None and stay != known:
                known, end_s = stay, time.monotonic() + stay.most_s + LEAVE_S
                way_out = "; Ctrl-C ends the wait" if stay.gives_way else ""
                logger.warning("waiting up to %g s: %s%s", stay.most_s, stay.words, way_out)
            has_no_time = again.is_set() or self.left_s() <= 0
            if known is not None and known.gives_way and has_no_time and not is_hurried:
                is_hurried, end_s = True, time.monotonic() + LEAVE_S
                with contextlib.suppress(ProcessLookupError):
                    signal_child(own_child(process), LEAVE)

    def _keep(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            process = self._process
            if process is not None:
                self._follow_to_its_end(process)
            if self._leaving.wait(pause_s):
                return
            if process is not None:
                how = how_it_ended(process.returncode)
                logger.warning("the sidecar %s and is started again (%s)", how, self._log_path)
            self._try_to_launch()
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _follow_to_its_end(self, process: subprocess.Popen[bytes]) -> None:
        self._tell_unserved(process)
        process.wait()
        if not self._leaving.is_set():
            self.tell_end(process.pid)

    def _try_to_launch(self) -> None:
        """None runs where the machine has no process, descriptor or memory left, which passes."""
        with self._launching:
            self._process = None
            if self._leaving.is_set():
                return
            try:
                self._process = self._launch()
            except OSError as error:
                if not self._obstacle:
                    logger.warning(
                        "the sidecar can't be started, which is tried until it can: %s", error
                    )
                self._obstacle = str(error)
            else:
                self._obstacle = ""

    def _tell_unserved(self, process: subprocess.Popen[bytes]) -> None:
        """Say that it serves nothing as soon as it leaves word of that: few read its log."""
        until_s = time.monotonic() + SETTLING_S
        while (why := read_unserved(self._record, process.pid)) is None:
            is_late = time.monotonic() > until_s
            if is_late or process.poll() is not None or self._leaving.wait(GLANCE_S):
                return
        if why and why != self._told_unserved:
            logger.warning(
                "the sidecar of this node serves neither metrics nor a page, and no alert will ring"
                " for it: %s",
                why,
            )
        self._told_unserved = why

    def _launch(self) -> subprocess.Popen[bytes]:
        for word in (self._shipping, self._told_to_end):
            with contextlib.suppress(OSError):
                unlink(owned_file(word))
        with self._log.open() as log:
            return subprocess.Popen(
                [sys.executable, "-m", "holdfast_sidecar.cli.main", "sidecar", *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=self._inherited,
                # The user's directory may hold a redis.py: it must not be on the sidecar's path.
                env={**os.environ, "PYTHONSAFEPATH": "1"},
            )


def read_unserved(record: Path, pid: int) -> str | None:
    """Why the sidecar of this pid serves nothing; empty: it serves. None: it left no word yet."""
    try:
        told = json.loads(record.read_text())
        return str(told.get("unserved", "")) if told["pid"] == pid else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


@contextlib.contextmanager
def _asked_again() -> Iterator[threading.Event]:
    """An event that is set when this process is signalled within the block."""
    asked = threading.Event()
    began_s = time.monotonic()

    def note(number: int, frame: FrameType | None) -> None:
        # A scheduler may send the same one twice.
        if number == signal.SIGINT or time.monotonic() - began_s > AGAIN_S:
            asked.set()

    is_main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM) if is_main else ()
    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _has_left(process: subprocess.Popen[bytes], within_s: float) -> bool:
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def has_own_sidecar(where: Places) -> bool:
    """Whether a sidecar that belongs to no launcher (systemd, DaemonSet) serves this node already.

    One that belonged to an earlier launcher sees that the node has a new owner, and leaves.
    """
    try:
        record = json.loads(where.sidecar_record.read_text())
        identity = ProcessIdentity(int(record["pid"]), int(record["start_ticks"]))
        return not record["launcher_pid"] and is_alive(identity)
    except (OSError, ValueError, KeyError, TypeError):
        return False
