"""One trouble as it occurred, however many lines and inputs told it; pure."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from holdfast_sidecar.records.findings import Remedy
from holdfast_sidecar.xids.event import FROM_KERNEL_LOG, XidEvent
from holdfast_sidecar.xids.lines import parse_place, parse_severity
from holdfast_sidecar.xids.nvlink import LinkError, parse_link_error
from holdfast_sidecar.xids.table import FALLEN_OFF_THE_BUS, NVLINK5

BURST_S = 5.0
"""Lines of one number on one GPU this close to each other are one trouble: NVML's event comes
within a second of the log's line, and a faulting kernel is told in some twenty lines."""

BURST_MOST_S = 60.0
"""A storm that does not end counts again after this, or it would be one trouble for ever."""

FROM_FIELD = "field"
"""Not an event at all: the driver's recovery action was read and had changed."""


@dataclass(frozen=True)
class Occurrence:
    """Trouble on one GPU or, with `sxid`, on one switch. Times are Unix seconds."""

    pci: str
    number: int
    """XID; 79 as well where the bus was lost without a number. 0 with `sxid`."""
    sxid: int
    first_s: float
    last_s: float
    boot: str
    text: str = ""
    """Its most telling line, as the driver wrote it."""
    sources: frozenset[str] = frozenset()
    is_fatal: bool | None = None
    """As the line says; None where it does not."""
    place: str = ""
    """Where: GPC and TPC, or the link."""
    recovery_action: int | None = None
    episode: int = 0
    """Counts, per GPU, what is told apart by a reset, a reboot, or a long quiet time between."""
    asked: Remedy | None = None
    """What was last judged to be needed for it; kept for what comes after it."""
    is_suppressed: bool = False
    """It was judged to follow from something else."""
    uuid: str = ""
    """The GPU's, or that of one behind the switch; empty until it is known."""
    spared_s: float | None = None
    """When the driver, asked after it, said that the GPU needs nothing: that stays so while the
    driver can't be asked any more. None: it did not say so."""

    @property
    def name(self) -> str:
        """`xid 79`, `sxid 20034`."""
        return f"sxid {self.sxid}" if self.sxid else f"xid {self.number}"

    @property
    def link(self) -> LinkError | None:
        """What its line says of an NVLink."""
        is_link = self.number == 74 or self.number in NVLINK5
        return parse_link_error(self.text) if is_link else None


def occurrence_of(event: XidEvent, boot: str) -> Occurrence:
    """What one event tells."""
    number = event.xid or (0 if event.sxid else FALLEN_OFF_THE_BUS)
    told = Occurrence(
        pci=event.pci,
        number=number,
        sxid=event.sxid,
        first_s=event.at_unix_s,
        last_s=event.at_unix_s,
        boot=boot,
        text=event.text,
        sources=frozenset({event.source}),
        is_fatal=parse_severity(event.text) if event.sxid else None,
        place=parse_place(event.text) if number == 13 else "",
        recovery_action=event.recovery_action,
    )
    link = told.link
    if link is None:
        return told
    place = f"link {link.link}" if link.link >= 0 else ""
    return dataclasses.replace(told, is_fatal=link.is_fatal, place=place)


def is_same(known: Occurrence, told: Occurrence) -> bool:
    """Whether what was just told is trouble that is known already."""
    return (
        (known.pci, known.number, known.sxid) == (told.pci, told.number, told.sxid)
        and known.boot == told.boot
        and known.first_s - BURST_S <= told.first_s <= known.last_s + BURST_S
        and told.first_s - known.first_s <= BURST_MOST_S
    )


def merge(known: Occurrence, told: Occurrence) -> Occurrence:
    """Both told of one trouble: the gravest word counts, and the newest recovery action."""
    is_worse = told.is_fatal is not None and (known.is_fatal is None or told.is_fatal)
    newest = max((known, told), key=lambda one: one.last_s)
    action = newest.recovery_action
    if action is None:
        action = known.recovery_action if told is newest else told.recovery_action
    return dataclasses.replace(
        known,
        first_s=min(known.first_s, told.first_s),
        last_s=max(known.last_s, told.last_s),
        text=_more_telling(known, told, is_worse),
        sources=known.sources | told.sources,
        is_fatal=told.is_fatal if is_worse else known.is_fatal,
        place=known.place or told.place,
        recovery_action=action,
    )


def _more_telling(known: Occurrence, told: Occurrence, is_worse: bool) -> str:
    changed = told.recovery_action is not None and told.last_s >= known.last_s
    from_log = FROM_KERNEL_LOG in told.sources and FROM_KERNEL_LOG not in known.sources
    better = is_worse or from_log or changed or not known.text
    return told.text if told.text and better else known.text
