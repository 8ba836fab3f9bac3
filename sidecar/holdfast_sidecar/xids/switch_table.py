"""Errors of an NVSwitch (SXid) that are fatal by what NVIDIA's Fabric Manager guide lists.

Only for lines that don't say so themselves: the driver writes `Fatal` or `Non-fatal` into the
first line of each, and that word counts. NVSwitches of Blackwell systems log none of them.
"""

from __future__ import annotations

from collections.abc import Mapping

FATAL_SXIDS: Mapping[int, str] = {
    11001: "a packet arrived where it must not",
    11004: "a packet had no valid way out",
    12001: "an incoming packet failed its check",
    12022: "an incoming packet's memory lost two bits",
    12024: "an outgoing packet's memory lost two bits",
    12028: "a request across the switch was not allowed on its way out",
    14017: "a table of the switch lost two bits",
    19047: "a counter of the switch's flow control failed",
    19084: "a GPU's heartbeat across the switch failed",
    20034: "the training of a link ended in a fault",
    22003: "the controller of the links halted",
    24007: "an answer across the switch did not come in time",
}


def is_fatal_by_table(sxid: int) -> bool:
    """Whether it is, for a line that does not say."""
    return sxid in FATAL_SXIDS


def meaning_of(sxid: int) -> str:
    """In a few words; of one that is not listed, that it is not."""
    return FATAL_SXIDS.get(sxid, "an error of the NVSwitch")
