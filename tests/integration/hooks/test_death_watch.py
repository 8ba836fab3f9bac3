"""The mutex that a rank holds for life, and everything that might be taken for its death."""

from __future__ import annotations

import os
import queue
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from holdfast.contract import page
from holdfast.contract.page import Word
from holdfast_sidecar.ranks.death_watch import COMMAND, MutexWatch, WaiterProcess
from holdfast_sidecar.ranks.observation import RankLook
from holdfast_sidecar.ranks.page import Pages
from holdfast_sidecar.ranks.probe import RanksProbe

SOON_S = 5.0
"""Far more than a death takes to be told, far less than nothing."""

QUIET_S = 0.3

RANK = """
    import ctypes, mmap, os, resource, signal, subprocess, sys, threading, time
    import torch
    from holdfast.rank import process

    def fill(mebibytes):
        memory = mmap.mmap(-1, mebibytes << 20)
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        for _ in range(mebibytes):
            memory.write(bytes(1 << 20))
        return memory

    def go_on():
        print("ready", flush=True)
        sys.stdin.readline()
"""


@dataclass
class Watcher:
    """What a sidecar has of one rank's page: a probe, and a child that waits for the mutex."""

    folder: Path
    told: queue.Queue[tuple[str, bool]] = field(default_factory=queue.Queue)

    def __post_init__(self) -> None:
        self.pages = Pages(self.folder)
        self.probe = RanksProbe(self.pages)
        self.waiter = WaiterProcess(lambda key, let_go: self.told.put((key, let_go)))

    def look(self) -> RankLook:
        (look,) = self.probe.read(time.monotonic())
        return look

    def begin(self, key: str = "rank") -> None:
        assert self.look().words[Word.DEATH_WATCH]
        (held,) = self.pages.held()
        self.waiter.watch(MutexWatch(key, held.path, held.inode, page.DEATH_OFFSET))
        self.wait_until_waiting()

    def wait_until_waiting(self) -> None:
        deadline = time.monotonic() + SOON_S
        while len(self.threads()) < 2:
            assert time.monotonic() < deadline, "nobody waits"
            time.sleep(0.005)

    def threads(self) -> list[str]:
        try:
            return os.listdir(f"/proc/{self.waiter.pid}/task")
        except FileNotFoundError:
            return []

    def is_told(self, within_s: float = SOON_S) -> bool:
        try:
            return self.told.get(timeout=within_s)[1]
        except queue.Empty:
            return False

    def close(self) -> None:
        self.waiter.close()
        self.pages.close()


@pytest.fixture
def watcher(stage) -> Iterator[Watcher]:
    made = Watcher(stage.pages)
    yield made
    made.close()


def start(stage, body: str, before: str = "pass", attempt: int = 0) -> subprocess.Popen[str]:
    """A rank that runs this and has said `ready`; `before` it is one."""
    indented = "".join(f"    {line}\n" for line in body.strip().splitlines())
    env = stage.environment(PYTHONPATH=stage.stub_torch(), HOLDFAST_ATTEMPT=str(attempt))
    process = subprocess.Popen(
        [sys.executable, str(stage.script(f"    {before}{RANK}{indented}"))],
        env=env,
        cwd=stage.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    stage.started.append(process)
    assert said(process) == "ready\n"
    return process


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def release(process: subprocess.Popen[str]) -> None:
    """Let the rank do what comes after `go_on`."""
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def is_cleared_away(process: subprocess.Popen[str]) -> bool:
    handle = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(0))
    finally:
        os.close(handle)


def test_a_death_is_known_with_its_cause_while_the_memory_is_still_being_freed(
    stage, watcher
) -> None:
    process = start(stage, "kept = fill(700)\ngo_on()")
    watcher.begin()
    before = watcher.look()
    process.kill()
    assert watcher.is_told()
    look, is_gone = watcher.look(), is_cleared_away(process)
    assert not is_gone, "else this shows nothing: more memory, please"
    assert (before.has_died, look.has_died, look.is_dying) == (False, True, True)
    assert look.exit_code == -signal.SIGKILL
    process.wait()
    assert watcher.look().is_gone


@pytest.mark.parametrize(
    ("leave", "code"),
    [
        ("pass", 0),
        ("sys.exit(3)", 3),
        ("os._exit(4)", 4),
        ("raise ValueError('planted')", 1),
        ("os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV),
        ("os.abort()", -signal.SIGABRT),
        ("ctypes.string_at(0)", -signal.SIGSEGV),
    ],
)
def test_every_way_to_end_is_told_with_its_code(stage, watcher, leave: str, code: int) -> None:
    """Python's own mapping of the page is gone at a normal exit; the mutex must be let go still."""
    process = start(stage, f"go_on()\n{leave}")
    watcher.begin()
    release(process)
    assert watcher.is_told()
    look = watcher.look()
    assert look.has_died
    assert look.exit_code == code
    assert process.wait() == code


def test_a_core_dump_comes_first_and_its_signal_is_told_in_the_end(stage, watcher) -> None:
    body = (
        "resource.setrlimit(resource.RLIMIT_CORE, (-1, -1)); kept = fill(64)\ngo_on()\nos.abort()"
    )
    process = start(stage, body)
    watcher.begin()
    release(process)
    assert watcher.is_told(30)
    assert watcher.look().exit_code == -signal.SIGABRT
    process.wait()


def test_a_program_that_replaces_itself_lets_go_and_lives(stage, watcher) -> None:
    body = """
if len(sys.argv) == 1:
    go_on()
    os.execv(sys.executable, [sys.executable, sys.argv[0], "again"])
go_on()
"""
    process = start(stage, body)
    watcher.begin()
    release(process)
    assert watcher.is_told()
    assert not watcher.look().has_died
    assert said(process) == "ready\n"
    watcher.begin("the-new-program")
    process.kill()
    assert watcher.told.get(timeout=SOON_S) == ("the-new-program", True)
    assert watcher.look().has_died


def test_an_exec_by_another_thread_is_no_death_either(stage, watcher) -> None:
    body = """
if len(sys.argv) == 1:
    arguments = (sys.executable, [sys.executable, sys.argv[0], "again"])
    replace = threading.Thread(target=os.execv, args=arguments)
    go_on()
    replace.start()
    time.sleep(60)
go_on()
"""
    process = start(stage, body)
    watcher.begin()
    release(process)
    assert watcher.is_told()
    for _ in range(50):
        assert not watcher.look().has_died
    assert said(process) == "ready\n"


def test_a_main_thread_that_leaves_the_others_behind_is_no_death(stage, watcher) -> None:
    body = """
threading.Thread(target=time.sleep, args=(60,)).start()
go_on()
ctypes.CDLL(None).pthread_exit(None)
"""
    process = start(stage, body)
    watcher.begin()
    release(process)
    assert watcher.is_told()
    assert not watcher.look().has_died
    process.kill()


def test_children_neither_let_go_nor_hold_on(stage, watcher) -> None:
    body = """
if os.fork() == 0:
    os._exit(0)
os.wait()
subprocess.run(["true"], check=True)
reading, writing = os.pipe()
lasting = os.fork()
if lasting == 0:
    os.write(writing, b"!")
    os.close(0), os.close(1), os.close(2)
    time.sleep(60)
os.read(reading, 1)
with open(f"/proc/{lasting}/maps") as maps:
    assert ".page" not in maps.read()
print("ready", flush=True)
sys.stdin.readline()
"""
    process = start(stage, body)
    (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    try:
        watcher.begin()
        assert not watcher.is_told(QUIET_S)
        os.kill(int(child), 0)
        process.kill()
        assert watcher.is_told()
        assert watcher.look().exit_code == -signal.SIGKILL
    finally:
        os.kill(int(child), signal.SIGKILL)


def test_a_thread_that_is_not_the_main_one_does_not_hold_it(stage) -> None:
    """It may end long before the process: then only the process itself tells."""
    ended = stage.run(
        """
        import threading
        def train():
            import torch
            from holdfast.contract import page
            from holdfast.rank import process
            print(process.current().word(page.Word.DEATH_WATCH))
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
        """,
        stage.environment(PYTHONPATH=stage.stub_torch()),
    )
    assert ended.out == "0\n"


def test_without_glibc_the_process_alone_tells(stage, watcher) -> None:
    process = start(stage, "go_on()", before="import os; os.confstr = lambda name: None")
    look = watcher.look()
    assert not look.words[Word.DEATH_WATCH]
    process.kill()
    process.wait()
    assert watcher.look().is_gone


def test_a_waiter_that_was_killed_is_replaced_and_misses_no_death(stage, watcher) -> None:
    process = start(stage, "go_on()")
    watcher.begin()
    first = watcher.waiter.pid
    os.kill(first, signal.SIGKILL)
    stage.wait_until(lambda: watcher.waiter.pid != first)
    process.kill()
    process.wait()
    assert watcher.is_told()


def test_two_who_wait_are_both_told(stage, watcher) -> None:
    """A sidecar that was started again while the old one's child had not ended yet."""
    process = start(stage, "go_on()")
    watcher.begin()
    second = Watcher(stage.pages)
    try:
        second.begin()
        process.kill()
        assert watcher.is_told()
        assert second.is_told()
    finally:
        second.close()


def test_whom_nobody_asks_about_any_more_is_not_told(stage, watcher) -> None:
    process = start(stage, "go_on()")
    watcher.begin("old")
    watcher.waiter.forget("old")
    watcher.begin("new")
    process.kill()
    assert watcher.told.get(timeout=SOON_S) == ("new", True)
    assert not watcher.is_told(QUIET_S)


def test_what_is_no_mutex_or_another_page_by_now_is_not_waited_for(stage, watcher) -> None:
    nothing = stage.pages / "nothing.page"
    nothing.write_bytes(b"\xff" * page.PAGE_SIZE)
    inode = nothing.stat().st_ino
    watcher.waiter.watch(MutexWatch("no-mutex", nothing, inode, page.DEATH_OFFSET))
    watcher.waiter.watch(MutexWatch("another", nothing, inode + 1, page.DEATH_OFFSET))
    answers = {watcher.told.get(timeout=SOON_S) for _ in range(2)}
    assert answers == {("no-mutex", False), ("another", False)}


def test_a_sidecar_without_glibc_waits_for_nobody(stage, watcher) -> None:
    """Another library would make something else of the mutex."""
    start(stage, "go_on()")
    as_elsewhere = (
        "import os, runpy, sys; os.confstr = lambda name: None; runpy.run_path(sys.argv[1],"
    )
    command = (*COMMAND[:-1], "-c", f"{as_elsewhere} run_name='__main__')", COMMAND[-1])
    watcher.waiter = WaiterProcess(lambda *told: watcher.told.put(told), command)
    watcher.look()
    (held,) = watcher.pages.held()
    watcher.waiter.watch(MutexWatch("rank", held.path, held.inode, page.DEATH_OFFSET))
    assert watcher.told.get(timeout=SOON_S) == ("rank", False)


def test_every_page_has_a_mutex_of_its_own(stage, watcher) -> None:
    """The next attempt's rank is not taken for dead because the last one's is."""
    first = start(stage, "go_on()")
    watcher.begin("first")
    second = start(stage, "go_on()", attempt=1)
    stage.wait_until(lambda: watcher.look().identity.attempt == 1)
    watcher.begin("second")
    first.kill()
    assert watcher.told.get(timeout=SOON_S) == ("first", True)
    assert not watcher.is_told(QUIET_S)
    second.kill()
    assert watcher.told.get(timeout=SOON_S) == ("second", True)


def test_it_ends_with_its_sidecar(stage, watcher) -> None:
    start(stage, "go_on()")
    watcher.begin()
    child = watcher.waiter.pid
    watcher.waiter._child.stdin.close()
    stage.wait_until(lambda: not Path(f"/proc/{child}").exists() or watcher.waiter.pid != child)
