"""What the driver itself says a GPU needs, and whether that is about this XID. Pure."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast_sidecar.components.xid.catalog import (
    FALLEN_OFF_THE_BUS,
    NOTHING,
    NVLINK5,
    RECOVERY_ACTION_CHANGED,
    FollowUp,
    XidEntry,
    action_of,
    entry_of,
)
from holdfast_sidecar.components.xid.history import (
    SETTLE_S,
    EnergyMark,
    History,
    Occurrence,
    RecoveryWord,
    newest_word,
)
from holdfast_sidecar.records.findings import Remedy

# What comes again within a day: hardware gets the next harsher remedy, programs a test. Pure.

AGAIN_S = 24 * 3600.0
"""Same GPU, same remedy within this time: it did not last. gpud asks for an inspection after two
reboots for one XID."""

TIMES = 3
"""A program's fault so often on one GPU while the others are clean is worth a test of the GPU;
once or twice is what a bug does that happens to strike there."""

TIMES_IN_ONE_PLACE = 2
"""In the same GPC and TPC twice is enough: a bug strikes every rank's GPU in the same place."""

APART_S = 60.0
"""Faults of one program end come together: a kernel's fault is told as 31 and 13 at once."""


def escalate(remedy: Remedy, one: Occurrence, earlier: Sequence[Occurrence]) -> tuple[Remedy, str]:
    """What it takes now, and why; the same remedy where it happens for the first time.

    earlier: what was judged of the same GPU or switch.
    """
    if not remedy.blames_hardware:
        return remedy, ""
    before = [other for other in earlier if is_again(one, other)]
    alike = [other for other in before if other.number == one.number]
    harsher = entry_of(one.number).on_repeat
    if harsher is not None and alike:
        return harsher, f"{one.name} came back within 24 h"
    if one.number == 74 and one.place and any(other.place == one.place for other in alike):
        return Remedy.REPLACE, f"{one.place} failed before within 24 h"
    asked = {other.asked for other in before}
    tried = remedy
    while tried in asked and tried is not Remedy.REPLACE:
        tried = tried.next
    if tried is remedy:
        return remedy, ""
    return tried, f"{remedy.value} was asked for before within 24 h and did not last"


def is_again(one: Occurrence, other: Occurrence) -> bool:
    """Whether the other was an earlier trouble, and not an earlier part of the same."""
    is_other = other.episode != one.episode and not other.is_suppressed
    return is_other and one.first_s - other.last_s <= AGAIN_S


def reason_to_check(one: Occurrence, everything: Iterable[Occurrence]) -> str:
    """Why the GPU should be tested after a program's fault; empty: there is no reason."""
    if FollowUp.CHECK_GPU not in entry_of(one.number).follow_ups:
        return ""
    faults = [other for other in everything if _is_programs(other, one)]
    if any(other.pci != one.pci for other in faults):
        return ""
    in_place = [o for o in faults if one.place and (o.number, o.place) == (13, one.place)]
    if _times(in_place) >= TIMES_IN_ONE_PLACE:
        return f"xid 13 in {one.place} again within 24 h, and on no other GPU"
    times = _times(faults)
    if times >= TIMES:
        return f"{times} programs failed on this GPU within 24 h, and on no other"
    return ""


def _is_programs(other: Occurrence, one: Occurrence) -> bool:
    entry = entry_of(other.number)
    return (
        FollowUp.CHECK_GPU in entry.follow_ups
        and not other.is_suppressed
        and not other.sxid
        and one.last_s - other.last_s <= AGAIN_S
    )


def _times(faults: Sequence[Occurrence]) -> int:
    """How often, where what comes together counts once."""
    times, until_s = 0, float("-inf")
    for fault in sorted(faults, key=lambda one: one.first_s):
        times += int(fault.first_s - until_s > APART_S)
        until_s = max(until_s, fault.last_s)
    return times


# Which XIDs merely follow from something else: another XID, or the end of the job. Pure.

SYMPATHETIC = frozenset({43, 45, 94, 95})
"""What the driver says of programs and memory once something else has gone wrong."""

ROOTS = frozenset({48, 63, 64, 79, 119, 120, 140}) | NVLINK5
"""What they follow from, when it occurred first on the same GPU."""

WINDOW_S = 60.0
"""A faulting GPU's programs are cleaned up within seconds, a node's worth of them within a minute
(77 healthy nodes were flagged by one job's XID 45s; NVSentinel, pull request 1629)."""

OF_TEARDOWN = frozenset({13, 31, 43, 45})
"""What a program may cause while it is ended from outside."""

TEARDOWN_S = 60.0
"""A launcher waits 30 s between its two signals, and the driver cleans up after the second."""


def root_of(one: Occurrence, earlier: Iterable[Occurrence]) -> Occurrence | None:
    """What this one follows from; None: it stands for itself.

    earlier: what was judged of the same GPU. An uncontained memory error (95) keeps its reset
    unless the root asks for as much: a row that was noted for remapping (63) asks for nothing, and
    the memory would be used again.
    """
    if one.number not in SYMPATHETIC:
        return None
    for other in earlier:
        is_root = other.number in ROOTS and _comes_first(other, one)
        asked = other.asked or Remedy.NONE
        if is_root and (one.number != 95 or asked.blames_hardware):
            return other
    return None


def is_of_teardown(one: Occurrence, teardowns: Iterable[float]) -> bool:
    """Whether the launcher had just begun to end the ranks."""
    return one.number in OF_TEARDOWN and any(
        began_s <= one.first_s <= began_s + TEARDOWN_S for began_s in teardowns
    )


def _comes_first(other: Occurrence, one: Occurrence) -> bool:
    return other.boot == one.boot and one.first_s - other.last_s <= WINDOW_S


# What XIDs are judged by besides themselves: the GPUs' state, the attempt, the launcher.


@dataclass(frozen=True)
class GpuState:
    """What one GPU said of itself, as far as it matters here; None: it does not say."""

    model: str = ""
    is_mig: bool = False
    action: int | None = None
    """Field 230: what the driver says it needs."""
    remap_failed: bool | None = None
    """Its own flag: a memory row could not be replaced."""
    energy_joules: float | None = None
    """Spent since the driver was loaded."""
    read_s: float = 0.0
    """When it said so, Unix seconds."""

    @property
    def resets_by_reboot(self) -> bool:
        """Whether a reset does not do for its memory, which takes a reboot.

        So on A100 without MIG, by AWS's health check (remedies for XIDs 64 and 95).
        """
        return not self.is_mig and any(name in self.model for name in ("A100", "A800"))


@dataclass(frozen=True)
class XidContext:
    """The node at one moment. Times are Unix seconds."""

    now_s: float
    boot: str = ""
    gpus: Mapping[str, GpuState] = field(default_factory=dict)
    """By PCI address."""
    driver_branch: int = 0
    """550 of 550.54.15; 0: not known."""
    teardowns: tuple[float, ...] = ()
    """When the launcher began to end ranks of this node."""
    attempt_since_s: float | None = None
    """When the ranks that run now began; None: there are none."""


def parse_driver_branch(version: str) -> int:
    """The first number of a driver's version; 0 where there is none."""
    first = version.partition(".")[0]
    return int(first) if first.isascii() and first.isdigit() else 0


# What a number asks for on one GPU: by the table, by its own line, by the GPU's flags. Pure.


def by_table(one: Occurrence, entry: XidEntry, gpu: GpuState) -> tuple[Remedy, tuple[str, ...]]:
    """What the number asks for, on this GPU, by its line and by the GPU's own flags."""
    if one.number in NVLINK5:
        return _by_line(one)
    remedy, why = entry.remedy, [entry.note] if entry.note else []
    if one.number == 64 and gpu.remap_failed is not None:
        remedy = Remedy.REPLACE if gpu.remap_failed else Remedy.RESET_GPU
        why = [f"the GPU's flag says that remapping {'failed' if gpu.remap_failed else 'works'}"]
    if one.number in (64, 95) and remedy is Remedy.RESET_GPU and gpu.resets_by_reboot:
        remedy = Remedy.REBOOT_NODE
        why.append("on an A100 without MIG that takes a reboot")
    if one.link is not None:
        why.append(one.link.told)
    return remedy, tuple(why)


def _by_line(one: Occurrence) -> tuple[Remedy, tuple[str, ...]]:
    told = (one.link.told,) if one.link is not None else ()
    if one.is_fatal is None:
        return Remedy.NONE, (*told, "whether it is fatal was not told; the driver's word decides")
    return Remedy.RESET_GPU if one.is_fatal else Remedy.NONE, told


def is_worn_out(one: Occurrence, gpu: GpuState) -> bool:
    """The recovery action says how to get it going again, this flag that it will not last."""
    return one.number == 64 and bool(gpu.remap_failed)


# What happened to one GPU or switch within a day, looked up once per judgement; pure.


@dataclass(frozen=True)
class FaultCase:
    """One GPU's, or one switch's."""

    pci: str
    ones: tuple[Occurrence, ...]
    """In the order of their times."""
    boot: str
    """This boot."""
    newest_episode: int
    word: RecoveryWord | None
    """What the driver last said the GPU needs, in this boot."""
    cleared_s: float
    """When it last took that back."""
    reloaded_s: float
    """When its driver was last seen to have been loaded anew."""
    times: Mapping[str, int]
    """Name -> how often."""

    def is_cleared(self, one: Occurrence) -> bool:
        """Whether the driver has since taken back what the GPU needed."""
        return self.cleared_s > one.last_s

    def is_reset(self, one: Occurrence) -> bool:
        """Whether its driver was loaded anew since, which resets it."""
        return self.reloaded_s > one.last_s

    def is_current(self, one: Occurrence) -> bool:
        """Whether it may still be going on; what was judged of all else stands."""
        is_newest = one.boot == self.boot and one.episode == self.newest_episode
        return is_newest and not self.is_cleared(one)

    def word_of_episode(self, one: Occurrence) -> RecoveryWord | None:
        """What the driver asked for while this lasted; None: nothing."""
        for other in self.ones:
            if other.episode == one.episode and other.recovery_action:
                return RecoveryWord(other.recovery_action, other.last_s, other.first_s)
        return None


def cases_of(history: History, boot: str) -> Iterator[FaultCase]:
    """One for each address that has trouble, in the order of the addresses."""
    by_pci: dict[str, list[Occurrence]] = defaultdict(list)
    for one in history.occurrences:
        by_pci[one.pci].append(one)
    for pci, ones in sorted(by_pci.items()):
        yield FaultCase(
            pci=pci,
            ones=tuple(sorted(ones, key=lambda one: one.first_s)),
            boot=boot,
            newest_episode=max(one.episode for one in ones),
            word=newest_word(ones, boot),
            cleared_s=history.cleared.get(pci, float("-inf")),
            reloaded_s=history.reloaded.get(pci, float("-inf")),
            times=Counter(one.name for one in ones),
        )


CONFIRM_S = 3.0
"""So long the driver has to say what a GPU needs, where it usually does, before the table's word
ends a job: two polls. It writes XID 154 within milliseconds."""


SPOKEN_S = 10.0
"""What the driver asks for this soon after an XID, or before it, is about it: it does so within
milliseconds, and where only field 230 tells, within a poll or two of a slow driver. What comes
later is not about a program's fault, nor about what happened before these ranks began."""


def by_driver(
    one: Occurrence, asked: Remedy, case: FaultCase, scene: XidContext
) -> tuple[Remedy | None, str]:
    """What the driver says instead; None: nothing, or nothing about this."""
    word = driver_word(one, case, scene)
    wants_nothing = word is None or word.action == NOTHING
    if wants_nothing and asked.blames_hardware and spared_since_s(one, case, scene) is not None:
        # The GPU is fine, by the driver; the program that met the error is dead all the same.
        return Remedy.RESTART_APP, "the driver says that the GPU needs nothing"
    if word is None:
        return None, ""
    action = action_of(word.action)
    text = f"the driver asks for {action.name}"
    if one.number == RECOVERY_ACTION_CHANGED:
        return action.remedy, text
    is_spoken_of = asked is not Remedy.NONE or one.number in NVLINK5
    if word.action != NOTHING:
        is_late = not asked.blames_hardware and word.since_s > one.last_s + SPOKEN_S
        is_other = action.remedy is Remedy.NONE or not is_spoken_of or is_late
        return (None, "") if is_other else (action.remedy, text)
    return None, ""


def spared_since_s(one: Occurrence, case: FaultCase, scene: XidContext) -> float | None:
    """When the driver, asked after this, said that the GPU needs nothing; None: it did not.

    It is asked anew once more is told of the same trouble.
    """
    if one.spared_s is not None and _is_after(one.spared_s, one):
        return one.spared_s
    if one.number == FALLEN_OFF_THE_BUS:  # who reads 0 then was not told by the GPU
        return None
    word = driver_word(one, case, scene)
    if word is None or word.action != NOTHING or not _is_after(word.at_s, one):
        return None
    return word.at_s if _is_linked(one.number, scene) else None


def _is_after(at_s: float, one: Occurrence) -> bool:
    return at_s >= one.last_s + SETTLE_S


def driver_word(one: Occurrence, case: FaultCase, scene: XidContext) -> RecoveryWord | None:
    """The newest of what the log told and what was read; of what is over, what was told then."""
    if one.asked is None and not case.is_current(one):
        return case.word_of_episode(one)
    told, gpu = case.word, scene.gpus.get(one.pci)
    if gpu is None or gpu.action is None:
        return told
    if told is not None and gpu.read_s < told.at_s + SETTLE_S:
        return told
    asks_still = told is not None and NOTHING not in (told.action, gpu.action)
    return RecoveryWord(gpu.action, gpu.read_s, told.since_s if told and asks_still else gpu.read_s)


def _is_linked(number: int, scene: XidContext) -> bool:
    """Whether the driver sets a recovery action for this number at all; one whose branch is not
    known is not relied upon."""
    return 0 < entry_of(number).linked_since <= scene.driver_branch


def is_sure(one: Occurrence, case: FaultCase, scene: XidContext) -> bool:
    """Whether the driver has spoken, or would not, or has had its time."""
    gpu = scene.gpus.get(one.pci)
    if gpu is None or gpu.action is None or not _is_linked(one.number, scene):
        return True
    word = driver_word(one, case, scene)
    has_spoken = word is not None and word.action != NOTHING
    return has_spoken or scene.now_s - one.first_s >= CONFIRM_S


# Whether a GPU was reset since its last trouble, where no recovery action tells: its count of
# energy began anew, as it does when the driver is loaded. Pure.
#
# Drivers before R565 take nothing back, and no other number of theirs shows a reset.

SHARE = 0.5
"""Of what had been counted. A count that began anew is near 0; one that merely came by another way
of asking, or that a GPU in trouble tells wrong by a little, is not."""


def take_energy(history: History, gpus: Mapping[str, GpuState], boot: str) -> History:
    """The history after the GPUs (by PCI address) were read. What a GPU has counted is marked at
    the first reading after its trouble; one that answers no more has no mark: nothing follows."""
    marks, reloaded = dict(history.marks), dict(history.reloaded)
    for pci, gpu in gpus.items():
        newest_s = max((o.last_s for o in history.of(pci) if o.boot == boot), default=None)
        if newest_s is None or not gpu.energy_joules or gpu.read_s <= newest_s + SETTLE_S:
            continue
        mark = marks.get(pci)
        if mark is None or mark.at_s <= newest_s:
            marks[pci] = EnergyMark(gpu.energy_joules, gpu.read_s)
        elif gpu.energy_joules < SHARE * mark.joules:
            marks[pci], reloaded[pci] = EnergyMark(gpu.energy_joules, gpu.read_s), gpu.read_s
    if marks == history.marks:
        return history
    return dataclasses.replace(history, marks=marks, reloaded=reloaded)
