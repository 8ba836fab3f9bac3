"""Asks a rank's flight recorder where it stands in its collectives; reading apart from parsing.

torch's worker server answers from C++ threads, so a rank that holds the GIL can be asked, too. One
that is stopped can't: every question has a deadline.
"""

from __future__ import annotations

import json
import logging
import math
import os
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from holdfast.contract import page
from holdfast.contract.page import Phase, Word
from holdfast_sidecar.linux.threads import start_thread
from holdfast_sidecar.ranks.observation import RankHistory
from holdfast_sidecar.ranks.page import RankPage
from holdfast_sidecar.records.collectives import (
    CollectiveCall,
    CollectiveState,
    RankTrace,
    out_of_turn,
)

logger = logging.getLogger(__name__)

HANDLERS = ("fr_trace_json", "dump_nccl_trace_json")
"""The recorder of gloo and others, and NCCL's, which a torch without it doesn't know."""

LONGEST_ADDRESS = 107
"""Bytes of a unix socket's address, without the zero that closes it (unix(7))."""

MOST_BYTES = 64 * 2**20
"""A full ring of 2000 entries takes 1 MB."""

MOST_GROUPS = 16
"""Of the groups a rank is in, those that it used last: in others nobody waits for it now."""

CALLS_TOLD = 3
ORDER_KEPT = 400
"""Collectives of all groups together in which a pattern is looked for: a few steps' worth."""

HISTORY_TOLD = 48
"""Collectives whose digests are told: enough to see where two ranks parted, several steps back."""

MUST_AGREE = frozenset({"all_reduce", "allreduce", "broadcast", "reduce", "_broadcast_oop"})
"""Collectives whose tensors must be of one size and type on every rank."""


class NoAnswerError(OSError):
    """The rank's server did not answer, or not with what was asked for."""


class UnknownHandlerError(NoAnswerError):
    """This torch has no such handler."""


def ask(path: Path, deadline_s: float, handler: str = HANDLERS[0]) -> bytes:
    """What the worker server at this unix socket answers. NoAnswerError, or another OSError."""
    until_s = time.monotonic() + deadline_s
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        is_short = len(os.fsencode(path)) <= LONGEST_ADDRESS
        address = str(path) if is_short else f"/proc/self/fd/{folder}/{path.name}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(deadline_s)
            connection.connect(address)
            request = f"POST /handler/{handler} HTTP/1.1\r\nHost: localhost\r\n"
            connection.sendall(f"{request}Content-Length: 0\r\nConnection: close\r\n\r\n".encode())
            return parse_response(_receive(connection, until_s))
    finally:
        os.close(folder)


def _receive(connection: socket.socket, until_s: float) -> bytes:
    """All that comes until the other side closes."""
    received = bytearray()
    while len(received) <= MOST_BYTES:
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            raise NoAnswerError("it did not answer in time")
        connection.settimeout(left_s)
        part = connection.recv(2**18)
        if not part:
            return bytes(received)
        received += part
    raise NoAnswerError(f"its answer is longer than {MOST_BYTES} bytes")


def parse_response(response: bytes) -> bytes:
    """The body of an HTTP response; NoAnswerError when it is cut or no success."""
    head, separator, body = response.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    code = status.split(" ")[1:2]
    if code == ["404"]:
        raise UnknownHandlerError(f"it answered {status[:80]!r}")
    if not separator or code != ["200"]:
        raise NoAnswerError(f"it answered {status[:80]!r}")
    fields = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    if fields.get("content-length", str(len(body))) != str(len(body)):
        raise NoAnswerError("its answer is cut")
    return body


@dataclass(frozen=True)
class Members:
    """Who is in a group: what torch calls it, and its global ranks in the group's order."""

    title: str
    ranks: tuple[int, ...]


def read_members(path: Path) -> dict[str, Members] | None:
    """The groups a rank is in, by name, as its hooks wrote them; None when they did not."""
    try:
        return parse_members(path.read_bytes())
    except OSError:
        return None


def parse_members(text: bytes) -> dict[str, Members] | None:
    """The groups in such a file; None when it is none."""
    try:
        return {
            str(name): Members(str(group["title"]), tuple(int(rank) for rank in group["ranks"]))
            for name, group in json.loads(text).items()
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def parse_trace(
    rank: int, dumps: Iterable[bytes], known: Mapping[str, Members] | None
) -> RankTrace:
    """Where a rank stands, from what its recorders said. ValueError when that is no such dump.

    known: the groups it is in; None: nobody says. Groups that ended leave entries behind, maybe
    under a name that was given again: only groups that are known count, and of those the newest.
    """
    members = {} if known is None else known
    standings: list[CollectiveState] = []
    messages: set[int] = set()
    is_whole = True
    turn = -1
    try:
        for dump in map(json.loads, dumps):
            entries = dump.get("entries", [])
            is_whole = is_whole and all(entry["record_id"] == 0 for entry in entries[:1])
            messages |= _messages(entries, members)
            calls = [
                entry
                for entry in entries
                if not entry["is_p2p"] and (known is None or entry["process_group"][0] in known)
            ]
            groups = sorted(_by_group(calls), key=lambda group: -group[-1]["record_id"])
            is_whole = is_whole and len(groups) <= MOST_GROUPS
            standings += [_collective_state(group, members) for group in groups[:MOST_GROUPS]]
            turn = max(turn, _out_of_turn(calls[-ORDER_KEPT:]))
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"no flight recorder's dump: {type(error).__name__}: {error}") from error
    return RankTrace(
        rank=rank,
        answered=True,
        groups={name: len(group.ranks) for name, group in members.items()},
        standings=standings,
        is_whole=is_whole,
        messages_to=sorted(messages - {rank}),
        out_of_turn=turn,
    )


def _by_group(entries: Iterable[dict[str, Any]]) -> Iterable[list[dict[str, Any]]]:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for entry in entries:
        backend = entry["profiling_name"].partition(":")[0]
        known = groups.setdefault((entry["process_group"][0], backend), [])
        if known and known[-1]["pg_id"] != entry["pg_id"]:
            known.clear()
        known.append(entry)
    return groups.values()


def _collective_state(
    entries: list[dict[str, Any]], members: Mapping[str, Members]
) -> CollectiveState:
    newest = entries[-1]
    name, title = newest["process_group"]
    calls = {entry["collective_seq_id"]: entry for entry in entries}
    entered = max(calls)
    pending = [number for number in sorted(calls) if not _is_complete(calls[number])]
    return CollectiveState(
        group=name,
        backend=newest["profiling_name"].partition(":")[0],
        title=members[name].title if name in members else title,
        entered=entered,
        completed=min(pending, default=entered + 1) - 1,
        pending=[_call(number, calls[number]) for number in pending[:CALLS_TOLD]],
        history=_history(calls, entered),
    )


def _history(calls: Mapping[int, dict[str, Any]], entered: int) -> str:
    latest = takewhile(calls.__contains__, range(entered, entered - HISTORY_TOLD, -1))
    return "".join(reversed([_digest(str(_call(n, calls[n]))) for n in latest]))


def _out_of_turn(calls: list[dict[str, Any]]) -> int:
    """As in RankTrace, up to the oldest that is pending; -1 while none is."""
    pending = next((i for i, entry in enumerate(calls) if not _is_complete(entry)), None)
    if pending is None:
        return -1
    order = [f"{entry['process_group'][0]} {_call(0, entry)}" for entry in calls[: pending + 1]]
    return out_of_turn(order)


def _digest(text: str) -> str:
    return f"{zlib.crc32(text.encode()) & 0xFFFF:04x}"


def _call(number: int, entry: Mapping[str, Any]) -> CollectiveCall:
    what = entry["profiling_name"].partition(":")[2]
    return CollectiveCall(number, what, _shape(entry) if what in MUST_AGREE else "")


def _shape(entry: Mapping[str, Any]) -> str:
    side = "input" if entry["input_sizes"] else "output"
    count = sum(math.prod(size) for size in entry[f"{side}_sizes"])
    return f"{'/'.join(sorted(set(entry[f'{side}_dtypes'])))} x {count}"


def _is_complete(entry: Mapping[str, Any]) -> bool:
    return bool(entry["retired"]) or entry["state"] == "completed"


def _messages(entries: Iterable[dict[str, Any]], members: Mapping[str, Members]) -> set[int]:
    """Ranks whose message, sent or received, is awaited."""
    found = set()
    for entry in entries:
        if entry["is_p2p"] and not _is_complete(entry):
            group = members.get(entry["process_group"][0])
            peer = entry["profiling_name"].rpartition("->")[2].rpartition("<-")[2]
            if group is not None and peer.isdecimal() and int(peer) < len(group.ranks):
                found.add(group.ranks[int(peer)])
    return found


# Asks this node's ranks where they stand in their collectives, while there is suspicion.
#
# Each is asked in a thread of its own with a deadline, and nobody waits for it: the loop takes what
# has been told so far. A healthy job is never asked.

DEADLINE_S = 1.0
"""A server that can answer does so within 35 ms, its ring full."""

AGAIN_S = 0.4
"""Between questions at first: two answers alike, this far apart, are no snapshot of movement."""

STANDS_S = 0.8
"""What was told for so long without a change stands: three answers, and in a step of 100 ms at
least eight steps' time."""

EAGER_ROUNDS = 8
"""After these the questions come at LATER_S: whoever waits for minutes need not be asked so often
(an answer costs the rank's process some 30 ms of one core)."""

LATER_S = 5.0

DEFAULT_TITLE = "default_pg"
"""torch's title of the group of all ranks: the one that is known where hooks told of none."""

Question = Callable[[Path, int], RankTrace]
"""From the page's path and the rank to its trace; raises nothing but OSError and ValueError."""


def ask_rank(path: Path, rank: int) -> RankTrace:
    """What this rank's recorders tell. Without an answer, the groups it is in."""
    members = read_members(path.with_suffix(page.GROUPS_SUFFIX))
    dumps = []
    for handler in HANDLERS:
        try:
            dumps.append(ask(path.with_suffix(page.SOCKET_SUFFIX), DEADLINE_S, handler))
        except UnknownHandlerError:
            continue
        except OSError:
            # Half an answer would say that it entered nothing in the groups of the other half.
            groups = {name: len(group.ranks) for name, group in (members or {}).items()}
            return RankTrace(rank, groups=groups)
    return parse_trace(rank, dumps, members)


@dataclass
class _Asked:
    """One rank's side of the inquiry."""

    claimed_ns: int
    trace: RankTrace | None = None
    told_since_s: float = 0.0
    answered_s: float = 0.0
    """When the question was put that it answered last, alike since `told_since_s`."""
    rounds: int = 0
    due_s: float = 0.0
    is_asking: bool = False

    @property
    def stands(self) -> bool:
        """Whether the same was answered for long enough."""
        return self.answered_s - self.told_since_s >= STANDS_S


@dataclass
class FlightRecorderClient:
    """Remembers what each rank told while the suspicion lasts."""

    pages: Callable[[], Iterable[RankPage]] = tuple
    """The open pages of this node's ranks."""
    wake: Callable[[], None] = lambda: None
    """Called when something new was told."""
    question: Question = ask_rank
    _asked: dict[int, _Asked] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def follow(
        self,
        is_wanted: bool,
        overdue: Iterable[int],
        histories: Mapping[int, RankHistory],
        now_s: float,
    ) -> dict[int, RankTrace]:
        """What is known by now, of ranks that have been asked; asks on meanwhile.

        overdue: ranks that are silent for longer than expected.
        """
        if not is_wanted:
            with self._lock:
                self._asked = {}
            return {}
        late = set(overdue)
        held = {one.identity.rank: one for one in self.pages()}
        for rank, history in histories.items():
            if rank in held:
                self._ask_when_due(rank, history, held[rank], now_s)
        with self._lock:
            return {
                rank: self._complete(asked, histories[rank], rank in late)
                for rank, asked in self._asked.items()
                if asked.trace is not None and rank in histories
            }

    def _ask_when_due(self, rank: int, history: RankHistory, held: RankPage, now_s: float) -> None:
        with self._lock:
            asked = self._asked.get(rank)
            if asked is None or asked.claimed_ns != held.identity.claimed_ns:
                asked = self._asked[rank] = _Asked(held.identity.claimed_ns)
            if asked.is_asking or now_s < asked.due_s:
                return
            asked.is_asking = True
            asked.rounds += 1
            asked.due_s = now_s + (AGAIN_S if asked.rounds <= EAGER_ROUNDS else LATER_S)
        if start_thread(self._ask, f"ask rank {rank}", (asked, rank, held.path, now_s)) is None:
            asked.is_asking = False

    def _ask(self, asked: _Asked, rank: int, path: Path, now_s: float) -> None:
        try:
            trace = self.question(path, rank)
        except (OSError, ValueError) as error:
            logger.warning("what rank %d's flight recorder said can't be read: %s", rank, error)
            trace = RankTrace(rank)
        with self._lock:
            stood = asked.stands
            is_news = trace != asked.trace
            if is_news:
                asked.trace, asked.told_since_s = trace, now_s
            asked.answered_s = now_s
            asked.is_asking = False
            is_news = is_news or asked.stands != stood
        if is_news:
            self.wake()

    @staticmethod
    def _complete(asked: _Asked, history: RankHistory, is_overdue: bool) -> RankTrace:
        """The trace with what the page says now."""
        assert asked.trace is not None
        words, world_size = history.look.words, history.look.identity.world_size
        everyone = {
            standing.group: world_size
            for standing in asked.trace.standings
            if standing.title == DEFAULT_TITLE
        }
        return replace(
            asked.trace,
            groups=asked.trace.groups or everyone,
            awaits_message=history.look.phase is Phase.COMMUNICATING
            and not any(standing.is_waiting for standing in asked.trace.standings),
            calls_entered=words[Word.COLLECTIVES_ENTERED],
            calls_left=words[Word.COLLECTIVES_LEFT],
            in_backward=history.look.phase is Phase.BACKWARD,
            is_overdue=is_overdue,
            stands=asked.stands and history.look.moved_s <= asked.answered_s,
            told_standing=history.still_since is not None
            and history.still_since.at_s <= asked.answered_s,
        )
