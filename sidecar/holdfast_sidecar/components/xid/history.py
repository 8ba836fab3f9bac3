"""What happened on this machine's GPUs within a day; plain data, each step makes a new one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from holdfast_sidecar.components.xid.catalog import (
    FALLEN_OFF_THE_BUS,
    NOTHING,
    NVLINK5,
    RECOVERY_ACTION_CHANGED,
)
from holdfast_sidecar.components.xid.events import (
    FROM_KERNEL_LOG,
    LinkError,
    XidEvent,
    parse_link_error,
    parse_place,
    parse_severity,
)
from holdfast_sidecar.records.findings import Remedy

# One trouble as it occurred, however many lines and inputs told it; pure.

BURST_S = 5.0
"""Lines of one number on one GPU this close to each other are one trouble: NVML's event comes
within a second of the log's line, and a faulting kernel is told in some twenty lines."""

BURST_MOST_S = 60.0
"""A storm that does not end counts again after this, or it would be one trouble for ever."""

FROM_FIELD = "field"
"""Not an event at all: the driver's recovery action was read and had changed."""


@dataclass(frozen=True)
class Occurrence:
    """Trouble on one GPU or, with `sxid`, on one switch. Times are Unix seconds."""

    pci: str
    number: int
    """XID; 79 as well where the bus was lost without a number. 0 with `sxid`."""
    sxid: int
    first_s: float
    last_s: float
    boot: str
    text: str = ""
    """Its most telling line, as the driver wrote it."""
    sources: frozenset[str] = frozenset()
    is_fatal: bool | None = None
    """As the line says; None where it does not."""
    place: str = ""
    """Where: GPC and TPC, or the link."""
    recovery_action: int | None = None
    episode: int = 0
    """Counts, per GPU, what is told apart by a reset, a reboot, or a long quiet time between."""
    asked: Remedy | None = None
    """What was last judged to be needed for it; kept for what comes after it."""
    is_suppressed: bool = False
    """It was judged to follow from something else."""
    uuid: str = ""
    """The GPU's, or that of one behind the switch; empty until it is known."""
    spared_s: float | None = None
    """When the driver, asked after it, said that the GPU needs nothing: that stays so while the
    driver can't be asked any more. None: it did not say so."""

    @property
    def name(self) -> str:
        """`xid 79`, `sxid 20034`."""
        return f"sxid {self.sxid}" if self.sxid else f"xid {self.number}"

    @property
    def link(self) -> LinkError | None:
        """What its line says of an NVLink."""
        is_link = self.number == 74 or self.number in NVLINK5
        return parse_link_error(self.text) if is_link else None


def occurrence_of(event: XidEvent, boot: str) -> Occurrence:
    """What one event tells."""
    number = event.xid or (0 if event.sxid else FALLEN_OFF_THE_BUS)
    told = Occurrence(
        pci=event.pci,
        number=number,
        sxid=event.sxid,
        first_s=event.at_unix_s,
        last_s=event.at_unix_s,
        boot=boot,
        text=event.text,
        sources=frozenset({event.source}),
        is_fatal=parse_severity(event.text) if event.sxid else None,
        place=parse_place(event.text) if number == 13 else "",
        recovery_action=event.recovery_action,
    )
    link = told.link
    if link is None:
        return told
    place = f"link {link.link}" if link.link >= 0 else ""
    return dataclasses.replace(told, is_fatal=link.is_fatal, place=place)


def is_same(known: Occurrence, told: Occurrence) -> bool:
    """Whether what was just told is trouble that is known already."""
    return (
        (known.pci, known.number, known.sxid) == (told.pci, told.number, told.sxid)
        and known.boot == told.boot
        and known.first_s - BURST_S <= told.first_s <= known.last_s + BURST_S
        and told.first_s - known.first_s <= BURST_MOST_S
    )


def merge(known: Occurrence, told: Occurrence) -> Occurrence:
    """Both told of one trouble: the gravest word counts, and the newest recovery action."""
    is_worse = told.is_fatal is not None and (known.is_fatal is None or told.is_fatal)
    newest = max((known, told), key=lambda one: one.last_s)
    action = newest.recovery_action
    if action is None:
        action = known.recovery_action if told is newest else told.recovery_action
    return dataclasses.replace(
        known,
        first_s=min(known.first_s, told.first_s),
        last_s=max(known.last_s, told.last_s),
        text=_more_telling(known, told, is_worse),
        sources=known.sources | told.sources,
        is_fatal=told.is_fatal if is_worse else known.is_fatal,
        place=known.place or told.place,
        recovery_action=action,
    )


def _more_telling(known: Occurrence, told: Occurrence, is_worse: bool) -> str:
    changed = told.recovery_action is not None and told.last_s >= known.last_s
    from_log = FROM_KERNEL_LOG in told.sources and FROM_KERNEL_LOG not in known.sources
    better = is_worse or from_log or changed or not known.text
    return told.text if told.text and better else known.text


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
class EnergyMark:
    """What a GPU had counted of energy, and when it said so."""

    joules: float
    at_s: float


@dataclass(frozen=True)
class History:
    """Oldest first, as it was heard."""

    occurrences: tuple[Occurrence, ...] = ()
    cleared: Mapping[str, float] = field(default_factory=dict)
    """PCI address -> when the driver last took back what the GPU had needed, Unix seconds."""
    marks: Mapping[str, EnergyMark] = field(default_factory=dict)
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
class RecoveryWord:
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


def last_word(history: History, pci: str, boot: str) -> RecoveryWord | None:
    """What the driver last said this GPU needs, in this boot; None: it said nothing."""
    return newest_word(history.of(pci), boot)


def newest_word(ones: Iterable[Occurrence], boot: str) -> RecoveryWord | None:
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
    return RecoveryWord(action, newest.last_s, since_s)


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


# Which occurrences are of the GPUs that this machine has now: an address says too little. Pure.
#
# The file of a day's history may be shared by machines whose GPUs sit at the same addresses, and a
# board may be changed for another within the day.


def of_these_gpus(history: History, uuids: Mapping[str, str], boot: str) -> History:
    """Without what happened to others, and what happened in this boot marked as these GPUs'.

    uuids: PCI address -> UUID of the GPU there; of an address that is missing nothing is decided.
    """
    kept = tuple(_ours(history, uuids, boot))
    if kept == history.occurrences:
        return history
    others = {one.pci for one in history.occurrences} - {one.pci for one in kept}
    cleared = {pci: at_s for pci, at_s in history.cleared.items() if pci not in others}
    return dataclasses.replace(history, occurrences=kept, cleared=cleared)


def _ours(history: History, uuids: Mapping[str, str], boot: str) -> Iterator[Occurrence]:
    everyone = set(uuids.values())
    for one in history.occurrences:
        # A switch has no UUID: it is known by one of the GPUs behind it.
        here = min(everyone, default="") if one.sxid else uuids.get(one.pci, "")
        is_ours = one.uuid == here or (one.sxid and (one.uuid in everyone or one.boot == boot))
        if not here or (one.uuid and is_ours):
            yield one
        elif not one.uuid and one.boot == boot:
            yield dataclasses.replace(one, uuid=here)
