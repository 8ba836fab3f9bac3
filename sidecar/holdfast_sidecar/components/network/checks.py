"""Links that are gone for good, that come and go, or that run slower than they could.

A flap inside the window is told and is no fault; a drop is. Only links that were up at some time
since this sidecar started count: an unplugged spare port is normal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from holdfast_sidecar.components.machine import KernelEvents
from holdfast_sidecar.components.network.readings import FabricReading, LinkStory, RateWindow
from holdfast_sidecar.config.settings import FabricSettings
from holdfast_sidecar.records.findings import Finding, Kind, Moment, Remedy

FLAP_TOLD_S = 300.0
"""A single flap is told for so long: several scrapes see it, and nobody acts on it."""

SURE_OF_ONE = 0.5
SURE_OF_MANY = 0.9
SURE_IT_IS_SLOW = 0.7
"""A fact, but not that it will get worse: nothing is saved for it (`policy/precaution.py`)."""

ALONE = "the job has one node only: none of its work goes over a link"

LOOK_AT = "look at its cable, its transceiver and the switch's port"

FEWEST_LIKES = 2
"""Other links of the same board that must agree on a rate before one that is slower is odd."""


def find_link_troubles(
    links: Iterable[LinkStory], settings: FabricSettings, moment: Moment
) -> Iterator[Finding]:
    """Lost, flapping and slowed-down links of this node."""
    known = list(links)
    for link in known:
        if link.down_since_s is not None:
            if moment.now_s - link.down_since_s >= settings.drop_s:
                yield _lost(link, moment)
        else:
            yield from _slow(link, known, settings, moment)
        yield from _flapping(link, settings, moment)


def find_missing_ports(
    fabric: FabricReading | None, settings: FabricSettings, moment: Moment
) -> Iterator[Finding]:
    """Fewer RDMA ports than settings want, beside those that are told as lost by themselves."""
    if fabric is None or moment.now_s - fabric.since_s < settings.drop_s:
        return
    missing = settings.ports - sum(link.was_up for link in fabric.links.values())
    if missing > 0:
        text = f"{missing} of {settings.ports} RDMA ports have not been active at all"
        yield _finding(Kind.LINK_DOWN, moment, "ports", [text], remedy=Remedy.REPLACE)


def told_only(findings: Iterable[Finding]) -> list[Finding]:
    """The same on a node whose job never has another one: nothing of it goes over a link, so that a
    lost one (a workstation's cable) is no reason to end it, to blame the node or to keep it out."""
    return [
        replace(one, remedy=Remedy.NONE, evidence=[*one.evidence, ALONE])
        if one.kind is Kind.LINK_DOWN
        else one
        for one in findings
    ]


def _lost(link: LinkStory, moment: Moment) -> Finding:
    """What mends it (cable, optics, the switch's port) is outside of the node, so a reboot brings
    the node back with the same dead link: it is kept outside until somebody looked."""
    down_s = moment.now_s - (link.down_since_s or 0.0)
    how = "has had no link" if link.is_there else "has been gone from the machine"
    text = f"{link.name} {how} for {down_s:.0f} s, after it had one"
    told = [text, LOOK_AT] if link.is_there else [text]
    finding = _finding(Kind.LINK_DOWN, moment, link.name, told, 0.9, Remedy.REPLACE)
    finding.evidence.extend(_flaps_told(link))
    return finding


def _flaps_told(link: LinkStory) -> list[str]:
    count = len(link.flaps_s)
    return [f"it had come back {count} times in the 12 hours before"] if count else []


def _flapping(link: LinkStory, settings: FabricSettings, moment: Moment) -> Iterator[Finding]:
    flaps = len(link.flaps_s)
    is_often = flaps >= max(1, settings.flaps)
    if not flaps or not (is_often or moment.now_s - link.flaps_s[-1] < FLAP_TOLD_S):
        return
    text = f"{link.name} lost its link and found it again"
    if flaps > 1:
        text += f", {flaps} times in 12 hours"
    confidence = SURE_OF_MANY if is_often else SURE_OF_ONE
    yield _finding(Kind.LINK_FLAPPING, moment, link.name, [text], confidence)


def _slow(
    link: LinkStory, all_links: Collection[LinkStory], settings: FabricSettings, moment: Moment
) -> Iterator[Finding]:
    """A link that was trained anew may climb in steps, so it is given the window for it."""
    if not link.was_up or not link.rate or moment.now_s - link.rate_since_s < settings.drop_s:
        return
    best, why = max(
        (link.best_rate, "did before"),
        (_usual_rate(link, all_links), "others of its kind do"),
        (settings.rate_bytes_per_s if link.look.kind else 0.0, "settings expect"),
        key=lambda pair: pair[0],
    )
    if link.rate < best:
        text = f"{link.name} runs at {_gigabits(link.rate)} where it {why}: {_gigabits(best)}"
        if why != "did before":
            text = f"{link.name} runs at {_gigabits(link.rate)}, {why} {_gigabits(best)}"
        yield _finding(Kind.LINK_DEGRADED, moment, link.name, [text], SURE_IT_IS_SLOW)


def _usual_rate(link: LinkStory, all_links: Iterable[LinkStory]) -> float:
    """What most of the others on the same kind of board do; 0 where too few are alike."""
    rates = [
        other.rate
        for other in all_links
        if other.name != link.name and other.look.kind and other.look.kind == link.look.kind
    ]
    ((rate, count),) = Counter(rates).most_common(1) or [(0.0, 0)]
    return rate if count >= FEWEST_LIKES and count > len(rates) / 2 else 0.0


def _gigabits(rate: float) -> str:
    return f"{rate * 8 / 1e9:g} Gb/s"


def _finding(
    kind: Kind,
    moment: Moment,
    what: str,
    evidence: list[str],
    confidence: float = 0.9,
    remedy: Remedy = Remedy.NONE,
) -> Finding:
    return Finding(
        kind,
        moment.node,
        moment.now_unix_s,
        confidence,
        evidence=evidence,
        what=what,
        remedy=remedy,
    )


# Links whose errors grow: worn optics, a bent fibre, a dying port, before the link is lost.
#
# Out-of-sequence packets are not among them: adaptive routing makes them on healthy fabrics.


@dataclass(frozen=True)
class Limit:
    """How far an error counter may grow within ten minutes, and in how many of them."""

    most: int
    minutes: int
    meaning: str


LIMITS = {
    # A bit error rate of 1e-12, the old limit of ibdiagnet, is 60 in ten minutes at 100 Gb/s. With
    # forward error correction what is counted is left after it, and a healthy link counts none.
    "symbol_error": Limit(60, 2, "bits are lost on the wire"),
    # A retraining stops traffic for milliseconds; one may be a switch that was rebooted.
    "link_error_recovery": Limit(1, 2, "the link is trained anew again and again"),
    "local_link_integrity_errors": Limit(10, 2, "packets arrive broken"),
    "port_rcv_errors": Limit(10, 2, "packets arrive broken"),
    # Flow control makes it impossible on a sound fabric: NVSentinel counts it as fatal at once.
    "excessive_buffer_overrun_errors": Limit(0, 1, "flow control fails"),
    # Each is a queue pair that waited (4 s by NCCL's default) and tried again; seven end it. A
    # node that dies elsewhere makes a burst of them on all its peers: hence two minutes.
    "local_ack_timeout_err": Limit(10, 2, "what was sent is not acknowledged in time"),
    # As above, by EFA's own transport.
    "retrans_timeout_events": Limit(10, 2, "what was sent is not acknowledged in time"),
}
"""Counter -> what is too much. Growth in two separate minutes keeps the burst of one flap out."""


def find_drifting_errors(fabric: FabricReading | None, moment: Moment) -> Iterator[Finding]:
    """Ports of this node whose errors grow."""
    if fabric is None:
        return
    for port, trails in sorted(fabric.grown.items()):
        told = [text for name, trail in trails.items() if (text := _told(name, trail))]
        if told:
            yield Finding(
                Kind.LINK_DEGRADED,
                moment.node,
                moment.now_unix_s,
                0.8,
                evidence=[f"{port}: {text}" for text in told],
                what=f"errors of {port}",
            )


def _told(name: str, trail: RateWindow) -> str:
    limit = LIMITS.get(name)
    if limit is None or trail.growth <= limit.most or trail.minutes_of_growth < limit.minutes:
        return ""
    return f"{name} grew by {trail.growth} in {trail.length_s:.0f} s: {limit.meaning}"


# Network adapters that complain in the kernel's log: too little power, optics too hot, firmware
# that gave up. Commands that the firmware refused are only counted: whoever reads counters of a
# port that belongs to a fabric manager makes them.

ADAPTER_TOLD_S = 600.0
"""After the last line of its kind: the driver repeats them every few minutes while it lasts."""

MEANINGS = {
    "mlx5_power": ("its slot gives too little power, so that it may run slower", 0.6),
    "mlx5_heat": ("its optics are too hot: it may shut the port down", 0.8),
    "mlx5_fatal": ("its firmware does not work any more", 0.9),
}
"""Event -> what it means, and how sure it is that the link suffers from it."""


def find_troubled_adapters(events: KernelEvents | None, moment: Moment) -> Iterator[Finding]:
    """Those of this node that complained lately."""
    if events is None:
        return
    for (name, pci), event in sorted(events.newest.items()):
        if name in MEANINGS and moment.now_unix_s - event.at_unix_s < ADAPTER_TOLD_S:
            meaning, sure = MEANINGS[name]
            yield Finding(
                Kind.LINK_DEGRADED,
                moment.node,
                event.at_unix_s,
                sure,
                evidence=[f"{pci}: {meaning}", event.text],
                what=f"adapter {pci}",
            )
