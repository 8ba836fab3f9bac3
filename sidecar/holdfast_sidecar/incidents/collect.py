"""Keeps what would die with the ranks: stacks, collectives, process state, last records, pages.

Ranks that can answer are asked; nobody is waited for beyond `ANSWER_S`, and what can't be read is
left out. `kept.json`, written last, says that the evidence is on disk.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.contract import page
from holdfast.contract.own_directory import make_closed
from holdfast_sidecar.config.paths import TAKES_NOTHING, Paths
from holdfast_sidecar.config.redaction import Redaction
from holdfast_sidecar.config.settings import EvidenceSettings
from holdfast_sidecar.incidents.rank_facts import (
    EvidenceRecord,
    RankFacts,
    RankFactsMemory,
    is_kept,
    read_places,
    read_rank_facts,
    write_file,
    write_kept,
)
from holdfast_sidecar.linux.files import read_if_any
from holdfast_sidecar.linux.threads import start_thread
from holdfast_sidecar.ranks.ending import ActionRunner
from holdfast_sidecar.ranks.flight_recorder import HANDLERS, ask
from holdfast_sidecar.ranks.page import RankPage
from holdfast_sidecar.ranks.stack_dumps import main_thread, place
from holdfast_sidecar.ranks.stacks import (
    SPY_S,
    STOPPED,
    PendingDump,
    SuspectProcess,
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
from holdfast_sidecar.ranks.unhooked import OutsideLook
from holdfast_sidecar.records.plan import Plan

logger = logging.getLogger(__name__)

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
class EvidenceRequest:
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


def keep_evidence(request: EvidenceRequest, answer_s: float = ANSWER_S) -> bool:
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
        EvidenceRecord(
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


def _keep_rank(request: EvidenceRequest, held: RankPage) -> dict[str, Any]:
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


def _keep_answers(request: EvidenceRequest, answered: Iterable[PendingDump]) -> dict[int, str]:
    """rank -> the stacks that it wrote."""
    told = {}
    for one in answered:
        text = request.redaction.text(one.answer())
        write_file(request.destination / one.file.name, text.encode())
        told[one.held.identity.rank] = text
    return told


class _Rings:
    """The ranks' flight recorders, asked all at once while other things are kept."""

    def __init__(self, request: EvidenceRequest, answer_s: float) -> None:
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
    request: EvidenceRequest, views: Mapping[int, Mapping[str, Any]], told: Mapping[int, str]
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


# Keeps what would die with ranks that have no hooks: how they were started, the kernel's views of
# them, and stacks where py-spy is installed and may look.

PROC = Path("/proc")

FACTS_S = 1.0
"""Command and variables lie in the process's own memory, and whoever asks for them waits as long as
a page of it does: where that may be the very fault, the evidence is kept without them."""


def keep_outside_evidence(
    incident: str,
    destination: Path,
    looks: Sequence[OutsideLook],
    proc: Path = PROC,
    facts_s: float = FACTS_S,
) -> Mapping[int, str]:
    """Write it down; answers where each rank's main thread stood, as far as that was seen."""
    started = time.monotonic()
    make_closed(destination)
    alive = [look for look in looks if not look.is_gone]
    facts = _read_facts(alive, proc, facts_s)
    redaction = Redaction(frozenset().union(*(one.secrets for one in facts.values())))
    for look in alive:
        rank = look.who.rank
        known = facts.get(rank, RankFacts())
        described = {
            "pid": look.who.pid,
            "command": redaction.command(known.command),
            "environment": redaction.environment(known.told_variables),
            "process": redaction.plain(read_kernel_views(proc, look.who.pid)),
        }
        _write(destination / f"rank-{rank}.json", json.dumps(described, indent=1))
    stacks = _read_stacks(alive, destination)
    for rank, text in stacks.items():
        _write(destination / f"rank-{rank}-stacks.txt", redaction.text(text))
    places = {rank: place(main_thread(text)) for rank, text in stacks.items()}
    write_kept(
        destination,
        EvidenceRecord(
            incident=incident,
            ranks=[look.who.rank for look in alive],
            stacks_answered=[],
            spied=sorted(stacks),
            seconds=round(time.monotonic() - started, 3),
            places={str(rank): where for rank, where in places.items()},
            at_unix_s=time.time(),
        ),
    )
    return places


def _read_facts(alive: Sequence[OutsideLook], proc: Path, limit_s: float) -> dict[int, RankFacts]:
    """rank -> what was read of it within this time."""
    facts: dict[int, RankFacts] = {}

    def read() -> None:
        for look in alive:
            facts[look.who.rank] = read_rank_facts(proc / str(look.who.pid))

    reader = start_thread(read, "rank-facts")
    if reader is not None:
        reader.join(limit_s)
    return dict(facts)


def _read_stacks(alive: Sequence[OutsideLook], scratch: Path) -> dict[int, str]:
    spy_path = find_spy()
    suspects = [
        SuspectProcess(
            look.who.rank, look.who.pid, is_stopped=look.state == "T", has_answered=False
        )
        for look in alive
    ]
    return spy(spy_path, suspects, scratch) if spy_path else {}


def _write(path: Path, text: str) -> None:
    write_file(path, text.encode())


# Keeps the evidence of the incident at hand, in a thread: the node's loop goes on looking while
# ranks are asked, and a file system that hangs may be the very fault.

WAIT_S = 0.1
"""The loop waits so long for what mostly takes half of it; after that it looks at every tick."""

DYING_ANSWER_S = 0.05
"""Ranks of an attempt that was ended are being ended: who answers at all does so at once."""

PAUSES_S = (0.0, 1.0, 5.0, 30.0)
"""Between the tries to keep one incident's evidence, each of which asks all ranks for their stacks.
After the last one it is left."""

Keep = Callable[[EvidenceRequest, float], bool]


def ask_rings(held: RankPage, deadline_s: float) -> bytes:
    """All that a rank's flight recorders hold, by the name of the question. Raises OSError."""
    socket = held.path.with_suffix(page.SOCKET_SUFFIX)
    answers = {HANDLERS[0]: ask(socket, deadline_s, HANDLERS[0])}
    for handler in HANDLERS[1:]:
        with contextlib.suppress(OSError):  # not every torch knows it
            answers[handler] = ask(socket, deadline_s, handler)
    told = (f'"{handler}": '.encode() + answer for handler, answer in answers.items())
    return b"{" + b",\n".join(told) + b"}"


@dataclass(frozen=True)
class KeptEvidence:
    """What is on disk of an incident, for all to know."""

    incident: str = ""
    where_ranks_stood: Mapping[str, str] = field(default_factory=dict)


@dataclass
class EvidenceTries:
    """How the tries to keep one incident's evidence went, and whether it is worth another."""

    _incident: str = ""
    _since_s: float = math.inf
    _due_s: float = 0.0
    _count: int = 0
    _hopeless: str = ""
    """Incident whose evidence the disk does not take."""

    def may_begin(self, incident: str, now_s: float) -> bool:
        """Whether to try now; if so, that is counted."""
        if incident != self._incident:
            self._incident, self._since_s = incident, now_s
            self._due_s, self._count = now_s, 0
        if self._count > len(PAUSES_S) or now_s < self._due_s:
            return False
        self._due_s = now_s + (*PAUSES_S, math.inf)[self._count]
        self._count += 1
        return True

    def run(self, incident: str, keep: Callable[[], bool]) -> bool:
        """Keep it. Raises what that raises."""
        try:
            return keep()
        except OSError as error:
            if error.errno in TAKES_NOTHING:
                self._hopeless = incident
            raise

    def are_over(self, incident: str, patience_s: float, now_s: float) -> bool:
        """Whether nobody waits for this evidence any more, on disk or not."""
        if incident != self._incident:
            return False
        return self._hopeless == incident or now_s - self._since_s > patience_s


@dataclass
class EvidenceKeeping:
    """One incident's evidence at a time. `kept` is the newest that is on disk."""

    places: Paths
    runner: ActionRunner
    ask_ring: AskRing | None = ask_rings
    settings: EvidenceSettings = field(default_factory=EvidenceSettings)
    secrets: frozenset[str] = frozenset()
    """What this process itself must not write down."""
    facts: RankFactsMemory = field(default_factory=RankFactsMemory)
    keep_now: Keep = keep_evidence
    kept: KeptEvidence = field(default_factory=KeptEvidence)
    tries: EvidenceTries = field(default_factory=EvidenceTries)
    _thread: threading.Thread | None = None

    @property
    def redaction(self) -> Redaction:
        """Everything that is known for a secret on this node."""
        return Redaction(self.secrets | self.facts.secrets())

    def clean(self, text: str) -> str:
        """The text without them, and without what looks like one."""
        return self.redaction.text(text)

    def keep(self, plan: Plan, held: Iterable[RankPage], now_s: float) -> None:
        """Begin with the plan's incident, or give it a little time; safe to repeat.

        One that hangs in a file system is left alone: nothing here can end it.
        """
        if self.kept.incident == plan.incident:
            return
        is_free = self._thread is None or not self._thread.is_alive()
        if is_free and self.tries.may_begin(plan.incident, now_s):
            request = self._request(plan, held)
            answer_s = ANSWER_S if plan.state == "evidence" else DYING_ANSWER_S
            self._thread = start_thread(self._run, "evidence", (request, answer_s))
        if self._thread is not None:
            self._thread.join(WAIT_S)

    def _run(self, request: EvidenceRequest, answer_s: float) -> None:
        keep = partial(self.tries.run, request.incident, partial(self.keep_now, request, answer_s))
        if self.runner.run("keep_evidence", keep):
            logger.info("kept evidence of incident %s in %s", request.incident, request.destination)
        if is_kept(request.destination):
            self.kept = KeptEvidence(request.incident, read_places(request.destination))

    def _request(self, plan: Plan, held: Iterable[RankPage]) -> EvidenceRequest:
        return EvidenceRequest(
            incident=plan.incident,
            pages=tuple(one for one in held if one.identity.attempt == plan.attempt),
            stacks=self.places.evidence(plan.attempt),
            destination=self.places.incident(plan.incident),
            culprits=frozenset(plan.culprit_ranks),
            facts=self.facts.of_attempt(plan.attempt),
            redaction=self.redaction,
            ask_ring=self.ask_ring,
            spies=self.settings.spies and plan.state == "evidence",
            native_s=self.settings.native_s,
        )
