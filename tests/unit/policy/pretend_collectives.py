"""Ranks that run a program of collectives in several groups, until one does wrong.

A rank enters up to `depth` collectives ahead of the oldest that is not complete, as with DDP's
buckets or on a GPU. A collective is complete once every member has entered the same one.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from dataclasses import dataclass, field

from holdfast_sidecar.records.collectives import (
    CollectiveCall,
    CollectiveState,
    RankTrace,
    out_of_turn,
)

WORLD = 8
GROUPS = {
    "world": tuple(range(WORLD)),
    **{f"tp{n}": (2 * n, 2 * n + 1) for n in range(WORLD // 2)},
    **{f"dp{n}": tuple(range(n, WORLD, 2)) for n in range(2)},
}
CALLS = ("all_reduce x 8", "all_reduce x 512", "all_gather", "broadcast x 3", "reduce_scatter")


@dataclass(frozen=True)
class Fault:
    """What one rank does wrong at its collective number `at`, counted over all its groups."""

    kind: str
    """`absent`: stops before it; `mute`: the same, and can't be asked; `skip`: leaves it out;
    `other`: comes with another collective."""
    rank: int
    at: int


Entered = tuple[str, int, str]
"""Group, number in it, what."""


@dataclass
class Running:
    """One rank: what it has to do, and what it has entered."""

    rank: int
    todo: list[tuple[str, str]]
    entered: list[Entered] = field(default_factory=list)
    pending: list[Entered] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def advance(self, arrived: Counter[Entered], depth: int) -> bool:
        """Enter what comes next, if it may."""
        self.pending = [call for call in self.pending if arrived[call] < len(GROUPS[call[0]])]
        if len(self.entered) == len(self.todo) or len(self.pending) >= depth:
            return False
        group, what = self.todo[len(self.entered)]
        self.counts[group] += 1
        call = (group, self.counts[group], what)
        self.entered.append(call)
        self.pending.append(call)
        arrived[call] += 1
        return True


def make_program(seed: int, steps: int) -> list[tuple[str, str]]:
    """A few collectives per step, the same in each: sharding inside, replicas at the end."""
    chance = random.Random(seed)
    kinds = ["tp", "dp", "world"]
    step = [(chance.choice(kinds), chance.choice(CALLS)) for _ in range(chance.randint(3, 7))]
    return step * steps


def of_rank(program: list[tuple[str, str]], rank: int) -> list[tuple[str, str]]:
    """The groups that this rank is in, by their names."""
    own = {"world": "world", "tp": f"tp{rank // 2}", "dp": f"dp{rank % 2}"}
    return [(own[kind], what) for kind, what in program]


def run(program: list[tuple[str, str]], fault: Fault, depth: int) -> dict[int, RankTrace]:
    """What all ranks tell once nobody can go on; of whoever is through nothing is pending."""
    ranks = [Running(rank, of_rank(program, rank)) for rank in range(WORLD)]
    todo = ranks[fault.rank].todo
    if fault.kind == "skip":
        del todo[fault.at]
    elif fault.kind == "other":
        todo[fault.at] = (todo[fault.at][0], "all_to_all")
    else:
        del todo[fault.at :]
    arrived: Counter[Entered] = Counter()
    while sum(one.advance(arrived, depth) for one in ranks):
        pass
    mute = fault.rank if fault.kind == "mute" else -1
    return {
        one.rank: RankTrace(mute, groups=_groups_of(mute)) if one.rank == mute else _trace(one)
        for one in ranks
    }


def _groups_of(rank: int) -> dict[str, int]:
    return {name: len(members) for name, members in GROUPS.items() if rank in members}


def _trace(me: Running) -> RankTrace:
    order = [f"{group} {what}" for group, _, what in me.entered]
    turn = out_of_turn(order[: me.entered.index(me.pending[0]) + 1]) if me.pending else -1
    return RankTrace(
        rank=me.rank,
        answered=True,
        groups=_groups_of(me.rank),
        standings=[_standing(group, me) for group in me.counts],
        is_whole=True,
        out_of_turn=turn,
        is_overdue=bool(me.pending),
        stands=True,
    )


def _standing(group: str, me: Running) -> CollectiveState:
    calls = [(number, what) for name, number, what in me.entered if name == group]
    waits = [CollectiveCall(number, what) for name, number, what in me.pending if name == group]
    return CollectiveState(
        group=group,
        backend="gloo",
        title=group,
        entered=len(calls),
        completed=waits[0].number - 1 if waits else len(calls),
        pending=waits[:3],
        history="".join(_digest(what) for _, what in calls)[-4 * 48 :],
    )


def _digest(text: str) -> str:
    return f"{zlib.crc32(text.encode()) & 0xFFFF:04x}"
