"""Which node's link it is that makes exchanges slow.

The node that all slow groups have in common, and none of the quick ones that need the network;
where that leaves several, the nodes' own signals choose among them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.stragglers.exchanges import SlowExchange
from holdfast_sidecar.stragglers.roll import Circle

OF_LINKS = (Kind.LINK_DOWN, Kind.LINK_DEGRADED, Kind.LINK_FLAPPING)

PASSING = (Kind.LINK_FLAPPING,)
"""Told, and names nobody: a link that comes and goes is as quick as ever while it is there, and no
explanation of exchanges that are slow in each step."""

BY_PATTERN = 0.9
BY_SIGNAL = 0.85
NOT_KNOWN = 0.5

NAMED = 8
"""Nodes, in a line."""

SIGNALS = 4
"""Lines of what nodes say of their links."""


@dataclass(frozen=True)
class Suspect:
    """Who it is, and what says so. `node` empty: it can't be told."""

    node: str
    confidence: float
    evidence: tuple[str, ...]
    slow: tuple[SlowExchange, ...]
    is_inside: bool = False
    """All of it happens within that node: no network is needed."""


def suspect(
    slow: Sequence[SlowExchange], quick: Iterable[Circle], findings: Iterable[Finding]
) -> tuple[Suspect, ...]:
    """Groups with a node in common make one suspect."""
    quick_ones = tuple(quick)
    told = list(findings)
    inside = [one for one in slow if len(one.nodes) == 1]
    across = [one for one in slow if len(one.nodes) > 1]
    found = [_inside(node, inside) for node in sorted({n for one in inside for n in one.nodes})]
    while across:
        chosen = _across(across, quick_ones, told)
        found.append(chosen)
        across = [one for one in across if one not in chosen.slow]
    return tuple(found)


def _inside(node: str, slow: Sequence[SlowExchange]) -> Suspect:
    own = tuple(one for one in slow if node in one.nodes)
    text = f"groups that lie on node {node} alone exchange slower"
    return Suspect(node, BY_PATTERN, (text,), own, is_inside=True)


def _across(
    slow: Sequence[SlowExchange], quick: Sequence[Circle], findings: Sequence[Finding]
) -> Suspect:
    well = frozenset[str]().union(*(one.nodes for one in quick if one.crosses_nodes))
    counts = Counter(node for one in slow for node in one.nodes if node not in well)
    most = max(counts.values(), default=0)
    likely = _alike(sorted(node for node, count in counts.items() if count == most), slow)
    if len(likely) == 1:
        node = likely[0]
        own = tuple(one for one in slow if node in one.nodes)
        text = f"all {len(own)} slow groups have node {node} in common, no quick one has"
        if len(own) == 1 and len(slow) == 1:
            text = f"the other nodes of {own[0].group} are in groups that are as quick as ever"
        return Suspect(node, BY_PATTERN, (text, *_said_of(node, findings)), own)
    if likely:
        shown = [one for one in slow if likely[0] in one.nodes]
        return _by_signals(shown, likely, findings)
    among = sorted({node for one in slow for node in one.nodes})
    return _by_signals(slow, among, findings)


def _alike(likely: Sequence[str], slow: Sequence[SlowExchange]) -> list[str]:
    """The first of them, and those that are in just the same slow groups: no pattern tells these
    apart. Others are another trouble."""
    shows = {node: {one.digest for one in slow if node in one.nodes} for node in likely}
    return [node for node in likely if shows[node] == shows[likely[0]]]


def _by_signals(
    slow: Sequence[SlowExchange], among: Sequence[str], findings: Sequence[Finding]
) -> Suspect:
    said = {node: told for node in among if (told := _said_of(node, findings))}
    weights = {node: weight for node in said if (weight := _weight(node, findings))[0]}
    most = max(weights.values(), default=None)
    heaviest = [node for node, weight in weights.items() if weight == most]
    if len(heaviest) == 1:
        node = heaviest[0]
        own = tuple(one for one in slow if node in one.nodes) or tuple(slow)
        return Suspect(node, BY_SIGNAL, said[node], own)
    names = f"{', '.join(among[:NAMED])}{', …' * (len(among) > NAMED)}"
    which = "signals do not agree" if weights else "no signal tells"
    text = f"it is a link of {names}: {which} which node's"
    heard = [line for node in sorted(said) for line in said[node]]
    return Suspect("", NOT_KNOWN, (text, *heard[:SIGNALS]), tuple(slow))


def _weight(node: str, findings: Sequence[Finding]) -> tuple[int, float]:
    """How many say it, and how sure the surest is."""
    own = [one for one in findings if _is_about(one, node) and one.kind not in PASSING]
    witnesses = len({(one.kind, one.node) for one in own})
    return witnesses, max((one.confidence for one in own), default=0.0)


def _said_of(node: str, findings: Iterable[Finding]) -> tuple[str, ...]:
    return tuple(one.evidence[0] for one in findings if _is_about(one, node) and one.evidence)[:3]


def _is_about(finding: Finding, node: str) -> bool:
    """Round trips are told by whoever sent them, about another; links by their own node."""
    if finding.kind is Kind.PEER_SLOW:
        return finding.what == node
    return finding.kind in OF_LINKS and finding.node == node
