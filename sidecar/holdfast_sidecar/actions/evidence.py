"""Keeps what would die with the ranks: stacks, process state, last records, the pages themselves.

Ranks that can answer are asked for their stacks; nobody is waited for beyond `ANSWER_S`, and what
can't be read is left out. `kept.json`, written last, says that the evidence is on disk.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast import page
from holdfast_sidecar.pages import RankPage

ANSWER_S = 0.5
"""faulthandler answers within some 1 ms even while the GIL is held; a rank that has not answered
after half a second sits in the kernel and will not."""

POLL_S = 0.01

RECORDS_KEPT = 32

THREADS_KEPT = 64

STACK_TAIL_BYTES = 256 * 1024

INDEX = "kept.json"

_KERNEL_VIEWS = ("status", "wchan", "syscall", "stack", "io", "limits")


@dataclass(frozen=True)
class Request:
    """Whose evidence goes where. `stacks` is where this attempt's ranks dump their stacks."""

    incident: str
    pages: tuple[RankPage, ...]
    stacks: Path
    destination: Path
    proc: Path = Path("/proc")


def is_kept(destination: Path) -> bool:
    """Whether this incident's evidence is on disk already (by an earlier sidecar, say)."""
    return (destination / INDEX).exists()


def keep_evidence(request: Request, answer_s: float = ANSWER_S) -> bool:
    """Keep the evidence of one incident; False when it was there already."""
    if is_kept(request.destination):
        return False
    started = time.monotonic()
    request.destination.mkdir(mode=0o700, parents=True, exist_ok=True)
    asked = ask_for_stacks(request)
    for held in request.pages:
        _keep_rank(request, held)
    answered = _await_stacks(asked, started + answer_s)
    for file in (*answered, *(set(asked) - answered)):
        _keep_stack(file, request.destination / file.name)
    index = {
        "incident": request.incident,
        "ranks": [held.identity.rank for held in request.pages],
        "stacks_answered": sorted(file.name for file in answered),
        "seconds": round(time.monotonic() - started, 3),
        "at_unix_s": time.time(),
    }
    write_file(request.destination / INDEX, json.dumps(index, indent=1).encode())
    return True


def ask_for_stacks(request: Request) -> dict[Path, int]:
    """Send STACKS_SIGNAL to every rank that has our handler; its dump file -> size before."""
    asked = {}
    for held in request.pages:
        file = request.stacks / f"stack-local-{held.identity.local_rank}.txt"
        directory = request.proc / str(held.identity.pid)
        # Without the dump file our handler was never registered (the user may have one of his
        # own for this signal); without any handler the signal would kill the rank.
        if file.exists() and can_answer(_read_text(directory / "status")):
            size = file.stat().st_size
            if held.send(page.STACKS_SIGNAL):
                asked[file] = size
    return asked


def can_answer(status: str) -> bool:
    """From /proc/PID/status: not stopped, not dead, and the signal is caught and not blocked."""
    fields = {
        name: value.strip() for name, _, value in (s.partition(":") for s in status.split("\n"))
    }
    bit = 1 << (page.STACKS_SIGNAL - 1)
    return (
        fields.get("State", "X")[:1] in ("R", "S", "D")
        and bool(int(fields.get("SigCgt", "0"), 16) & bit)
        and not int(fields.get("SigBlk", "0"), 16) & bit
    )


def _await_stacks(asked: dict[Path, int], until_s: float) -> set[Path]:
    """Files that grew and then stood still for one poll."""
    sizes, answered = dict(asked), set[Path]()
    while len(answered) < len(asked) and time.monotonic() < until_s:
        time.sleep(POLL_S)
        for file, before in asked.items():
            size = file.stat().st_size
            if size > before and size == sizes[file]:
                answered.add(file)
            sizes[file] = size
    return answered


def _keep_rank(request: Request, held: RankPage) -> None:
    content = held.read()
    base = request.destination / f"rank-{held.identity.rank}"
    write_file(base.with_suffix(".page"), content)
    facts = describe_page(held.identity, content)
    facts["process"] = _read_kernel_views(request.proc / str(held.identity.pid))
    write_file(base.with_suffix(".json"), json.dumps(facts, indent=1, allow_nan=False).encode())


def describe_page(identity: page.Identity, content: bytes) -> dict[str, Any]:
    """A page's words, last records and last words as plain data for JSON."""
    words = page.parse_words(content)
    records = [record for _, record in page.parse_records(content, 0)]
    return {
        "identity": dataclasses.asdict(identity),
        "words": {word.name.lower(): words[word] for word in page.Word},
        "records": [_describe_record(record) for record in records[-RECORDS_KEPT:]],
        "last_words": page.parse_last_words(content),
    }


def _describe_record(record: page.Record) -> dict[str, Any]:
    """JSON has no NaN and no infinity: a loss that is one is told as text."""
    loss = record.loss if math.isfinite(record.loss) else str(record.loss)
    return {**dataclasses.asdict(record), "loss": loss}


def _read_kernel_views(directory: Path) -> dict[str, Any]:
    views: dict[str, Any] = {name: _read_text(directory / name) for name in _KERNEL_VIEWS}
    threads = _list(directory / "task")[:THREADS_KEPT]
    views["threads"] = {
        thread: {
            name: _read_text(directory / "task" / thread / name)
            for name in ("comm", "wchan", "stack")
        }
        for thread in threads
    }
    return views


def _keep_stack(source: Path, destination: Path) -> None:
    size = source.stat().st_size
    with source.open("rb") as file:
        file.seek(max(0, size - STACK_TAIL_BYTES))
        write_file(destination, file.read())


def write_file(path: Path, content: bytes) -> None:
    """Write under a temporary name, then rename."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_bytes(content)
    temporary.replace(path)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _list(directory: Path) -> list[str]:
    try:
        names = [path.name for path in directory.iterdir()]
    except OSError:
        return []
    return sorted(names, key=lambda name: (len(name), name))
