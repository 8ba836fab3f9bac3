"""Ranks without hooks, as they are seen from outside: plain data, followed from look to look.

Times are seconds of CLOCK_MONOTONIC. Nothing here reads or decides.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.contract import environment
from holdfast.contract.foreign_launch import find_seat, is_launcher
from holdfast.contract.identity import ProcessStatus, parse_stat
from holdfast_sidecar.linux.sockets import read_unread_bytes
from holdfast_sidecar.records.findings import Finding, Kind, Moment

STILL_TICKS_PER_S = 1.0
"""CPU time that a rank at rest may use per second, in clock ticks (1 %), as with hooks."""

STILL_BYTES_PER_S = 4096.0
"""What a rank at rest may read and write: a log line, a tracker's heartbeat."""


IDLE_GPU_RATIO, BUSY_GPU_RATIO = 0.05, 0.95
"""A GPU that waits in NCCL spins and counts as busy all the time; one without work rests."""


@dataclass(frozen=True)
class OutsideRank:
    """A process that is taken for a rank."""

    rank: int
    local_rank: int
    pid: int
    start_ticks: int


@dataclass(frozen=True)
class OutsideLook:
    """One look at one rank's process."""

    who: OutsideRank
    at_s: float
    is_gone: bool = False
    state: str = ""
    cpu_ticks: int = 0
    io_bytes: int = 0
    """Read and written so far, by whatever means."""
    unread_bytes: int = 0
    """In its TCP sockets: what peers sent and it has not read."""
    waits_in: str = ""
    """The kernel function in which its main thread sleeps; empty when that can't be seen."""
    gpu_ratio: float | None = None
    """How busy the busiest GPU is that it computes on; None: none, or not told."""


@dataclass(frozen=True)
class OutsideHistory:
    """What is remembered of a rank."""

    look: OutsideLook
    still_since: OutsideLook
    """The look since which it used hardly any CPU time and moved hardly any data."""
    stopped_since_s: float | None = None
    gone_since_s: float | None = None
    unread_since_s: float | None = None
    gpu_idle_since_s: float | None = None
    gpu_busy_since_s: float | None = None

    @property
    def still_s(self) -> float:
        """For how long it has been seen at rest."""
        return self.look.at_s - self.still_since.at_s


def follow_outside(before: OutsideHistory | None, look: OutsideLook) -> OutsideHistory:
    """The history after one more look."""
    if before is None or before.look.who != look.who:
        before = OutsideHistory(look, look)
    return replace(
        before,
        look=look,
        still_since=before.still_since if _is_at_rest(before.still_since, look) else look,
        stopped_since_s=_since(before.stopped_since_s, look.state == "T", look.at_s),
        gone_since_s=_since(before.gone_since_s, look.is_gone, look.at_s),
        unread_since_s=_since(before.unread_since_s, look.unread_bytes > 0, look.at_s),
        gpu_idle_since_s=_since(
            before.gpu_idle_since_s,
            look.gpu_ratio is not None and look.gpu_ratio <= IDLE_GPU_RATIO,
            look.at_s,
        ),
        gpu_busy_since_s=_since(
            before.gpu_busy_since_s,
            look.gpu_ratio is not None and look.gpu_ratio >= BUSY_GPU_RATIO,
            look.at_s,
        ),
    )


def _is_at_rest(anchor: OutsideLook, look: OutsideLook) -> bool:
    passed_s = look.at_s - anchor.at_s
    return (
        look.cpu_ticks - anchor.cpu_ticks <= STILL_TICKS_PER_S * passed_s
        and look.io_bytes - anchor.io_bytes <= STILL_BYTES_PER_S * passed_s
    )


def _since(before: float | None, is_so: bool, at_s: float) -> float | None:
    if not is_so:
        return None
    return at_s if before is None else before


# Looks at ranks without hooks: which processes they are, and what the kernel says of them.

PROC = Path("/proc")


@dataclass(frozen=True)
class CandidateProcess:
    """A process as a candidate for a rank."""

    pid: int
    parent: int
    start_ticks: int
    command: tuple[str, ...]
    environ: Mapping[str, str]
    """As it was at its start; empty where others' can't be read."""


@dataclass
class OutsideProbe:
    """One look at every rank that was found. Ranks that are gone stay in it as gone."""

    ranks: tuple[OutsideRank, ...]
    proc: Path = PROC
    busy_by_pid: Callable[[float], Mapping[int, float]] | None = None
    """Monotonic time -> process -> how busy the busiest GPU is that it computes on."""

    def read(self, now_s: float) -> list[OutsideLook]:
        """Time is CLOCK_MONOTONIC seconds."""
        busy = {} if self.busy_by_pid is None else self.busy_by_pid(now_s)
        return [self._look(rank, now_s, busy.get(rank.pid)) for rank in self.ranks]

    def _look(self, who: OutsideRank, now_s: float, gpu_ratio: float | None) -> OutsideLook:
        directory = self.proc / str(who.pid)
        status = read_status(directory)
        if status is None or status.start_ticks != who.start_ticks or status.state in ("Z", "X"):
            return OutsideLook(who, now_s, is_gone=True)
        return OutsideLook(
            who,
            now_s,
            state=status.state,
            cpu_ticks=status.cpu_ticks,
            io_bytes=parse_io(_read(directory / "io")),
            unread_bytes=read_unread_bytes(self.proc, who.pid),
            gpu_ratio=gpu_ratio,
            waits_in=_read(directory / "wchan").strip().strip("0"),
        )


def find_ranks(
    pids: Iterable[int], match: str | None, user_id: int, proc: Path = PROC
) -> tuple[OutsideRank, ...]:
    """The ranks among these processes, their descendants, and those whose command line matches.

    Only of this user, who may look at no others unless it is root.
    """
    processes = {process.pid: process for process in _read_all(proc, user_id)}
    roots = set(pids) & processes.keys()
    if match:
        own = {os.getpid(), os.getppid()}
        roots |= {p.pid for p in processes.values() if match in " ".join(p.command)} - own
    return choose_ranks(processes, roots)


def choose_ranks(
    processes: Mapping[int, CandidateProcess], roots: set[int]
) -> tuple[OutsideRank, ...]:
    """Of each rank the uppermost Python process that is no launcher; without any word of ranks the
    roots themselves, numbered in the order in which they were started."""
    below = [p for p in processes.values() if _has_root(p, processes, roots)]
    seated: dict[int, OutsideRank] = {}
    for process in sorted(below, key=lambda p: (_depth(p, processes), p.start_ticks, p.pid)):
        seat = find_seat({**process.environ, environment.ATTACH: "1"})
        if seat is None or not _is_python(process) or is_launcher(process.command):
            continue
        rank = OutsideRank(seat.rank, seat.local_rank, process.pid, process.start_ticks)
        seated.setdefault(seat.rank, rank)
    if seated:
        return tuple(seated[rank] for rank in sorted(seated))
    ordered = sorted(_uppermost(processes, roots), key=lambda p: (p.start_ticks, p.pid))
    return tuple(OutsideRank(n, n, p.pid, p.start_ticks) for n, p in enumerate(ordered))


def _uppermost(
    processes: Mapping[int, CandidateProcess], roots: set[int]
) -> list[CandidateProcess]:
    """The roots themselves; but a shell that holds a rank's command line is none, nor is a loader's
    worker, which has its rank's."""
    given = [processes[pid] for pid in roots]
    likely = [p for p in given if _is_python(p) and not is_launcher(p.command)] or given
    pids = {process.pid for process in likely}
    return [p for p in likely if not any(a.pid in pids - {p.pid} for a in _line(p, processes))]


def read_status(directory: Path) -> ProcessStatus | None:
    """The status of a process; None when it is gone."""
    try:
        return parse_stat((directory / "stat").read_text(errors="replace"))
    except (FileNotFoundError, ProcessLookupError):
        return None


def parse_io(text: str) -> int:
    """Bytes read and written so far, from /proc/PID/io; 0 where that can't be seen."""
    counts = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    return int(counts.get("rchar", 0)) + int(counts.get("wchar", 0))


def _has_root(
    process: CandidateProcess, processes: Mapping[int, CandidateProcess], roots: set[int]
) -> bool:
    return any(ancestor.pid in roots for ancestor in _line(process, processes))


def _depth(process: CandidateProcess, processes: Mapping[int, CandidateProcess]) -> int:
    return sum(1 for _ in _line(process, processes))


def _line(
    process: CandidateProcess, processes: Mapping[int, CandidateProcess]
) -> Iterator[CandidateProcess]:
    """The process and its ancestors, as far as they can be seen."""
    seen: set[int] = set()
    current: CandidateProcess | None = process
    while current is not None and current.pid not in seen:
        seen.add(current.pid)
        yield current
        current = processes.get(current.parent)


def _is_python(process: CandidateProcess) -> bool:
    return bool(process.command) and Path(process.command[0]).name.startswith("python")


def _read_all(proc: Path, user_id: int) -> Iterator[CandidateProcess]:
    for directory in proc.iterdir():
        if not directory.name.isdecimal():
            continue
        try:
            if user_id in (0, directory.stat().st_uid):
                yield _read_process(directory)
        except (OSError, ValueError, IndexError):
            continue  # gone meanwhile


def _read_process(directory: Path) -> CandidateProcess:
    stat = (directory / "stat").read_text(errors="replace")
    fields = stat.rpartition(")")[2].split()
    words = (directory / "cmdline").read_bytes().decode(errors="replace").split("\0")
    entries = _read(directory / "environ").split("\0")
    pairs = (entry.partition("=") for entry in entries)
    return CandidateProcess(
        pid=int(directory.name),
        parent=int(fields[1]),
        start_ticks=int(fields[19]),
        command=tuple(words[:-1]),
        environ={name: value for name, separator, value in pairs if separator},
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


# Troubles of ranks without hooks. They tell neither step nor phase, so little is certain: only a
# stopped process is evidence to act on, and who is odd among the ranks is but a guess.

STOPPED_S = 5.0
"""A process stopped for this long: whoever attaches a debugger lets it go sooner, as for ranks with
hooks whose phase has no history."""

STILL_S = 30.0
"""At rest for this long while the job is to train: between steps, a slow read or a small upload
ends sooner. An evaluation on one rank may not, so nothing is done for it."""

GONE_S = 5.0
"""A rank that is gone while others go on for this long did not end with them."""


def find_outside_troubles(
    histories: Mapping[int, OutsideHistory], moment: Moment
) -> Iterator[Finding]:
    """What is wrong with the ranks of this node, as far as it shows from outside."""
    alive = [history for history in histories.values() if history.gone_since_s is None]
    for history in histories.values():
        if history.gone_since_s is not None and alive:
            yield from _crash(history, alive, moment)
    stopped = [history for history in alive if history.stopped_since_s is not None]
    is_suspended = len(stopped) == len(alive)  # all together: that is somebody's wish
    for history in stopped:
        yield from _stopped(history, is_suspended, moment)
    if not stopped and len(alive) == len(histories):
        yield from _stall(alive, moment)


def _crash(
    history: OutsideHistory, alive: list[OutsideHistory], moment: Moment
) -> Iterator[Finding]:
    gone_s = _for_s(history, history.gone_since_s)
    if gone_s < GONE_S:
        return
    is_waited_for = all(other.still_s >= GONE_S / 2 for other in alive)
    evidence = [
        f"process {history.look.who.pid} is gone, {len(alive)} others are not",
        "how it ended can't be seen from outside",
    ]
    confidence = 0.7 if is_waited_for else 0.5
    yield _finding(Kind.CRASH, [history], moment, gone_s, confidence, False, evidence)


def _stopped(history: OutsideHistory, is_suspended: bool, moment: Moment) -> Iterator[Finding]:
    if history.stopped_since_s is None:
        return
    # A scheduler that suspends a job stops us too, and may wake us first.
    stopped_s = moment.age_s(history.stopped_since_s)
    if stopped_s >= STOPPED_S:
        pid = history.look.who.pid
        evidence = [f"process {pid} has been stopped (state T) for {stopped_s:.1f} s"]
        if is_suspended:
            evidence.append("so are all others of its node")
        kind, sureness = (Kind.STALL, 0.6) if is_suspended else (Kind.HANG, 0.95)
        yield _finding(kind, [history], moment, stopped_s, sureness, not is_suspended, evidence)


def _stall(alive: list[OutsideHistory], moment: Moment) -> Iterator[Finding]:
    if (idle := _with_idle_gpu(alive)) is not None:
        idle_s = _for_s(idle, idle.gpu_idle_since_s)
        evidence = [
            f"its GPU has been idle for {idle_s:.0f} s",
            "those of its peers are busy, as they are while they wait in NCCL",
        ]
        yield _finding(Kind.STALL, [idle], moment, idle_s, 0.6, False, evidence)
        return
    still = [history for history in alive if history.still_s >= STILL_S]
    if not still:
        return
    still_s = min(history.still_s for history in still)
    rest = f"{len(still)} of {len(alive)} ranks have used hardly any CPU time for {still_s:.0f} s"
    culprits, confidence, why = _odd(alive, still)
    if culprits:
        yield _finding(Kind.STALL, culprits, moment, still_s, confidence, False, [rest, why])


def _odd(
    alive: list[OutsideHistory], still: list[OutsideHistory]
) -> tuple[list[OutsideHistory], float, str]:
    """Who most likely keeps the others: the ranks, how sure, and why. Nobody, when all is usual."""
    busy = [history for history in alive if history not in still]
    deaf = [h for h in still if _for_s(h, h.unread_since_s) >= STILL_S]
    if deaf and len(deaf) < len(alive):
        unread = sum(history.look.unread_bytes for history in deaf)
        return deaf, 0.6, f"{unread} bytes that its peers sent lie unread in its sockets"
    if not busy:
        return _alone_in_the_kernel(still)
    if len(busy) == 1 and len(still) > 1:
        return busy, 0.4, "it alone computes, while its peers wait"
    if len(still) == 1 and len(busy) > 1:
        return still, 0.4, "it alone rests, while its peers compute or spin"
    if len(alive) == 2:
        return busy, 0.35, "it computes, while its only peer waits"
    return [], 0.0, ""


def _with_idle_gpu(alive: list[OutsideHistory]) -> OutsideHistory | None:
    """The only rank whose GPU has long been idle, while all others' have long been busy."""
    idle = [h for h in alive if _for_s(h, h.gpu_idle_since_s) >= STILL_S]
    busy = [h for h in alive if _for_s(h, h.gpu_busy_since_s) >= STILL_S]
    if len(idle) == 1 and busy and len(idle) + len(busy) == len(alive):
        return idle[0]
    return None


def _for_s(history: OutsideHistory, since_s: float | None) -> float:
    """For how long that has been so. A gap in looking counts: nothing is done for it."""
    return 0.0 if since_s is None else history.look.at_s - since_s


def _alone_in_the_kernel(
    still: list[OutsideHistory],
) -> tuple[list[OutsideHistory], float, str]:
    """All rest: one that sleeps elsewhere than all others is the likeliest."""
    places = Counter(history.look.waits_in for history in still)
    usual = places.most_common(1)[0][0]
    odd = [history for history in still if history.look.waits_in != usual]
    if len(odd) == 1 and len(still) > 2 and usual and odd[0].look.waits_in:
        there = odd[0].look.waits_in
        return odd, 0.5, f"its main thread sleeps in {there}, those of its peers in {usual}"
    return still, 0.3, "which of them keeps the others can't be seen from outside"


def _finding(
    kind: Kind,
    whose: list[OutsideHistory],
    moment: Moment,
    lasts_s: float,
    confidence: float,
    acts: bool,
    evidence: list[str],
) -> Finding:
    return Finding(
        kind=kind,
        node=moment.node,
        since_unix_s=moment.now_unix_s - lasts_s,
        confidence=confidence,
        ranks=sorted(history.look.who.rank for history in whose),
        evidence=evidence,
        acts=acts,
    )
