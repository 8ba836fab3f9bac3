"""What all nodes of a job must have in common, and the refusal of one that differs.

The first node of a run claims; a later one compares. A claim holds for one run: it names the
attempt that had ended when it was made, so a later end leaves it behind, and it binds nobody any
more. What a run leaves behind that nobody could end is replaced once nothing in it moves.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from holdfast.contract import environment
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.plan import TERMINAL, Plan
from holdfast_sidecar.records.reports import AgentReport, NodeReport
from holdfast_sidecar.store.protocol import CURRENT, Section, Store, View

WATCH_S = 3.0
"""How long a claim that differs is watched for signs of life, or for an ended run's sidecars to
leave: ten heartbeats. Paid only when the job's name was used before with other settings."""

AFTER = "after"
"""Beside the settings in a claim: the attempt that had ended when it was made."""

READ = (Section.SETTINGS, Section.PLAN)

NEVER_ENDED = -1
"""In place of that attempt where no run of the job had ended, as far as was known."""

Fingerprint = Mapping[str, str | int | float | bool]


@dataclass(frozen=True)
class Claim:
    """What one run of a job claimed, and whether that run is over."""

    text: str
    """As the store holds it."""
    settings: Mapping[str, object]
    is_over: bool


@dataclass(frozen=True)
class LifeWatch:
    """How long to watch for life, and by which clock."""

    clock: Callable[[], float]
    for_s: float


def check_settings_shared(
    store: Store,
    job: str,
    fingerprint: Fingerprint,
    monotonic: Callable[[], float] = time.monotonic,
    watch_s: float = WATCH_S,
) -> None:
    """Claim these settings for the job; BadInput when it lives with other ones.

    May raise StoreUnavailable.
    """
    watch = LifeWatch(monotonic, watch_s)
    while True:
        # Nodes that start at the same moment replace each other's findings: whoever is alive by now
        # may be alive under the very settings that were to be claimed here.
        held = claim_of(store.read(READ))
        if held is not None and held.settings == fingerprint:
            if not held.is_over:
                return
        elif held is not None and held.is_over:
            let_leave(store, held, watch)
        elif held is not None and is_alive(store, held, watch):
            raise BadInput(
                f"job {job!r} is running with other settings "
                f"({differences(held.settings, fingerprint)}): choose another --job, "
                f"end that one first (holdfast stop --job {job}), or give each launch "
                f"a {environment.LAUNCH_ID} of its own where the name is not yours to choose"
            )
        view = store.read(READ)
        if claim_of(view) == held and replaces(store, held, fingerprint, newest_end(view)):
            return


def replaces(store: Store, held: Claim | None, fingerprint: Fingerprint, ended: int) -> bool:
    """Claim in place of `held`; False when somebody else did meanwhile."""
    ours = json.dumps({**fingerprint, AFTER: ended}, sort_keys=True)
    expected = None if held is None else held.text
    return store.claim(Section.SETTINGS, CURRENT, ours, expected) == ours


def claim_of(view: View) -> Claim | None:
    """The claim in a view; one that can't be read claims nothing that anybody could share."""
    text = view.section(Section.SETTINGS).get(CURRENT)
    if text is None:
        return None
    settings = _parse(text)
    after = settings.pop(AFTER, NEVER_ENDED)
    known = after if isinstance(after, int) else NEVER_ENDED
    return Claim(text, settings, is_over=known < newest_end(view))


def newest_end(view: View) -> int:
    """The attempt with which the newest run of the job ended, NEVER_ENDED while it has not.

    Leaders end a run in its plan before any launcher leaves for it.
    """
    plan = decode(Plan, view.section(Section.PLAN).get(CURRENT, ""))
    return plan.attempt if plan is not None and plan.state in TERMINAL else NEVER_ENDED


def is_alive(store: Store, held: Claim, watch: LifeWatch) -> bool:
    """Whether anyone holds the job's lease, or a heartbeat of it moves in time, while the claim is
    the same and its run is not over."""
    view = store.read()
    beats = heartbeats(view)
    end_s = watch.clock() + watch.for_s
    while claim_of(view) == held:
        if view.lease.candidate or heartbeats(view) != beats:
            return True
        left_s = end_s - watch.clock()
        if left_s <= 0:
            return False
        store.wait(min(left_s, 0.2))
        view = store.read()
    return False


def let_leave(store: Store, held: Claim, watch: LifeWatch) -> None:
    """Wait until nobody leads a run that is over: who did would begin the next one by its own
    settings. A sidecar that no launcher started stays, and is not waited for beyond the time."""
    end_s = watch.clock() + watch.for_s
    view = store.read()
    while view.lease.candidate and claim_of(view) == held:
        left_s = end_s - watch.clock()
        if left_s <= 0:
            return
        store.wait(min(left_s, 0.2))
        view = store.read()


def heartbeats(view: View) -> dict[tuple[Section, str], tuple[str, int]]:
    """(section, node) -> (incarnation, beat) of every launcher and sidecar that reported."""
    beats: dict[tuple[Section, str], tuple[str, int]] = {}
    for section, kind in ((Section.AGENTS, AgentReport), (Section.NODES, NodeReport)):
        for node, text in view.section(section).items():
            report = decode(kind, text)
            if isinstance(report, (AgentReport, NodeReport)):
                beats[section, node] = (report.incarnation, report.beat)
    return beats


def differences(theirs: Mapping[str, object], ours: Fingerprint) -> str:
    """`name: theirs, here ours` for whatever differs."""
    names = sorted(
        name for name in {*theirs, *ours} if theirs.get(name, _ABSENT) != ours.get(name, _ABSENT)
    )
    return "; ".join(
        f"{name}: {theirs.get(name, _ABSENT)}, here {ours.get(name, _ABSENT)}" for name in names
    )


_ABSENT = "not set"


def _parse(text: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
