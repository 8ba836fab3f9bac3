"""Keeps what would die with the ranks: stacks, collectives, process state, last records, pages.

Ranks that can answer are asked; nobody is waited for beyond `ANSWER_S`, and what can't be read is
left out. `kept.json`, written last, says that the evidence is on disk.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast import page
from holdfast.own_directory import make_closed
from holdfast_sidecar.config.redaction import Redaction
from holdfast_sidecar.evidence.kept import Kept, is_kept, write_file, write_kept
from holdfast_sidecar.evidence.rank_facts import RankFacts
from holdfast_sidecar.linux.files import read_if_any
from holdfast_sidecar.ranks.page import RankPage
from holdfast_sidecar.ranks.stack_dumps import main_thread, place
from holdfast_sidecar.ranks.stacks import (
    SPY_S,
    STOPPED,
    Asked,
    ask_for_stacks,
    await_stacks,
    choose_suspects,
    file_name,
    find_spy,
    letter,
    read_kernel_views,
    spy,
    state_of,
)

ANSWER_S = 0.5
"""faulthandler answers within some 1 ms even while the GIL is held, the flight recorder within a
few; a rank that has not answered after half a second sits in the kernel and will not."""

RECORDS_KEPT = 32

RING_BYTES = 4 * 2**20
"""Four times what a full flight recorder says."""

RANKS_AT_ONCE = 16
"""Nodes have eight GPUs, some sixteen."""

AskRing = Callable[[RankPage, float], bytes]
"""A rank's flight recorder within so many seconds. Raises OSError."""


@dataclass(frozen=True)
class Request:
    """Whose evidence goes where. `stacks` is where this attempt's ranks dump their stacks."""

    incident: str
    pages: tuple[RankPage, ...]
    stacks: Path
    destination: Path
    proc: Path = Path("/proc")
    culprits: frozenset[int] = frozenset()
    facts: Mapping[int, RankFacts] = field(default_factory=dict)
    """rank -> with what it was started."""
    redaction: Redaction = field(default_factory=Redaction)
    ask_ring: AskRing | None = None
    spies: bool = True
    """Whether py-spy may look, where it is installed."""
    native_s: float = 0.0
    """How long it may look for native frames of culprits that have answered; 0: it does not."""


def keep_evidence(request: Request, answer_s: float = ANSWER_S) -> bool:
    """Keep the evidence of one incident; False when it was there already."""
    if is_kept(request.destination):
        return False
    started = time.monotonic()
    make_closed(request.destination)
    asked = ask_for_stacks(request.pages, request.stacks, request.proc)
    with _Rings(request, answer_s) as rings:
        views = {held.identity.rank: _keep_rank(request, held) for held in request.pages}
        answered = await_stacks(asked, started + answer_s)
        told = _keep_answers(request, answered)
        kept_rings = rings.keep(started + answer_s)
    spied = _spy(request, views, told)
    write_kept(
        request.destination,
        Kept(
            incident=request.incident,
            ranks=[held.identity.rank for held in request.pages],
            stacks_answered=sorted(one.file.name for one in answered),
            spied=sorted(rank for rank in spied if rank >= 0),
            rings=kept_rings,
            rings_missing={
                str(held.identity.rank): _why_no_ring(held)
                for held in request.pages
                if held.identity.rank not in kept_rings
            },
            places=_places(views, told, spied),
            seconds=round(time.monotonic() - started, 3),
            at_unix_s=time.time(),
        ),
    )
    return True


def _why_no_ring(held: RankPage) -> str:
    flags = page.parse_words(held.read())[page.Word.FLAGS]
    if flags & page.Flag.NO_ROOM_FOR_RECORDER:
        return "not opened: no room for its threads (pids.max, ulimit -u or -v)"
    if not held.path.with_suffix(page.SOCKET_SUFFIX).exists():
        return "not opened"
    return "did not answer"


def _keep_rank(request: Request, held: RankPage) -> dict[str, Any]:
    """Its page and what there is to say of it; answers the kernel's views."""
    content = clean_page(held.read(), request.redaction)
    base = request.destination / f"rank-{held.identity.rank}"
    write_file(base.with_suffix(".page"), content)
    described = describe_page(held.identity, content)
    launched = request.facts.get(held.identity.rank, RankFacts())
    described["command"] = request.redaction.command(launched.command)
    described["environment"] = request.redaction.environment(launched.told_variables)
    described["other_variables"] = sorted(set(launched.variables) - set(launched.told_variables))
    views = read_kernel_views(request.proc, held.identity.pid)
    # Not indented, which would take json's slow way: ranks wait for this to be on disk.
    text = json.dumps({**described, "process": views}, allow_nan=False)
    write_file(base.with_suffix(".json"), request.redaction.known_bytes(text.encode()))
    return views


def clean_page(content: bytes, redaction: Redaction) -> bytes:
    """The page, its last words without secrets."""
    words = page.parse_last_words(content)
    if words is None:
        return content
    start, end = page.LAST_WORDS_OFFSET, page.LAST_WORDS_OFFSET + page.LAST_WORDS_SIZE
    zone = page.pack_last_words(redaction.plain(words)).ljust(page.LAST_WORDS_SIZE, b"\0")
    return content[:start] + zone + content[end:]


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
    """JSON has no NaN and no infinity: a number that is one is told as text."""
    return {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in vars(record).items()  # `asdict` copies, ten times as slowly
    }


def _keep_answers(request: Request, answered: Iterable[Asked]) -> dict[int, str]:
    """rank -> the stacks that it wrote."""
    told = {}
    for one in answered:
        text = request.redaction.text(one.answer())
        write_file(request.destination / one.file.name, text.encode())
        told[one.held.identity.rank] = text
    return told


class _Rings:
    """The ranks' flight recorders, asked all at once while other things are kept."""

    def __init__(self, request: Request, answer_s: float) -> None:
        self._request = request
        self._pool = ThreadPoolExecutor(RANKS_AT_ONCE, thread_name_prefix="ring")
        self._asked: dict[int, Future[bytes]] = {}
        with contextlib.suppress(RuntimeError):  # no thread is left that could ask
            self._ask_all(answer_s)

    def _ask_all(self, answer_s: float) -> None:
        ask = self._request.ask_ring
        for held in self._request.pages:
            if ask is not None and _is_running(self._request.proc, held):
                asked = self._pool.submit(ask, held, answer_s)
                self._asked[held.identity.rank] = asked

    def __enter__(self) -> _Rings:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def keep(self, until_s: float) -> list[int]:
        """Write what was answered by then; the ranks that did."""
        wait(self._asked.values(), timeout=max(0.0, until_s - time.monotonic()))
        kept = []
        for rank, answer in self._asked.items():
            if not answer.done() or answer.exception() is not None:
                continue
            write_file(
                self._request.destination / f"rank-{rank}-collectives.json",
                self._request.redaction.known_bytes(answer.result()[:RING_BYTES]),
            )
            kept.append(rank)
        return kept


def _spy(
    request: Request, views: Mapping[int, Mapping[str, Any]], told: Mapping[int, str]
) -> dict[int, str]:
    """Stacks that had to be read from outside, by rank; of children by their pid, less than 0."""
    suspects = choose_suspects(
        views,
        {one.identity.rank: one.identity.pid for one in request.pages if not one.is_gone()},
        answered=told.keys(),
        culprits=request.culprits,
        wants_native=request.native_s > 0,
    )
    program = find_spy() if suspects and request.spies else ""
    if not program:
        return {}
    seen = spy(program, suspects, request.destination, max(SPY_S, request.native_s))
    for who, text in seen.items():
        clean = request.redaction.text(text)
        write_file(request.destination / file_name(who), clean.encode())
    return seen


def _places(
    views: Mapping[int, Mapping[str, Any]], told: Mapping[int, str], spied: Mapping[int, str]
) -> dict[str, str]:
    """rank -> where its main thread stands, as far as anybody knows."""
    places = {}
    for rank, view in views.items():
        stands = place(main_thread(told.get(rank, ""))) or place(main_thread(spied.get(rank, "")))
        state = state_of(view)
        if state in STOPPED:
            stands = f"stopped {stands}".rstrip()
        elif state == "D" and not stands:
            stands = f"in the kernel at {view['wchan'] or 'an unknown place'}"
        stands += _place_of_child(view, spied)
        if stands:
            places[str(rank)] = stands
    return places


def _place_of_child(view: Mapping[str, Any], spied: Mapping[int, str]) -> str:
    """Where the first of its children stands that was looked at: what the rank waits for."""
    for pid in view["children"]:
        if stands := place(main_thread(spied.get(-int(pid), ""))):
            return f", its child {pid} {stands}"
    return ""


def _is_running(proc: Path, held: RankPage) -> bool:
    return letter(read_if_any(f"{proc}/{held.identity.pid}/status")) in ("R", "S", "D")
