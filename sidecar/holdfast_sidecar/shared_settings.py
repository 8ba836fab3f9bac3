"""What all nodes of a job must have in common, and the refusal of one that differs.

The first node claims; a later one compares. A claim left behind by a job that no longer lives is
replaced.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping

from holdfast_sidecar.bad_input import BadInput
from holdfast_sidecar.coordination.keys import CURRENT, Section
from holdfast_sidecar.coordination.store import Store, View
from holdfast_sidecar.records.agent import AgentReport
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.node import NodeReport

WATCH_S = 3.0
"""How long a claim that differs is watched for signs of life: ten heartbeats. Paid only when the
job's name was left behind by a job with other settings that could not tidy up."""

Fingerprint = Mapping[str, str | int | float | bool]


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
    ours = json.dumps(dict(fingerprint), sort_keys=True)
    held = store.claim(Section.SETTINGS, CURRENT, ours)
    while held != ours:
        if held is not None and is_alive(store, monotonic, watch_s):
            raise BadInput(
                f"job {job!r} is running with other settings ({differences(held, fingerprint)}): "
                f"choose another --job, or end that one first (holdfast stop --job {job})"
            )
        # Another node may have replaced it meanwhile: then that one's claim is compared.
        held = store.claim(Section.SETTINGS, CURRENT, ours, expected=held)


def is_alive(store: Store, monotonic: Callable[[], float], watch_s: float) -> bool:
    """Whether anyone holds the job's lease, or a heartbeat of it moves within `watch_s`."""
    view = store.read()
    beats = heartbeats(view)
    end_s = monotonic() + watch_s
    while not view.lease.candidate and heartbeats(view) == beats:
        left_s = end_s - monotonic()
        if left_s <= 0:
            return False
        store.wait(min(left_s, 0.2))
        view = store.read()
    return True


def heartbeats(view: View) -> dict[tuple[Section, str], tuple[str, int]]:
    """(section, node) -> (incarnation, beat) of every launcher and sidecar that reported."""
    beats: dict[tuple[Section, str], tuple[str, int]] = {}
    for section, kind in ((Section.AGENTS, AgentReport), (Section.NODES, NodeReport)):
        for node, text in view.section(section).items():
            report = decode(kind, text)
            if isinstance(report, (AgentReport, NodeReport)):
                beats[section, node] = (report.incarnation, report.beat)
    return beats


def differences(held: str, fingerprint: Fingerprint) -> str:
    """`name: theirs, here ours` for whatever differs."""
    theirs = _parse(held)
    names = sorted(
        name
        for name in {*theirs, *fingerprint}
        if theirs.get(name, _ABSENT) != fingerprint.get(name, _ABSENT)
    )
    return "; ".join(
        f"{name}: {theirs.get(name, _ABSENT)}, here {fingerprint.get(name, _ABSENT)}"
        for name in names
    )


_ABSENT = "not set"


def _parse(text: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
