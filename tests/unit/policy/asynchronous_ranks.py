"""Ranks with several threads and asynchronous collectives in several groups, by chance.

Each group is used by one thread of every member, which enters its collectives in the same order
everywhere; between groups the order differs from rank to rank, as it may. A thread that waits does
so for one handle. Whether that comes to an end is found by letting it run.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast_sidecar.records.collectives import CollectiveCall, CollectiveState, RankTrace

Handle = tuple[str, int]
"""A collective: its group, and its number there."""

LONGEST_S = 20.0
"""A computation, or a collective that all have entered."""


@dataclass(frozen=True)
class Deed:
    """What a thread does next."""

    kind: str
    """`enter`, `wait` or `compute`."""
    handle: Handle = ("", 0)
    seconds: float = 0.0


@dataclass
class Thread:
    """One thread of a rank."""

    deeds: list[Deed]
    busy_until_s: float = 0.0

    @property
    def is_through(self) -> bool:
        return not self.deeds


@dataclass
class AsynchronousRank:
    """One rank: its threads, and what it has entered."""

    number: int
    groups: tuple[str, ...]
    threads: list[Thread]
    entered: dict[str, int] = field(default_factory=dict)


@dataclass
class World:
    """All ranks on a virtual clock."""

    members: dict[str, tuple[int, ...]]
    ranks: list[AsynchronousRank]
    chance: random.Random
    now_s: float = 0.0
    complete_s: dict[Handle, float] = field(default_factory=dict)
    """When a collective that all have entered is complete."""

    @property
    def is_through(self) -> bool:
        return all(thread.is_through for rank in self.ranks for thread in rank.threads)

    def run(self) -> Iterator[dict[int, RankTrace]]:
        """What all ranks tell, each time something has happened, until nothing can any more."""
        while True:
            while any(self._advance(rank, thread) for rank, thread in self._threads()):
                yield self.traces()
            if (next_s := self._next_s()) is None:
                return
            self.now_s = next_s
            yield self.traces()

    def traces(self) -> dict[int, RankTrace]:
        """What an inquiry finds now, each rank silent for longer than ever."""
        return {rank.number: self._trace(rank) for rank in self.ranks}

    def _threads(self) -> list[tuple[AsynchronousRank, Thread]]:
        found = [(rank, thread) for rank in self.ranks for thread in rank.threads]
        self.chance.shuffle(found)
        return found

    def _next_s(self) -> float | None:
        later = [*self.complete_s.values(), *(one.busy_until_s for _, one in self._threads())]
        return min((at_s for at_s in later if at_s > self.now_s), default=None)

    def _advance(self, rank: AsynchronousRank, thread: Thread) -> bool:
        if thread.is_through or thread.busy_until_s > self.now_s:
            return False
        deed = thread.deeds[0]
        if deed.kind == "wait" and not self._is_complete(deed.handle):
            return False
        if deed.kind == "enter":
            self._enter(rank, deed.handle)
        if deed.kind == "compute":
            thread.busy_until_s = self.now_s + deed.seconds
        thread.deeds.pop(0)
        return True

    def _enter(self, rank: AsynchronousRank, handle: Handle) -> None:
        group, number = handle
        assert rank.entered.get(group, 0) == number - 1
        rank.entered[group] = number
        if all(self.ranks[one].entered.get(group, 0) >= number for one in self.members[group]):
            self.complete_s[handle] = self.now_s + self.chance.uniform(0.0, LONGEST_S)

    def _is_complete(self, handle: Handle) -> bool:
        return handle in self.complete_s and self.complete_s[handle] <= self.now_s

    def _waits(self, thread: Thread) -> bool:
        """Whether looks find it in a wait that nothing but its collective ends."""
        if thread.is_through:
            return thread.busy_until_s <= self.now_s
        deed = thread.deeds[0]
        is_busy = thread.busy_until_s > self.now_s or deed.kind != "wait"
        return not is_busy and not self._is_complete(deed.handle)

    def _trace(self, rank: AsynchronousRank) -> RankTrace:
        return RankTrace(
            rank=rank.number,
            answered=True,
            groups={group: len(self.members[group]) for group in rank.groups},
            standings=[self._standing(group, entered) for group, entered in rank.entered.items()],
            is_whole=True,
            is_overdue=True,
            stands=True,
            rests=all(map(self._waits, rank.threads)),
        )

    def _standing(self, group: str, entered: int) -> CollectiveState:
        pending = [n for n in range(1, entered + 1) if not self._is_complete((group, n))]
        digests = (
            f"{zlib.crc32(what_of(group, number).encode()) & 0xFFFF:04x}"
            for number in range(1, entered + 1)
        )
        return CollectiveState(
            group=group,
            backend="gloo",
            title=group,
            entered=entered,
            completed=min(pending, default=entered + 1) - 1,
            pending=[CollectiveCall(number, what_of(group, number)) for number in pending[:3]],
            history="".join(digests)[-4 * 48 :],
        )


def what_of(group: str, number: int) -> str:
    """The same on every rank."""
    return f"all_reduce of Float x {zlib.crc32(f'{group} {number}'.encode()) % 5}"


def make_world(seed: int) -> World:
    """A few ranks that enter a few collectives per group, and wait for all of them in the end."""
    chance = random.Random(seed)
    size = chance.randint(2, 6)
    names = [f"g{number}" for number in range(chance.randint(2, 4))]
    members = {
        name: tuple(sorted(chance.sample(range(size), chance.randint(2, size)))) for name in names
    }
    thread_of = {name: chance.choice((0, 0, 1)) for name in names}
    patience = chance.choice((0.0, 0.3, 0.8))
    ranks = []
    for number in range(size):
        own = [name for name in names if number in members[name]]
        streams = [[name for name in own if thread_of[name] == thread] for thread in (0, 1)]
        threads = [Thread(list(_deeds(stream, chance, patience))) for stream in streams]
        ranks.append(AsynchronousRank(number, tuple(own), threads))
    return World(members, ranks, chance)


def _deeds(groups: list[str], chance: random.Random, patience: float) -> Iterator[Deed]:
    """patience: how often a thread goes on for a while before it waits for what it has entered."""
    counts = dict.fromkeys(groups, 0)
    outstanding: list[Handle] = []
    order = [group for group in groups for _ in range(PER_GROUP)]
    chance.shuffle(order)
    for group in order:
        counts[group] += 1
        outstanding.append((group, counts[group]))
        yield Deed("enter", outstanding[-1])
        if chance.random() < 0.5:
            yield Deed("compute", seconds=chance.uniform(0.0, LONGEST_S))
        while outstanding and chance.random() > patience:
            yield Deed("wait", outstanding.pop(chance.randrange(len(outstanding))))
    for handle in outstanding:
        yield Deed("wait", handle)


PER_GROUP = 3
"""Collectives of each group."""
