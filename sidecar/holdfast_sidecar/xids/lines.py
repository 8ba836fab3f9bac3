"""Reads the NVIDIA driver's lines in the kernel's log; pure, and indifferent to all other lines."""

from __future__ import annotations

import re

from holdfast_sidecar.xids.event import FROM_KERNEL_LOG, XidEvent, is_number

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
