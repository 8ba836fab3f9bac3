"""The node's sidecar as a child: started, started again when it dies, told when to leave.

It has no parent-death signal: it outlives a killed launcher for a grace, to report and tidy up.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import secrets
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import BinaryIO
from urllib.parse import urlsplit

import holdfast_sidecar
from holdfast.contract import environment
from holdfast.contract.ending_processes import signal_child
from holdfast.contract.identity import ProcessIdentity, is_alive
from holdfast.contract.own_directory import make_closed
from holdfast.contract.owned import owned_file
from holdfast.contract.permit import own_child
from holdfast.contract.removing import rmdir, unlink
from holdfast_sidecar.config.addresses import SCHEMES, without_password
from holdfast_sidecar.config.paths import Paths
from holdfast_sidecar.config.settings import BadInput, RedisSettings
from holdfast_sidecar.launcher.shutdown import AGAIN_S
from holdfast_sidecar.lifecycle import read_last_word, read_stay
from holdfast_sidecar.linux.threads import MORE_THREADS, NONE_LEFT, start_patiently, start_thread
from holdfast_sidecar.records.formatting import how_it_ended
from holdfast_sidecar.store.connection import check_server, connect, describe
from holdfast_sidecar.store.embedded import KeptServer, NoRoom, start_server

logger = logging.getLogger(__name__)


# Which coordination server this launcher uses: the one it was given, or one of its own.


@dataclass(frozen=True)
class JobServer:
    """How to reach the server; `own` when this launcher started it, keeps it and ends it."""

    settings: RedisSettings
    own: KeptServer | None = None

    def write_record(self, where: Paths) -> None:
        """Leave word for `holdfast status` and the others. Holds no secret, only where it lies."""
        record = {
            "url": without_password(self.settings.url),
            "user": self.settings.user,
            "password_file": self.settings.password_file,
        }
        path = where.server_record
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            with os.fdopen(os.open(temporary, flags, 0o600), "w") as file:
                json.dump(record, file)
            temporary.rename(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                unlink(owned_file(temporary))
            means = "commands need --redis to" if self.own is None else "no command can"
            logger.warning("%s: %s find this job", error, means)

    def close(self, where: Paths) -> None:
        """End a server of our own; its record would lead nowhere then."""
        if self.own is None:
            return
        with contextlib.suppress(OSError):
            unlink(owned_file(where.server_record))
        self.own.stop()
        with contextlib.suppress(OSError):
            rmdir(owned_file(self.own.directory))


def given_url(settings: RedisSettings, rdzv_endpoint: str) -> str:
    """URL from flag, environment or file, else an --rdzv-endpoint that is one; empty: none."""
    is_url = urlsplit(rdzv_endpoint).scheme in SCHEMES
    return settings.url or (rdzv_endpoint if is_url else "")


def reach(settings: RedisSettings) -> JobServer:
    """Check a server that was given. BadInput says in one line what to mend."""
    client = connect(settings, os.environ)
    try:
        problems = check_server(client)
    finally:
        client.close()
    if problems:
        raise BadInput(f"{describe(settings.url)}: {problems[0].line}")
    return JobServer(settings)


def start_own(settings: RedisSettings, where: Paths) -> JobServer:
    """Start and keep a server for this job alone. Call it from the main thread: it dies with it.

    Where the state's disk takes nothing, its few files lie in the node's shared memory.
    """
    for name in environment.NEVER_FOR_RANKS:
        # The password that waits there is for another server.
        os.environ.pop(name, None)
    try:
        started = start_server(where.server)
    except NoRoom:
        started = start_server(where.local_server)
    server = KeptServer(started)
    server.start()
    own = replace(settings, url=server.url, user="", password_file=str(server.password_file))
    return JobServer(own, server)


# The file that the node's sidecar and whatever it starts print into: bounded, also while they run.
#
# They hold it open, each by a descriptor of its own or an inherited one, so that it can be neither
# renamed nor opened anew. All of them append: what is cut off below them is gone, and they go on.

MOST_BYTES = 16 << 20
"""Of the file, and of the one before it. A healthy sidecar writes some kilobytes a day."""

LOOK_S = 5.0
"""What a child that prints without end writes meanwhile is the most that comes on top."""

_PIECE = 1 << 20


class SidecarLog:
    """Opened for each sidecar that is started; looked at until `close`."""

    def __init__(self, path: Path, earlier: Path) -> None:
        self._path = path
        self._earlier = earlier
        self._over = threading.Event()
        self._watch: threading.Thread | None = None

    def open(self) -> BinaryIO:
        """For whoever is started now; on a full disk it runs without."""
        try:
            make_closed(self._path.parent)
            self._try_to_rotate()
            opened = self._path.open("ab")
        except OSError as error:
            logger.warning("the sidecar's log can't be kept: %s", error)
            return Path(os.devnull).open("ab")
        if self._watch is None:
            self._watch = start_thread(self._look_after_it, "holdfast-sidecar-log")
        return opened

    def close(self) -> None:
        """Nobody writes any more."""
        self._over.set()

    def _look_after_it(self) -> None:
        while not self._over.wait(LOOK_S):
            self._try_to_rotate()

    def _try_to_rotate(self) -> None:
        try:
            rotate(self._path, self._earlier)
        except OSError as error:
            logger.debug("can't rotate %s: %s", self._path, error)


def rotate(path: Path, earlier: Path, most_bytes: int = MOST_BYTES) -> None:
    """Move the end of a file that is larger into `earlier`. Raises OSError.

    On a full disk nothing is moved, and the file is emptied once it is twice as large.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size <= most_bytes:
            return
        try:
            _copy_end(descriptor, facts.st_size, earlier, most_bytes)
        except OSError:
            if facts.st_size <= 2 * most_bytes:
                raise
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _copy_end(descriptor: int, size: int, target: Path, most_bytes: int) -> None:
    """What comes after `size` while this copies is copied as well, or lost: a line or two."""
    temporary = target.with_name(f"{target.name}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    offset = size - most_bytes
    try:
        with os.fdopen(os.open(temporary, flags, 0o600), "wb", buffering=0) as file:
            while offset < size + _PIECE and (piece := os.pread(descriptor, _PIECE, offset)):
                offset += file.write(piece)
        temporary.replace(target)
    except OSError:
        os.truncate(temporary, 0)  # the room is needed by others
        raise


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
        self, arguments: Sequence[str], places: Paths, slot_holder: int | None = None
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


def has_own_sidecar(where: Paths) -> bool:
    """Whether a sidecar that belongs to no launcher (systemd, DaemonSet) serves this node already.

    One that belonged to an earlier launcher sees that the node has a new owner, and leaves.
    """
    try:
        record = json.loads(where.sidecar_record.read_text())
        identity = ProcessIdentity(int(record["pid"]), int(record["start_ticks"]))
        return not record["launcher_pid"] and is_alive(identity)
    except (OSError, ValueError, KeyError, TypeError):
        return False


# The holder of this node's snapshot memory as a child: started once, ended with the launch.
#
# The launcher only keeps an end of its socket, which every sidecar inherits: the holder stays until
# both are gone (`holdfast_sidecar.checkpoint.snapshot.memory_holder`).

PROGRAM = Path(holdfast_sidecar.__file__).parent / "checkpoint/snapshot/memory_holder.py"

LEAVING_S = 2.0
"""It ends as soon as the last end of its socket is closed; a sidecar that still saves has one."""


class SlotHolder:
    """A context: within it each sidecar that inherits `link` reaches the holder."""

    def __init__(self, shm: Path) -> None:
        """shm: the node's directory of shared memory."""
        self._shm = shm
        self.link: int | None = None
        """None: it could not be started, and slots are files with names."""
        self._near: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> SlotHolder:
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._process = subprocess.Popen(
                # By its path and isolated: nothing of the user's directory or environment counts.
                [sys.executable, "-I", "-S", str(PROGRAM), str(self._shm), str(far.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                pass_fds=(far.fileno(),),
                start_new_session=True,
            )
        except OSError as error:
            logger.warning("snapshots are kept in files with names: %s", error)
            near.close()
        else:
            self._near, self.link = near, near.fileno()
        far.close()
        return self

    def __exit__(self, *_: object) -> None:
        if self._near is None or self._process is None:
            return
        self._near.close()
        try:
            self._process.wait(LEAVING_S)
        except subprocess.TimeoutExpired:
            logger.debug("the holder of snapshots stays until the sidecar has left")
