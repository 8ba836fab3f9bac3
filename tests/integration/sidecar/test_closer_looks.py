"""What can be seen of processes that wait: real ones, each in a wait of its own."""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.integration.sidecar.node import wait_for
from tests.unit.ranks.scene import look

from holdfast_sidecar.linux.syscalls import MACHINE, Where
from holdfast_sidecar.ranks.checks import LoaderState, judge_loader
from holdfast_sidecar.ranks.history import RESTED_LOOKS, Inspection
from holdfast_sidecar.ranks.inspection import CloserProbe
from holdfast_sidecar.ranks.observation import RankLook
from holdfast_sidecar.ranks.stall import proof_of_stall

pytestmark = pytest.mark.skipif(
    platform.machine() != MACHINE, reason="the numbers of system calls are those of x86-64"
)

BEGIN = """
import ctypes, multiprocessing, os, signal, socket, threading, time
def ready():
    print("ready", flush=True)
"""

WAITS = {
    "lock": "l = threading.Lock(); l.acquire(); ready(); l.acquire()",
    "lock given up in time": "l = threading.Lock(); l.acquire(); ready(); l.acquire(timeout=30)",
    "sleep": "ready(); time.sleep(30)",
    "a million seconds": "ready(); ctypes.CDLL(None).sleep(1_000_000)",
    "signal": "ready(); signal.pause()",
    "upload": "s = socket.create_connection(('127.0.0.1', PORT)); ready(); s.recv(1)",
    "upload with a timeout": (
        "s = socket.create_connection(('127.0.0.1', PORT), timeout=30); ready(); s.recv(1)"
    ),
    "upload by a thread": (
        "s = socket.create_connection(('127.0.0.1', PORT))\n"
        "threading.Thread(target=s.recv, args=(1,)).start()\n"
        "l = threading.Lock(); l.acquire(); ready(); l.acquire()"
    ),
    "upload by an event loop": (
        "import asyncio\n"
        "async def fetch():\n"
        "    r, _ = await asyncio.open_connection('127.0.0.1', PORT); await r.read(1)\n"
        "threading.Thread(target=asyncio.run, args=(fetch(),)).start()\n"
        "l = threading.Lock(); l.acquire(); ready(); l.acquire()"
    ),
    "pipe": "r, w = os.pipe(); ready(); os.read(r, 1)",
    "fifo": "f = os.open('fifo', os.O_RDWR); ready(); os.read(f, 1)",
    "child": "ready(); os.waitpid(os.posix_spawn('/bin/sleep', ['sleep', '30'], {}), 0)",
    "a worker that computes": (
        "def spin():\n    while True: pass\n"
        "multiprocessing.Process(target=spin, daemon=True).start()\n"
        "l = threading.Lock(); l.acquire(); ready(); l.acquire()"
    ),
    "a worker that died": (
        "q = multiprocessing.Queue()\n"
        "p = multiprocessing.Process(target=time.sleep, args=(60,)); p.start()\n"
        "os.kill(p.pid, signal.SIGKILL); ready(); q.get()"
    ),
    "a worker that is stopped": (
        "q = multiprocessing.Queue()\n"
        "p = multiprocessing.Process(target=time.sleep, args=(60,)); p.start()\n"
        "os.kill(p.pid, signal.SIGSTOP); ready(); q.get()"
    ),
    "a worker that rests": (
        "q, r = multiprocessing.Queue(), multiprocessing.Queue()\n"
        "p = multiprocessing.Process(target=r.get); p.start(); ready(); q.get()"
    ),
}

HELD = "\nl = threading.Lock(); l.acquire(); ready(); l.acquire()"

WAITS |= {
    "an answer of a process of this machine": (
        "a, b = socket.socketpair()\n"
        "if os.fork() == 0:\n"
        "    a.close(); signal.pause()\n"
        "b.close(); threading.Thread(target=a.recv, args=(1,)).start()" + HELD
    ),
    "a child that waits for its parent": (
        "a, b = socket.socketpair()\nif os.fork() == 0:\n    a.close(); b.recv(1)\nb.close()" + HELD
    ),
    "an idle event loop": (
        "import asyncio\n"
        "loop = asyncio.new_event_loop(); threading.Thread(target=loop.run_forever).start()" + HELD
    ),
    "a dashboard that nobody asks": (
        "s = socket.socket(socket.AF_UNIX); s.bind('dashboard'); s.listen()\n"
        "threading.Thread(target=s.accept).start()" + HELD
    ),
    "a thread that pauses between two tries": (
        "threading.Thread(target=threading.Event().wait, args=(60,)).start()" + HELD
    ),
    "a thread that pauses as Python 3.10 does": (
        "import select\n"
        "threading.Thread(target=select.select, args=([], [], [], 60)).start()" + HELD
    ),
    "an event loop that pauses between two tries": (
        "import asyncio\n"
        "threading.Thread(target=asyncio.run, args=(asyncio.sleep(60),)).start()" + HELD
    ),
    "a lock that another process may let go": (
        "l = multiprocessing.Lock(); l.acquire(); ready(); l.acquire()"
    ),
    "a pool of idle processes": "p = multiprocessing.Pool(2)" + HELD,
    "a thread that waits as few do": (
        "import select\n"
        "s = socket.create_connection(('127.0.0.1', PORT))\n"
        "threading.Thread(target=select.select, args=([s], [], [])).start()" + HELD
    ),
    "an upload by a thread of a child": (
        "if os.fork() == 0:\n"
        "    s = socket.create_connection(('127.0.0.1', PORT))\n"
        "    t = threading.Thread(target=s.recv, args=(1,)); t.start(); t.join()" + HELD
    ),
    "a thread that reads a terminal": (
        "a, b = os.openpty()\nthreading.Thread(target=os.read, args=(b, 1)).start()" + HELD
    ),
    "an upload in the backward pass": (
        "s = socket.create_connection(('127.0.0.1', PORT))\n"
        "def hook():\n"
        "    ctypes.CDLL(None).prctl(15, b'pt_autograd_0', 0, 0, 0); s.recv(1)\n"
        "threading.Thread(target=hook).start()" + HELD
    ),
}

PROVEN = {
    *("lock", "a million seconds", "signal", "an idle event loop"),
    *("a child that waits for its parent", "a dashboard that nobody asks"),
    "a pool of idle processes",
}

SEEN = {
    "lock": Where.LOCK,
    "lock given up in time": Where.LOCK,
    "sleep": Where.SLEEP,
    "a million seconds": Where.SLEEP,
    "signal": Where.SIGNAL,
    "upload": Where.NETWORK,
    "upload with a timeout": Where.NETWORK,
    "pipe": Where.QUEUE,
    "fifo": Where.QUEUE,
    "child": Where.CHILD,
}

LOADERS = {
    "upload": LoaderState.WORKING,
    "a worker that computes": LoaderState.WORKING,
    "a worker that died": LoaderState.DEAD,
    "a worker that is stopped": LoaderState.STOPPED,
    "a worker that rests": LoaderState.UNKNOWN,
    "fifo": LoaderState.UNKNOWN,
}


@pytest.fixture(scope="module")
def found() -> Iterator[dict[str, Inspection]]:
    """What a few closer looks show of processes in each of these waits, all looked at together."""
    started: dict[str, subprocess.Popen[bytes]] = {}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        os.mkfifo(folder / "fifo")
        port = stack.enter_context(silent_server())
        for kind, body in WAITS.items():
            started[kind] = stack.enter_context(waiting(body.replace("PORT", str(port)), folder))
        for process in started.values():
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            call = Path(f"/proc/{process.pid}/syscall")
            wait_for(partial(lambda call: call.read_text()[:3] != "run", call))
        time.sleep(0.2)
        probe = CloserProbe()
        looks = [look_of(number, process.pid) for number, process in enumerate(started.values())]
        for _ in range(RESTED_LOOKS + 1):
            known = probe.look(looks, time.monotonic())
            time.sleep(0.3)
        yield {kind: known[number] for number, kind in enumerate(WAITS)}


@contextlib.contextmanager
def silent_server() -> Iterator[int]:
    """A port where connections are accepted by the kernel, and nothing is ever answered."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


@contextlib.contextmanager
def waiting(body: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of its own session that says "ready" and waits."""
    process = subprocess.Popen(
        [sys.executable, "-c", BEGIN + body],
        cwd=folder,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def look_of(number: int, pid: int) -> RankLook:
    base = look(0.0, since_s=time.monotonic(), rank=number)
    return replace(base, identity=replace(base.identity, pid=pid))


@pytest.mark.parametrize("kind", SEEN)
def test_a_wait_is_seen_for_what_it_is(kind: str, found: dict[str, Inspection]) -> None:
    main = found[kind].look.main
    assert main is not None
    assert main.where is SEEN[kind]


@pytest.mark.parametrize("kind", WAITS)
def test_only_what_nothing_outside_ends_is_proven(kind: str, found: dict[str, Inspection]) -> None:
    proof = proof_of_stall(found[kind], 120.0)
    assert bool(proof) == (kind in PROVEN), (proof, found[kind])


@pytest.mark.parametrize("kind", LOADERS)
def test_a_loader_is_judged_by_what_its_workers_do(kind: str, found: dict[str, Inspection]) -> None:
    assert judge_loader(found[kind], "S", 120.0).state is LOADERS[kind], found[kind]
