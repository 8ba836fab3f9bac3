"""What each GPU's trouble asks for, and who is to blame: the rules, over plain data; pure.

The history of a day and the scene of now go in; verdicts come out, and the history with what was
asked for written down, since repetition is judged by that.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from holdfast_sidecar.components.xid.catalog import (
    XidEntry,
    action_of,
    entry_of,
    is_fatal_by_table,
    meaning_of,
)
from holdfast_sidecar.components.xid.checks import FaultOwner, XidVerdict
from holdfast_sidecar.components.xid.history import (
    FROM_FIELD,
    SETTLE_S,
    History,
    Occurrence,
    with_judged,
)
from holdfast_sidecar.components.xid.rules import (
    SPOKEN_S,
    WINDOW_S,
    FaultCase,
    GpuState,
    XidContext,
    by_driver,
    by_table,
    cases_of,
    driver_word,
    escalate,
    is_of_teardown,
    is_sure,
    is_worn_out,
    reason_to_check,
    root_of,
    spared_since_s,
)
from holdfast_sidecar.records.findings import Remedy, harsher

TOLD_S = 300.0
"""How long something that needs no mending is told: long enough to be scraped and read."""

NEWEST = 4
"""Of one kind of trouble of one GPU only so many are judged anew at each tick: a storm of a day is
one verdict, and what was judged of the older part stands."""


@dataclass(frozen=True)
class Judgement:
    """Verdicts, by GPU and trouble, and the history that knows of them."""

    verdicts: tuple[XidVerdict, ...]
    history: History


def judge(history: History, scene: XidContext) -> Judgement:
    """Everything that is not over yet."""
    first = _judge_once(history, scene)
    # Repetition leaves out what only followed from something else, which has to be known by then.
    return first if first.history is history else _judge_once(first.history, scene)


def _judge_once(history: History, scene: XidContext) -> Judgement:
    verdicts: list[XidVerdict] = []
    changed: dict[int, Occurrence] = {}
    for case in cases_of(history, scene.boot):
        newest: dict[str, XidVerdict] = {}
        for one, noted, verdict in _judge_case(case, history, scene):
            if noted != one:
                changed[id(one)] = noted
            if _is_open(one, verdict, case, scene):
                newest[verdict.name] = _harsher(newest.get(verdict.name), verdict)
        verdicts += newest.values()
    return Judgement(tuple(verdicts), with_judged(history, changed))


def _judge_case(
    case: FaultCase, history: History, scene: XidContext
) -> Iterator[tuple[Occurrence, Occurrence, XidVerdict]]:
    """Each trouble in its order, so that what came first is known to what followed."""
    earlier: list[Occurrence] = []
    fresh = _to_judge(case, scene)
    for one in case.ones:
        noted = one
        if id(one) in fresh:
            verdict = _verdict(one, case, earlier, history, scene)
            if one.asked is None or case.is_current(one):
                noted = dataclasses.replace(
                    one,
                    asked=verdict.remedy,
                    is_suppressed=verdict.is_suppressed,
                    spared_s=spared_since_s(one, case, scene),
                )
            yield one, noted, verdict
        earlier.append(noted)


def _to_judge(case: FaultCase, scene: XidContext) -> set[int]:
    """What was not judged so far, and the newest of what may be told; each by its `id`."""
    chosen, counts = set[int](), Counter[str]()
    for one in reversed(case.ones):
        is_told = one.boot == scene.boot and (
            one.asked is None or one.asked.blames_hardware or scene.now_s - one.last_s <= TOLD_S
        )
        counts[one.name] += is_told
        if one.asked is None or (is_told and counts[one.name] <= NEWEST):
            chosen.add(id(one))
    return chosen


def _verdict(
    one: Occurrence,
    case: FaultCase,
    earlier: Sequence[Occurrence],
    history: History,
    scene: XidContext,
) -> XidVerdict:
    plain = _plain_verdict(one, case, scene)
    root = root_of(one, earlier)
    if root is not None:
        why = f"follows {root.name} on the same GPU"
        return dataclasses.replace(_suppressed(plain, why), root=root.name)
    if is_of_teardown(one, scene.teardowns):
        return _suppressed(plain, "the ranks were being ended")
    if one.is_suppressed:
        return _suppressed(plain, "it was found to follow from something else")
    if one.sxid:
        verdict = _judge_switch(one, plain, scene)
    else:
        verdict = _judge_xid(one, plain, case, history, scene)
    switch = _switch_trouble(one, history)
    if switch is not None and verdict.blame is FaultOwner.GPU:
        text = f"{switch.name} of the switch {switch.pci} near it: the switch is looked at first"
        verdict = dataclasses.replace(verdict, blame=FaultOwner.SWITCH, why=(*verdict.why, text))
    remedy, reason = escalate(verdict.remedy, one, earlier)
    if reason:
        verdict = dataclasses.replace(verdict, remedy=remedy, why=(*verdict.why, reason))
    return _when_it_acts(one, verdict, case, scene)


def _plain_verdict(one: Occurrence, case: FaultCase, scene: XidContext) -> XidVerdict:
    """What is so whatever is made of it."""
    entry = entry_of(one.number)
    return XidVerdict(
        pci=one.pci,
        name=one.name,
        meaning=meaning_of(one.sxid) if one.sxid else entry.meaning,
        remedy=Remedy.NONE,
        blame=FaultOwner.NOBODY,
        why=(),
        text=one.text,
        first_s=one.first_s,
        last_s=one.last_s,
        times_24h=case.times[one.name],
        number=one.number,
        follow_ups=() if one.sxid else entry.follow_ups,
        is_event=one.sources != {FROM_FIELD},
        suspects=tuple(sorted(scene.gpus)) if one.sxid else (one.pci,),
    )


def _suppressed(verdict: XidVerdict, why: str) -> XidVerdict:
    return dataclasses.replace(verdict, is_suppressed=True, why=(why,))


def _judge_switch(one: Occurrence, verdict: XidVerdict, scene: XidContext) -> XidVerdict:
    """A fatal one makes every GPU behind the switch suspect; the rest is told."""
    is_fatal, why = one.is_fatal, "its line says that it is fatal"
    if is_fatal is None and scene.now_s - one.first_s >= SETTLE_S:
        is_fatal, why = is_fatal_by_table(one.sxid), "fatal by NVIDIA's list"
    if not is_fatal:
        why = "it is not fatal" if is_fatal is False else "whether it is fatal is not known yet"
        return dataclasses.replace(verdict, why=(why,), suspects=())
    text = "all GPUs behind the switch must be reset, and the fabric manager restarted"
    return dataclasses.replace(
        verdict, remedy=Remedy.RESET_GPU, blame=FaultOwner.SWITCH, why=(why, text)
    )


def _judge_xid(
    one: Occurrence, verdict: XidVerdict, case: FaultCase, history: History, scene: XidContext
) -> XidVerdict:
    entry = entry_of(one.number)
    gpu = scene.gpus.get(one.pci, GpuState())
    asked, why = by_table(one, entry, gpu)
    remedy = asked
    driver, reason = by_driver(one, asked, case, scene)
    if driver is not None and not is_worn_out(one, gpu):
        remedy, why = driver, (*why, reason)
    check = reason_to_check(one, history.occurrences) if remedy is Remedy.RESTART_APP else ""
    if check:
        why = (*why, check)
    return dataclasses.replace(
        verdict,
        remedy=remedy,
        why=why,
        blame=_blame(entry, harsher(asked, remedy), check),
        check=bool(check),
    )


def _blame(entry: XidEntry, asked: Remedy, check: str) -> FaultOwner:
    """Whose fault it is, by what it is: a driver for which new ranks are enough after it says
    nothing of that. asked: the harsher of what the table and the driver ask for."""
    if asked.blames_hardware or entry.is_hardware:
        return FaultOwner.GPU
    return FaultOwner.APPLICATION if entry.is_application and not check else FaultOwner.NOBODY


def _switch_trouble(one: Occurrence, history: History) -> Occurrence | None:
    """An SXid near an NVLink error of a GPU."""
    if one.number != 74:
        return None
    near = (
        other
        for other in history.occurrences
        if other.sxid and other.boot == one.boot and abs(other.first_s - one.first_s) <= WINDOW_S
    )
    return next(near, None)


def _when_it_acts(
    one: Occurrence, verdict: XidVerdict, case: FaultCase, scene: XidContext
) -> XidVerdict:
    word = driver_word(one, case, scene)
    action = None if word is None else action_of(word.action)
    is_marked = action is not None and action.remedy.blames_hardware
    since_s = scene.attempt_since_s
    is_old = since_s is not None and one.last_s < since_s
    if is_old and is_marked and word is not None and since_s is not None:
        # Still marked: it is as ill as it was, unless only what these ranks did came to that.
        is_old = word.since_s > max(since_s, one.last_s + SPOKEN_S)
    waits = action is not None and is_marked and not action.ends_work
    urgent = verdict.remedy.blames_hardware and not waits and is_sure(one, case, scene)
    return dataclasses.replace(verdict, is_old=is_old, is_urgent=urgent and not is_old)


def _is_open(one: Occurrence, verdict: XidVerdict, case: FaultCase, scene: XidContext) -> bool:
    """Whether there is still something to tell."""
    if one.boot != scene.boot:
        return False
    if case.is_cleared(one) and verdict.remedy is not Remedy.REPLACE:
        return False
    if case.is_reset(one) and verdict.remedy is Remedy.RESET_GPU:
        return False
    if verdict.remedy.blames_hardware:
        return True
    return scene.now_s - one.last_s <= TOLD_S


def _harsher(known: XidVerdict | None, verdict: XidVerdict) -> XidVerdict:
    if known is None or verdict.remedy.severity >= known.remedy.severity:
        return verdict
    return known
