"""Errors of an NVSwitch (SXid) that are fatal by the lists of NVIDIA and gpud.

Only for lines that don't say so themselves: the driver writes `Fatal` or `Non-fatal` into the
first line of each, and that word counts: 11004, 12028 and 19084 are not always fatal. NVSwitches
of Blackwell systems log none of them.
"""

from __future__ import annotations

from collections.abc import Mapping

FATAL_SXIDS: Mapping[int, str] = {
    11001: "an invalid command came in",
    11004: "an incoming packet was not permitted",
    12001: "the switch's crossbar ran over on the way out",
    12022: "two bits were lost on the way to the output",
    12024: "two bits were lost at the output",
    12028: "a request on its way out had no privilege",
    14017: "a request's time ran out in the switch",
    19047: "two bits of a header were lost",
    19084: "a heartbeat of a multicast engine did not come",
    20034: "a link's training ended in a fault",
    22003: "a link's controller halted",
    24007: "a request's source was not answered in time",
}


def is_fatal_by_table(sxid: int) -> bool:
    """Whether it is, for a line that does not say."""
    return sxid in FATAL_SXIDS


def meaning_of(sxid: int) -> str:
    """In a few words; of one that is not listed, that it is not."""
    return FATAL_SXIDS.get(sxid, "an error of the NVSwitch")
