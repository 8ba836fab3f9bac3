"""What happened on this machine's GPUs within a day; plain data, each step makes a new one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast_sidecar.gpus.recovery import NOTHING
from holdfast_sidecar.xids.event import XidEvent
from holdfast_sidecar.xids.occurrence import (
    BURST_MOST_S,
    FROM_FIELD,
    Occurrence,
    is_same,
    merge,
    occurrence_of,
)
from holdfast_sidecar.xids.table import RECOVERY_ACTION_CHANGED

KEPT_S = 24 * 3600.0
"""Over which repetition counts."""

MOST_KEPT = 512
"""A node with so much trouble needs no finer account; it bounds the file and the tick."""

EPISODE_S = 600.0
"""Trouble of one GPU goes on while it comes at least this often: a GSP that does not answer is
told every few seconds for minutes, and that is one fault, not one that came back."""

SETTLE_S = 1.0
"""A value that was read this soon after an XID may be from just before it."""

LOOK_BACK_S = 2 * BURST_MOST_S
"""Occurrences are kept about in the order of their times: before this there is no match."""


@dataclass(frozen=True)
class Mark:
    """What a GPU had counted of energy, and when it said so."""

    joules: float
    at_s: float


@dataclass(frozen=True)
class History:
    """Oldest first, as it was heard."""

    occurrences: tuple[Occurrence, ...] = ()
    cleared: Mapping[str, float] = field(default_factory=dict)
    """PCI address -> when the driver last took back what the GPU had needed, Unix seconds."""
    marks: Mapping[str, Mark] = field(default_factory=dict)
    """PCI address -> its count of energy at the first reading after its last trouble."""
    reloaded: Mapping[str, float] = field(default_factory=dict)
    """PCI address -> when that count was last seen to have begun anew, Unix seconds."""
    log_boot: str = ""
    log_sequence: int = -1
    """How far the kernel's log of that boot has been heard. By number, since the kernel's clock
    may drift from the others by a minute in a month."""

    def of(self, pci: str) -> tuple[Occurrence, ...]:
        """What happened to this GPU or switch."""
        return tuple(one for one in self.occurrences if one.pci == pci)


@dataclass(frozen=True)
class Word:
    """What the driver said a GPU needs, and when it said so."""

    action: int
    at_s: float
    since_s: float
    """When it began to ask for something, be it for less at first."""


def take_in(history: History, event: XidEvent, boot: str) -> tuple[History, bool]:
    """The history after one more event, and whether it is trouble not known before."""
    told = occurrence_of(event, boot)
    history = _note_cleared(history, told)
    known = history.occurrences
    for place in range(len(known) - 1, -1, -1):
        if known[place].first_s < told.first_s - LOOK_BACK_S:
            break
        if is_same(known[place], told):
            merged = (*known[:place], merge(known[place], told), *known[place + 1 :])
            return dataclasses.replace(history, occurrences=merged), False
    told = dataclasses.replace(told, episode=_episode(history, told))
    return dataclasses.replace(history, occurrences=(*known, told)), True


def take_reading(history: History, actions: Mapping[str, int], at_s: float, boot: str) -> History:
    """The history after field 230 was read: a change is kept as XID 154 would have told it.

    actions: PCI address -> what the GPU says it needs; without those that don't tell.
    """
    for pci, action in actions.items():
        word = last_word(history, pci, boot)
        if action == (NOTHING if word is None else word.action):
            continue
        if word is not None and at_s < word.at_s + SETTLE_S:
            continue  # it was read before the log told the newer value
        text = f"recovery action (field 230) reads {action}"
        event = XidEvent(
            at_s, FROM_FIELD, RECOVERY_ACTION_CHANGED, pci, text, recovery_action=action
        )
        history, _ = take_in(history, event, boot)
    return history


def has_heard(history: History, boot: str, sequence: int) -> bool:
    """Whether this record of the kernel's log was heard before, maybe by another sidecar."""
    return history.log_boot == boot and sequence <= history.log_sequence


def last_word(history: History, pci: str, boot: str) -> Word | None:
    """What the driver last said this GPU needs, in this boot; None: it said nothing."""
    return newest_word(history.of(pci), boot)


def newest_word(ones: Iterable[Occurrence], boot: str) -> Word | None:
    """What the driver last said in this boot, by what happened to one GPU; None: nothing."""
    told = [one for one in ones if one.recovery_action is not None and one.boot == boot]
    if not told:
        return None
    *before, newest = sorted(told, key=lambda one: one.last_s)
    action, since_s = newest.recovery_action or NOTHING, newest.first_s
    for one in reversed(before):
        if NOTHING in (action, one.recovery_action):
            break
        since_s = one.first_s
    return Word(action, newest.last_s, since_s)


def forget_old(history: History, now_s: float) -> History:
    """Without what is older than a day, or from a clock that was ahead."""
    kept = [one for one in history.occurrences if now_s - KEPT_S < one.last_s < now_s + 60.0]
    if len(kept) == len(history.occurrences) and len(kept) <= MOST_KEPT:
        return history
    return dataclasses.replace(history, occurrences=tuple(kept[-MOST_KEPT:]))


def with_judged(history: History, judged: Mapping[int, Occurrence]) -> History:
    """With what was judged of some of them (by `id`) in their place; the same without any."""
    if not judged:
        return history
    occurrences = tuple(judged.get(id(one), one) for one in history.occurrences)
    return dataclasses.replace(history, occurrences=occurrences)


def _note_cleared(history: History, told: Occurrence) -> History:
    """What a recovery action of 0 takes back: only what had been asked for."""
    if told.recovery_action != NOTHING:
        return history
    word = last_word(history, told.pci, told.boot)
    if word is None or word.action == NOTHING:
        return history
    return dataclasses.replace(history, cleared={**history.cleared, told.pci: told.first_s})


def _episode(history: History, told: Occurrence) -> int:
    before = history.of(told.pci)
    if not before:
        return 0
    newest = max(before, key=lambda one: one.last_s)
    is_over = (
        newest.boot != told.boot
        or told.first_s - newest.last_s > EPISODE_S
        or newest.last_s < history.cleared.get(told.pci, float("-inf")) <= told.first_s
        or newest.last_s < history.reloaded.get(told.pci, float("-inf")) <= told.first_s
    )
    return newest.episode + int(is_over)
