"""Which of a rank's slots may be overwritten, so that all ranks always have one snapshot in common.

Pure. A snapshot exists when every rank sealed it; a rank knows that only of those it asked about.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

PATIENT_SKIPS = 8
PATIENCE_S = 5.0
"""A verdict that is still out after both will not come: some rank never took that step. Ranks that
accumulate gradients are apart by seconds, and void too early only costs the snapshot."""


@dataclass(frozen=True)
class Known:
    """What one rank knows of its snapshots."""

    sealed: tuple[int | None, ...]
    """Per slot: the step that is whole in it; None: empty, torn or being written."""
    existing: int | None = None
    """The newest step that all ranks are known to have sealed."""
    void: frozenset[int] = frozenset()
    """Steps that never will exist: the verdict on them is void."""
    held: frozenset[int] = frozenset()
    """Steps that an order keeps: being written down, or copied to another node."""
    busy: int | None = None
    """The slot into which a copy is under way."""


def free_slots(known: Known) -> list[int]:
    """Slots that may be overwritten now, the best first.

    A step goes if it is older than one that exists, or void. Everything else may be the newest that
    some other rank knows to exist, and the only one that all have in common.
    """
    ranked = [
        (-2 if step is None else -1 if step in known.void else step, slot)
        for slot, step in enumerate(known.sealed)
        if slot != known.busy and _may_go(known, step)
    ]
    return [slot for _, slot in sorted(ranked)]


def _may_go(known: Known, step: int | None) -> bool:
    if step is None:
        return True
    if step in known.held:
        return False
    if len(known.sealed) == 1:
        return True  # nothing is promised with one slot: what it holds is only for being written
    return step in known.void or (known.existing is not None and step < known.existing)


def undecided(known: Known) -> list[int]:
    """Sealed steps whose verdict is not known and matters, the newest first: if that exists, the
    older ones need not be asked about."""
    floor = -1 if known.existing is None else known.existing
    return sorted(
        {step for step in known.sealed if step is not None and step > floor} - known.void,
        reverse=True,
    )


def settled(known: Known) -> int | None:
    """The newest step up to which all is decided: of this rank's own, those newer than the one that
    exists are void. None: it has sealed nothing."""
    if waits := undecided(known):
        return waits[-1] - 1
    return max((step for step in known.sealed if step is not None), default=None)


def exists(known: Known, step: int) -> Known:
    """All ranks sealed this step; verdicts on older ones no longer matter."""
    newest = step if known.existing is None else max(step, known.existing)
    return replace(
        known, existing=newest, void=frozenset(s for s in known.void if s >= newest) - {step}
    )


def is_void(known: Known, step: int) -> Known:
    """This step will never exist."""
    return replace(known, void=known.void | {step})


def overwriting(known: Known, slot: int) -> Known:
    """A copy into this slot begins; what was in it is gone."""
    return replace(_with(known, slot, None), busy=slot)


def sealed(known: Known, slot: int, step: int) -> Known:
    """The copy into this slot is whole."""
    return replace(_with(known, slot, step), busy=None)


def found(known: Known, slot: int, step: int | None) -> Known:
    """A slot was looked into: another file may have taken its place."""
    return _with(known, slot, step)


def given_up(known: Known) -> Known:
    """The copy under way failed; its slot is torn, and free."""
    return replace(known, busy=None)


def has_waited(skips: int, waited_s: float) -> bool:
    """Whether a step may be declared void that stands in the way of newer ones."""
    return skips >= PATIENT_SKIPS and waited_s >= PATIENCE_S


def _with(known: Known, slot: int, step: int | None) -> Known:
    kept = list(known.sealed)
    kept[slot] = step
    steps = frozenset(s for s in kept if s is not None)
    return replace(known, sealed=tuple(kept), void=known.void & steps)
