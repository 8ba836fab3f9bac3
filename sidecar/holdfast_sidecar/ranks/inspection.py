"""Looks closely at ranks under suspicion: where their threads wait, and how their children stand.

What can't be read stays unknown, and proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.contract.identity import parse_stat
from holdfast.contract.page import Word
from holdfast_sidecar.linux.files import read_if_any
from holdfast_sidecar.linux.process import (
    MOST_CHILDREN,
    MOST_THREADS,
    ProcDirectory,
    descendants,
    parse_exit_status,
)
from holdfast_sidecar.linux.syscalls import ThreadWait, Where
from holdfast_sidecar.ranks.history import (
    AT_WORK,
    LOADER_WORKER,
    CloserLook,
    Descendant,
    Inspection,
    scrutinise,
)
from holdfast_sidecar.ranks.observation import RankLook

PROC = Path("/proc")

LEAST_PAUSE_S = 0.2
"""Between two closer looks at one rank. They cost some 20 us per thread, 40 where it may wait in
its GPU's driver, and there are often a hundred threads."""

PAUSE_SHARE = 0.05
MOST_PAUSE_S = 10.0
"""Of how long it has been silent: one that was silent for a minute is looked at every 3 s."""

OWN_THREADS = (
    *("pt_gloo", "pt_nccl", "pt_tcpstore", "pt_workerserver", "pt_data_pin"),
    *("gloo", "nccl", "cuda"),
)
"""Begin the names of threads of torch and what it is built on, which always wait for the network
or the driver, whatever the main thread waits for, or look up every few seconds. Those of the
backward pass (`pt_autograd_0`) are none of them: they run hooks of the script."""


@dataclass
class CloserProbe:
    """Closer looks at ranks, and what they have shown so far."""

    proc: Path = PROC
    _known: dict[int, Inspection] = field(default_factory=dict)

    def look(self, suspects: Iterable[RankLook], now_s: float) -> dict[int, Inspection]:
        """What is known of these ranks, after a closer look where one is due.

        `now_s` is CLOCK_MONOTONIC. Ranks that are no longer suspects are forgotten.
        """
        self._known = {
            look.rank: self._follow(self._known.get(look.rank), look, now_s)
            for look in suspects
            if look.process is not None  # else its pid is of another namespace, or of nobody
        }
        return dict(self._known)

    def _follow(self, known: Inspection | None, look: RankLook, now_s: float) -> Inspection:
        silent_s = now_s - look.moved_s
        pause_s = max(LEAST_PAUSE_S, min(PAUSE_SHARE * silent_s, MOST_PAUSE_S))
        mark = mark_of(look)
        if known is not None and known.look.mark == mark and now_s - known.look.at_s < pause_s:
            return known
        return scrutinise(known, self._look_at(look.identity.pid, mark, now_s))

    def _look_at(self, pid: int, mark: tuple[int, int, int], now_s: float) -> CloserLook:
        process = ProcDirectory(self.proc / str(pid))
        name = process.name
        found = descendants(self.proc, pid)
        children = (ProcDirectory(self.proc / str(child), process) for child in found)
        unseen = _out_of_sight(process, found)
        threads = [] if unseen else list(_other_threads(process, pid, now_s))
        return CloserLook(
            at_s=now_s,
            mark=mark,
            main=process.wait(pid, now_s),
            at_work=unseen or _at_work(threads),
            children=tuple(c for child in children if (c := read_child(child, name, now_s))),
            transferred=process.read_transferred(),
            pauses_s=tuple(wait.ends_unaided_s for _, wait in threads if _pauses(wait)),
        )


def mark_of(look: RankLook) -> tuple[int, int, int]:
    """What differs once a rank has moved, or is another process."""
    return (look.identity.claimed_ns, look.words[Word.PROGRESS], look.step)


def _out_of_sight(process: ProcDirectory, children: Sequence[int]) -> str:
    """What of it can't be looked at, and so may be at work; empty: all of it can."""
    if len(children) >= MOST_CHILDREN:
        return "children are too many to be looked at"
    if len(process.threads()) >= MOST_THREADS:
        return "threads are too many to be looked at"
    return "" if process.lists_children() else "children are not listed by this kernel"


def _other_threads(
    process: ProcDirectory, pid: int, now_s: float
) -> Iterator[tuple[str, ThreadWait]]:
    """Other threads that will go on without the main one, by their names, and where they wait: up
    to the first that is at work, since further ones tell nothing more."""
    for thread in process.threads():
        wait = None if thread == pid else process.wait(thread, now_s)
        if wait is None or not (wait.where in AT_WORK or _pauses(wait)):
            continue
        name = read_if_any(process.directory / "task" / str(thread) / "comm").strip()
        if not name.startswith(OWN_THREADS):
            yield name or str(thread), wait
            if wait.where in AT_WORK:
                return


def _at_work(threads: Iterable[tuple[str, ThreadWait]]) -> str:
    """Another thread that waits for the world outside, in words; empty: none does."""
    at_work = ((name, wait) for name, wait in threads if wait.where in AT_WORK)
    return next((f"thread {name} waits for {wait.where.value}" for name, wait in at_work), "")


def _pauses(wait: ThreadWait) -> bool:
    """Whether it ends by itself."""
    return wait.where in (Where.LOCK, Where.QUEUE) and not math.isinf(wait.ends_unaided_s)


def read_child(process: ProcDirectory, parent_name: str, now_s: float) -> Descendant | None:
    """A child as it stands; None when it just went."""
    text = read_if_any(process.directory / "stat")
    if not text:
        return None
    status, name = parse_stat(text), process.name
    pid = int(process.directory.name)
    return Descendant(
        pid=pid,
        name=name,
        state=status.state,
        cpu_ticks=status.cpu_ticks,
        is_worker=name == parent_name or name.startswith((LOADER_WORKER, "python")),
        exit_status=parse_exit_status(text),
        transferred=process.read_transferred(),
        wait=_telling_wait(process, pid, now_s),
    )


def _telling_wait(process: ProcDirectory, pid: int, now_s: float) -> ThreadWait | None:
    """Where its main thread waits, or another one on whose work that may wait."""
    main = process.wait(pid, now_s)
    if main is None or main.where in AT_WORK:
        return main
    others = [wait for _, wait in _other_threads(process, pid, now_s)]
    at_work = next((wait for wait in others if wait.where in AT_WORK), None)
    if at_work is not None or main.where is not Where.LOCK:
        return at_work or main
    pauses = (wait for wait in (main, *others) if _pauses(wait))
    return max(pauses, key=lambda wait: wait.ends_unaided_s, default=main)
