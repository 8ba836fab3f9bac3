"""As what metrics count an incident. What it was counted as once it stays, though it be known
better later: a counter that falls looks to Prometheus like one that began again, and all of it like
news. Pure.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable

from holdfast_sidecar.decisions.lemon import blames_a_machine
from holdfast_sidecar.records.plan import WITHHELD, Incident


def counted_now(incident: Incident) -> frozenset[str]:
    """`incident CAUSE`, `lost CAUSE` once its loss is known, `withheld WHY`, `blame NODE CAUSE`."""
    counted = set()
    if incident.decided not in WITHHELD:
        # As what it was seen before its hardware was known to be ill is counted, too.
        counted |= {f"incident {cause}" for cause in (incident.cause, incident.seen_as) if cause}
        if incident.recovered_unix_s:
            counted.add(f"lost {incident.cause}")
    if (why := incident.withheld or incident.decided) in WITHHELD:
        counted.add(f"withheld {why}")
    if blames_a_machine(incident):
        counted.add(f"blame {incident.culprit_node} {incident.cause}")
    return frozenset(counted)


def counted_ever(incident: Incident) -> frozenset[str]:
    """With what it was counted as before."""
    return counted_now(incident) | {*incident.counted_before}


def keep_counted(known: Incident | None, better: Incident) -> Incident:
    """The incident as it is known now, with what it was counted as when it was known as `known`."""
    before = frozenset() if known is None else counted_ever(known)
    kept = sorted(before - counted_now(better))
    if kept == better.counted_before:
        return better
    return dataclasses.replace(better, counted_before=kept)


def count(incidents: Iterable[Incident], what: str) -> Counter[str]:
    """How many were ever counted as this (`incident`, `lost`, ...), by what follows the word."""
    named = (one.partition(" ") for incident in incidents for one in counted_ever(incident))
    return Counter(rest for kind, _, rest in named if kind == what)


def taken_back(incidents: Iterable[Incident]) -> Counter[tuple[str, str]]:
    """(node, cause) -> blames that were counted and are not held against anybody any more."""
    gone: Counter[tuple[str, str]] = Counter()
    for incident in incidents:
        for one in {*incident.counted_before} - counted_now(incident):
            kind, _, rest = one.partition(" ")
            if kind == "blame":
                node, _, cause = rest.partition(" ")
                gone[node, cause] += 1
    return gone
