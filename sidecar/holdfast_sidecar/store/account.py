"""One turn of a run's account: what was open is closed, the next is opened, pending time is split.

The arithmetic of it, for the store in memory; on a server scripts.ACCOUNT_TURN does the same on the
server's clock, and a test holds the two together.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from holdfast_sidecar.records.account import CLOSED, MICRO, PENDING, TIMED, Category

UNSEEN_AFTER_US = 10 * MICRO
"""When nobody turned the account for so long, the rest is unobserved. A leader turns it every
second; the next one takes over within 2.5 s of its death, or some 5 s on a server that is new to
it: what lasts longer is no change of leader any more."""

TURNS = "turns"
"""Field: how often the account was turned, from run to run. Of two states of it time alone does not
tell the later one, as a server's clock may be set back."""


@dataclass(frozen=True)
class PhaseFold:
    """An incident is over: its phases become one text, with these words before and after."""

    incident: str
    before: str
    after: str


@dataclass(frozen=True)
class Turn:
    """What the leader has done to the account. Times in microseconds."""

    open: str
    """What is open from now on: a category's value, PENDING or CLOSED."""
    stage: str = ""
    """`incident:phase` of the restart under way from now on."""
    gpus: int = 0
    """By which time is weighted from now on."""
    is_anew: bool = False
    """Another run: forget the one before."""
    is_seen: bool = False
    """The leader watched what was open since the last turn, however long ago that is."""
    base: Mapping[str, str] = field(default_factory=dict)
    """The account as somebody saw it: it is put back where the store is behind it. It is one or the
    other as a whole, or its sums would not be the wall clock any more."""
    moves: tuple[tuple[str, int], ...] = ()
    """(category, amount) of the pending time, in this order, as far as it goes."""
    shares: tuple[tuple[str, int], ...] = ()
    """(category, weight) of what is left of it then; the last one takes what dividing leaves.
    Empty: it stays pending."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Plain fields to be set."""
    folds: tuple[PhaseFold, ...] = ()

    def spell(self) -> str:
        """As the script reads it."""
        return json.dumps(asdict(self), separators=(",", ":"))


def is_behind(held: Mapping[str, str], seen: Mapping[str, str]) -> bool:
    """Whether a store that holds the one lost what made the other: all of it, or the last writes.

    What was turned more seldom, and later, is another account that was begun since.
    """
    if "at" not in held:
        return "at" in seen
    return all(_number(held, name) < _number(seen, name) for name in ("at", TURNS))


def _number(fields: Mapping[str, str], name: str) -> int:
    text = fields.get(name, "")
    return int(text) if text.isdecimal() else -1


def turned(fields: Mapping[str, str], turn: Turn, now_us: int) -> dict[str, str]:
    """The account's fields after this turn. `now_us` is the store's clock."""
    kept = {} if turn.is_anew else dict(fields)
    if is_behind(kept, turn.base):
        kept = dict(turn.base)
    turns = 1 + max(0, _number(fields, TURNS), _number(kept, TURNS))
    if "at" not in kept:
        kept |= {"at": str(now_us), "began": str(now_us)}
    page = _Page(kept)
    page.close(now_us, turn.is_seen)
    page.split(turn)
    for fold in turn.folds:
        page.fold(fold)
    opened = {"open": turn.open, "stage": turn.stage, "gpus": str(turn.gpus)}
    return {**page.fields, **turn.fields, **opened, "at": str(now_us), TURNS: str(turns)}


class _Page:
    """The hash, with the few things that are done to it."""

    def __init__(self, fields: dict[str, str]) -> None:
        self.fields = fields

    def whole(self, name: str) -> int:
        return int(self.fields.get(name, "0"))

    def add(self, name: str, amount: int) -> None:
        if amount:
            self.fields[name] = str(self.whole(name) + amount)

    def credit(self, category: str, amount: int) -> None:
        if category == PENDING:
            self.add(PENDING, amount)
        else:
            self.add(f"s:{category}", amount)
            self.add(f"g:{category}", amount * self.whole("gpus"))

    def close(self, now_us: int, is_seen: bool) -> None:
        passed, is_open = now_us - self.whole("at"), self.fields.get("open", CLOSED)
        if passed < 0 or is_open == CLOSED:
            # The clock was set back, or the run was over: neither is a part of its life.
            self.add("began", passed)
            return
        unseen = 0 if is_seen else max(0, passed - UNSEEN_AFTER_US)
        self.credit(is_open, passed - unseen)
        self.credit(Category.UNOBSERVED.value, unseen)
        if stage := self.fields.get("stage", ""):
            self.add(f"r:{stage}", passed)

    def split(self, turn: Turn) -> None:
        left = self.whole(PENDING)
        for category, amount in turn.moves:
            taken = min(left, amount)
            left -= taken
            self._move(category, taken)
        total = sum(weight for _, weight in turn.shares)
        if total <= 0:
            return
        rest = left
        for category, weight in turn.shares[:-1]:
            # In floating point, as the script: two whole numbers of microseconds lose nothing.
            share = min(rest, int(left * (weight / total)))
            rest -= share
            self._move(category, share)
        self._move(turn.shares[-1][0], rest)

    def _move(self, category: str, amount: int) -> None:
        self.add(PENDING, -amount)
        self.credit(category, amount)

    def fold(self, fold: PhaseFold) -> None:
        names = [f"r:{fold.incident}:{phase.value}" for phase in TIMED]
        times = " ".join(self.fields.pop(name, "0") for name in names)
        self.fields.setdefault(f"i:{fold.incident}", f"{fold.before} {times} {fold.after}")
