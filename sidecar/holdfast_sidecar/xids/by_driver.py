"""What the driver itself says a GPU needs, and whether that is about this XID. Pure."""

from __future__ import annotations

from holdfast_sidecar.gpus.recovery import NOTHING, action_of
from holdfast_sidecar.records.findings import Remedy
from holdfast_sidecar.xids.case import Case
from holdfast_sidecar.xids.history import SETTLE_S, Word
from holdfast_sidecar.xids.occurrence import Occurrence
from holdfast_sidecar.xids.scene import Scene
from holdfast_sidecar.xids.table import (
    FALLEN_OFF_THE_BUS,
    NVLINK5,
    RECOVERY_ACTION_CHANGED,
    entry_of,
)

CONFIRM_S = 3.0
"""So long the driver has to say what a GPU needs, where it usually does, before the table's word
ends a job: two polls. It writes XID 154 within milliseconds."""


SPOKEN_S = 10.0
"""What the driver asks for this soon after an XID, or before it, is about it: it does so within
milliseconds, and where only field 230 tells, within a poll or two of a slow driver. What comes
later is not about a program's fault, nor about what happened before these ranks began."""


def by_driver(
    one: Occurrence, asked: Remedy, case: Case, scene: Scene
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


def spared_since_s(one: Occurrence, case: Case, scene: Scene) -> float | None:
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


def driver_word(one: Occurrence, case: Case, scene: Scene) -> Word | None:
    """The newest of what the log told and what was read; of what is over, what was told then."""
    if one.asked is None and not case.is_current(one):
        return case.word_of_episode(one)
    told, gpu = case.word, scene.gpus.get(one.pci)
    if gpu is None or gpu.action is None:
        return told
    if told is not None and gpu.read_s < told.at_s + SETTLE_S:
        return told
    asks_still = told is not None and NOTHING not in (told.action, gpu.action)
    return Word(gpu.action, gpu.read_s, told.since_s if told and asks_still else gpu.read_s)


def _is_linked(number: int, scene: Scene) -> bool:
    """Whether the driver sets a recovery action for this number at all; one whose branch is not
    known is not relied upon."""
    return 0 < entry_of(number).linked_since <= scene.driver_branch


def is_sure(one: Occurrence, case: Case, scene: Scene) -> bool:
    """Whether the driver has spoken, or would not, or has had its time."""
    gpu = scene.gpus.get(one.pci)
    if gpu is None or gpu.action is None or not _is_linked(one.number, scene):
        return True
    word = driver_word(one, case, scene)
    has_spoken = word is not None and word.action != NOTHING
    return has_spoken or scene.now_s - one.first_s >= CONFIRM_S
