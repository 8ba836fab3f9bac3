"""Asks this node's ranks where they stand in their collectives, while there is suspicion.

Each is asked in a thread of its own with a deadline, and nobody waits for it: the loop takes what
has been told so far. A healthy job is never asked.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from holdfast import page
from holdfast.page import Phase, Word
from holdfast_sidecar.linux.threads import start_thread
from holdfast_sidecar.observation import RankHistory
from holdfast_sidecar.pages import RankPage
from holdfast_sidecar.probes.flight_recorder import (
    HANDLERS,
    UnknownHandlerError,
    ask,
    parse_trace,
    read_members,
)
from holdfast_sidecar.records.collectives import RankTrace

logger = logging.getLogger(__name__)

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
class Inquiry:
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
