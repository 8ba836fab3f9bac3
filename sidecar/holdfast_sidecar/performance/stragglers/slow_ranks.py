"""Which node's link it is that makes exchanges slow.

The node that all slow groups have in common, and none of the quick ones that need the network;
where that leaves several, the nodes' own signals choose among them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from holdfast_sidecar.performance.stragglers.causes import UNKNOWN_LINK, Named, advise
from holdfast_sidecar.performance.stragglers.exchanges import SlowExchange
from holdfast_sidecar.performance.stragglers.frame import Excess, StepFrame
from holdfast_sidecar.performance.stragglers.groups import Circle
from holdfast_sidecar.performance.stragglers.placement import RankPlace
from holdfast_sidecar.performance.stragglers.step_model import StepModel
from holdfast_sidecar.performance.stragglers.trouble import SlownessTrouble, lasts
from holdfast_sidecar.performance.stragglers.what_if import as_its_peers
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.steps import SlowCause

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
class SlowSuspect:
    """Who it is, and what says so. `node` empty: it can't be told."""

    node: str
    confidence: float
    evidence: tuple[str, ...]
    slow: tuple[SlowExchange, ...]
    is_inside: bool = False
    """All of it happens within that node: no network is needed."""


def suspect(
    slow: Sequence[SlowExchange], quick: Iterable[Circle], findings: Iterable[Finding]
) -> tuple[SlowSuspect, ...]:
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


def _inside(node: str, slow: Sequence[SlowExchange]) -> SlowSuspect:
    own = tuple(one for one in slow if node in one.nodes)
    text = f"groups that lie on node {node} alone exchange slower"
    return SlowSuspect(node, BY_PATTERN, (text,), own, is_inside=True)


def _across(
    slow: Sequence[SlowExchange], quick: Sequence[Circle], findings: Sequence[Finding]
) -> SlowSuspect:
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
        return SlowSuspect(node, BY_PATTERN, (text, *_said_of(node, findings)), own)
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
) -> SlowSuspect:
    said = {node: told for node in among if (told := _said_of(node, findings))}
    weights = {node: weight for node in said if (weight := _weight(node, findings))[0]}
    most = max(weights.values(), default=None)
    heaviest = [node for node, weight in weights.items() if weight == most]
    if len(heaviest) == 1:
        node = heaviest[0]
        own = tuple(one for one in slow if node in one.nodes) or tuple(slow)
        return SlowSuspect(node, BY_SIGNAL, said[node], own)
    names = f"{', '.join(among[:NAMED])}{', …' * (len(among) > NAMED)}"
    which = "signals do not agree" if weights else "no signal tells"
    text = f"it is a link of {names}: {which} which node's"
    heard = [line for node in sorted(said) for line in said[node]]
    return SlowSuspect("", NOT_KNOWN, (text, *heard[:SIGNALS]), tuple(slow))


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


# Troubles of links: exchanges that got slower, by the node whose link it is.

SHORTEST = 0.1
"""Of a step, what is left without what the exchange takes longer: they are means over different
steps."""


def slow_links(
    suspects: Iterable[SlowSuspect],
    frame: StepFrame,
    places: Mapping[int, RankPlace],
    step_s: float,
) -> list[SlownessTrouble]:
    """One for each that is suspected. Where nobody can be named, it is about all members.

    Ranks of one node that compute on its processors have no link between them: what their
    exchanges take is the processors' time, and theirs alone to be short of.
    """
    return [
        _of_one(one, places, frame.step, step_s)
        for one in suspects
        if not one.is_inside or _has_device(one, frame)
    ]


def _has_device(suspect: SlowSuspect, frame: StepFrame) -> bool:
    members = {rank for one in suspect.slow for rank in one.ranks}
    return any(frame.lines[rank].clock_permille for rank in members if rank in frame.lines)


def _of_one(
    suspect: SlowSuspect, places: Mapping[int, RankPlace], step: int, step_s: float
) -> SlownessTrouble:
    worst = max(suspect.slow, key=lambda one: one.costs_us)
    members = sorted({rank for one in suspect.slow for rank in one.ranks})
    own = [rank for rank in members if suspect.node and places[rank].node == suspect.node]
    cause = SlowCause.GPU_LINK if suspect.is_inside else SlowCause.LINK
    text = (
        f"the exchange of {worst.group} takes {worst.exchange_us / 1e3:.1f} ms of a step, "
        f"{worst.usual_us / 1e3:.1f} ms by {worst.against}, and no rank comes later to it"
    )
    advice = advise(cause) if suspect.node else UNKNOWN_LINK
    since = min(one.since_step for one in suspect.slow)
    return SlownessTrouble(
        ranks=tuple(own or members),
        node=suspect.node,
        role="",
        named=Named(cause, suspect.confidence, (text, *suspect.evidence), advice, "communicating"),
        slowdown=_slowdown(worst.costs_us, 1e6 * step_s),
        confidence=suspect.confidence,
        since_step=since,
        is_persistent=lasts(since, step, step_s),
        accounts=(f"link {suspect.node or worst.digest}",),
        costs_us=worst.costs_us,
        group=worst.group,
        blames_ranks=False,
    )


def _slowdown(costs_us: float, step_us: float) -> float:
    """By how much the step is longer, as for a slow rank. The exchange itself may take ten times as
    long where it was short; that is told as evidence."""
    return costs_us / max(step_us - costs_us, SHORTEST * step_us, 1.0)


# Troubles of single ranks, put together where they are their host's.

OF_HOSTS = frozenset(
    {SlowCause.CPU_QUOTA, SlowCause.CPU_CONTENTION, SlowCause.MEMORY_PRESSURE, SlowCause.STORAGE}
)
"""Ranks of one node that are slow for the same one of these are one trouble: the host's."""

MOST_SINGLE = 8
"""Ranks with more work than others, told one by one; beyond, they are one trouble of all."""


def slow_ranks(
    excesses: Sequence[Excess],
    named: Mapping[int, Named],
    places: Mapping[int, RankPlace],
    model: StepModel,
) -> list[SlownessTrouble]:
    """All whose cause was named."""
    known = [one for one in excesses if one.rank in named and one.rank in places]
    uneven = sum(named[one.rank].cause is SlowCause.UNEVEN_WORK for one in known)
    groups: dict[object, list[Excess]] = {}
    for one in known:
        cause, node = named[one.rank].cause, places[one.rank].node
        key: object = one.rank
        if cause in OF_HOSTS:
            key = (cause, node)
        elif cause is SlowCause.UNEVEN_WORK and uneven > MOST_SINGLE:
            key = cause
        groups.setdefault(key, []).append(one)
    return [_of_group(group, named, places, model) for group in groups.values()]


def _of_group(
    group: Sequence[Excess],
    named: Mapping[int, Named],
    places: Mapping[int, RankPlace],
    model: StepModel,
) -> SlownessTrouble:
    worst = max(group, key=lambda one: one.own_us - one.peers_us)
    nodes = {places[one.rank].node for one in group}
    roles = {one.role for one in group}
    ranks = tuple(sorted(one.rank for one in group))
    return SlownessTrouble(
        ranks=ranks,
        node=nodes.pop() if len(nodes) == 1 else "",
        role=roles.pop() if len(roles) == 1 else "",
        named=named[worst.rank],
        slowdown=beyond_peers(worst, named[worst.rank].cause),
        confidence=max(one.confidence for one in group),
        since_step=min(one.since_step for one in group),
        is_persistent=any(one.is_persistent for one in group),
        accounts=tuple(f"rank {rank}" for rank in ranks),
        quick={rank: us for one in group for rank, us in as_its_peers(model, one).items()},
    )


def beyond_peers(excess: Excess, cause: SlowCause) -> float:
    """Of a rank that was given more work, what that makes of its time; else what it is slow by."""
    if cause is not SlowCause.UNEVEN_WORK:
        return excess.slowdown
    return excess.own_us / max(1.0, excess.usual_us) - 1
