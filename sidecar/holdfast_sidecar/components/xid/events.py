"""One thing the NVIDIA driver said of a GPU's or a switch's health, as it said it.

Plain data, whichever way it came: not yet understood, nor counted once where it came
by two ways.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast_sidecar.components.gpu.readings import NvmlSilence

FROM_NVML = "nvml"
"""The event came from an NVML event set: no text, but the GPU is sure."""

FROM_KERNEL_LOG = "kmsg"
"""The event was read from the kernel's log: has its text, and may be from before."""


GREATEST = 0xFFFF
"""The driver counts its XIDs in the hundreds; NVML's field for them has 64 bits, and whoever finds
more than 16 of them used reads something else."""


def is_number(xid: int) -> bool:
    """Whether it can be an XID's. 0 is none: events without a number come by the log's lines."""
    return 0 < xid <= GREATEST


@dataclass(frozen=True)
class XidEvent:
    """One event of the driver's.

    `at_unix_s` is when it happened (wall clock), `source` one of "nvml", "kmsg". `xid`
    is 0 where the driver gave no number (a GPU that fell off the bus, a switch's SXid).
    `pci` is as sysfs writes it (`0000:17:00.0`), of the GPU or, with `sxid`, of the
    switch; "" if it was not told. `text` is the raw line. `recovery_action` is what XID
    154 carries, in field 230's numbers; None where the event says nothing of it.
    """

    at_unix_s: float
    source: str
    xid: int
    pci: str
    text: str
    sxid: int = 0
    recovery_action: int | None = None


# Reads the NVIDIA driver's lines in the kernel's log; pure, and indifferent to all other lines.

SIGNS = ("Xid", "fallen off the bus")
"""One of them is in every line that says something here ("SXid" holds the first): a search for
them costs a fraction of a regular expression's, and the log may be in a storm."""

_PCI = r"(?:PCI:)?(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?)"
_XID = re.compile(rf"NVRM: Xid \({_PCI}[^)]*\): (?P<xid>\d+)\b")
_SXID = re.compile(rf"nvidia-nvswitch\d*: SXid \({_PCI}[^)]*\): (?P<sxid>\d+)\b")
_FALLEN = re.compile(rf"NVRM:[^\n]*?\bGPU (?:at )?{_PCI}.*fallen off the bus", re.DOTALL)
_ACTION = re.compile(r"recovery action changed from 0x[0-9a-fA-F]+.*? to (?P<to>0x[0-9a-fA-F]+)")
_SEVERITY = re.compile(r"SXid[^:]*:[^)]*\): \d+, (?P<word>Fatal|Non-fatal)\b", re.IGNORECASE)
_PLACE = re.compile(r"\(GPC (?P<gpc>\d+), TPC (?P<tpc>\d+)")


def parse_line(text: str, at_unix_s: float) -> XidEvent | None:
    """The event that a kernel line tells; None for any other line.

    A GPU that fell off the bus may be told without a number: `xid` is 0 then. A number that can't
    be an XID's tells nothing.
    """
    if not any(sign in text for sign in SIGNS):
        return None
    found = _XID.search(text)
    if found:
        xid = int(found["xid"])
        if not is_number(xid):
            return None
        pci = normal_pci(found["pci"])
        action = parse_recovery_action(text) if xid == 154 else None
        return XidEvent(at_unix_s, FROM_KERNEL_LOG, xid, pci, text, recovery_action=action)
    found = _SXID.search(text)
    if found:
        pci = normal_pci(found["pci"])
        return XidEvent(at_unix_s, FROM_KERNEL_LOG, 0, pci, text, sxid=int(found["sxid"]))
    found = _FALLEN.search(text)
    if found:
        return XidEvent(at_unix_s, FROM_KERNEL_LOG, 0, normal_pci(found["pci"]), text)
    return None


def normal_pci(text: str) -> str:
    """As sysfs writes it, whatever was left out: `0000:17:00` becomes `0000:17:00.0`."""
    domain, bus, rest = text.lower().split(":")
    slot, _, function = rest.partition(".")
    return f"{int(domain, 16):04x}:{bus}:{slot}.{function or '0'}"


def parse_recovery_action(text: str) -> int | None:
    """What XID 154 says the GPU needs from now on; None where it does not say."""
    found = _ACTION.search(text)
    return int(found["to"], 16) if found else None


def parse_severity(text: str) -> bool | None:
    """Whether a switch's error is fatal; None where its line does not say."""
    found = _SEVERITY.search(text)
    return None if found is None else found["word"].lower() == "fatal"


def parse_place(text: str) -> str:
    """Where in the GPU an XID 13 happened, `GPC 7, TPC 2`; empty where it does not say."""
    found = _PLACE.search(text)
    return f"GPC {found['gpc']}, TPC {found['tpc']}" if found else ""


# What an NVLink error's own line says about it: which link, fatal or not, and which kind.

_LINK5 = re.compile(
    r"(?P<unit>[A-Z][A-Z0-9_/]+)\s+(?P<word>Fatal|Nonfatal|Non-fatal)\s+XC\S*\s+i\S*\s+"
    r"Link\s+(?P<link>-?\d+)(?:\s*\(\s*(?P<words>0x[0-9a-fA-F][0-9a-fxA-FX\s]*)\))?"
)
_LINK4 = re.compile(r"detected on link\s+(?P<link>\d+)\s*(?:\((?P<words>[^)]*)\))?")

_FIRST_REGISTER = (
    ((21, 22), "a marginal signal on the link"),
    ((4, 5), "ECC or parity in the link's own memory"),
)
"""Bits of the first register on Hopper and before, and what they say."""


@dataclass(frozen=True)
class LinkError:
    """One NVLink error. `link` is -1 where the line names none."""

    link: int
    unit: str = ""
    is_fatal: bool | None = None
    sub_code: int | None = None
    error_status: int | None = None
    hints: tuple[str, ...] = ()

    @property
    def told(self) -> str:
        """In words."""
        parts = [f"link {self.link}" if self.link >= 0 else "no one link"]
        if self.unit:
            parts.append(f"{self.unit} {'fatal' if self.is_fatal else 'not fatal'}")
        if self.sub_code is not None:
            parts.append(f"sub-code {self.sub_code}")
        if self.error_status is not None:
            parts.append(f"error status {self.error_status:#x}")
        return ", ".join((*parts, *self.hints))


def parse_link_error(text: str) -> LinkError | None:
    """Of XIDs 144 to 150, and of 74; None where the text holds none."""
    found = _LINK5.search(text)
    if found:
        words = _numbers(found["words"] or "")
        return LinkError(
            link=int(found["link"]),
            unit=found["unit"],
            is_fatal=found["word"] == "Fatal",
            sub_code=(words[0] >> 20) & 0x3F if words else None,
            error_status=words[1] if len(words) > 1 else None,
        )
    found = _LINK4.search(text)
    if found:
        return LinkError(int(found["link"]), hints=_hints(_numbers(found["words"] or "")))
    return None


def _numbers(text: str) -> list[int]:
    return [int(word, 16) for word in re.findall(r"0x[0-9a-fA-F]+", text)]


def _hints(registers: list[int]) -> tuple[str, ...]:
    first = registers[0] if registers else 0
    return tuple(text for bits, text in _FIRST_REGISTER if any(first >> bit & 1 for bit in bits))


# What the NVIDIA driver told by itself since the look before.

UNKNOWN_XID = "unknown_xid"
"""An XID by a number that can't be one: told and counted, and nothing follows from it."""


@dataclass(frozen=True)
class DriverEvent:
    """An event of another kind than XID, under the name that `gpu.nvml.event_child` gives it,
    or UNKNOWN_XID."""

    at_unix_s: float
    name: str
    pci: str
    """Empty: not known."""
    data: int


@dataclass(frozen=True)
class GpuEvents:
    """All that came since the look before, and how the waiting stands."""

    xids: tuple[XidEvent, ...] = ()
    others: tuple[DriverEvent, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    """Of the others, by name, since the first that was waited for; 0 of what did not come."""
    listening_to: int | None = None
    """GPUs whose events are waited for; None: nobody waits (no driver, or not yet)."""
    silence: NvmlSilence | None = None
    """The driver does not answer the child that waits."""
    stuck: int = 0
    """Children that waited once, were killed and are not gone."""
