"""What a part in trouble needs before it is used again: five classes, from mild to harsh."""

from __future__ import annotations

from enum import Enum


class Remedy(str, Enum):
    """Sorted by `severity`, not by name."""

    NONE = "none"  # it is told and counted
    RESTART_APP = "restart_app"  # ranks start again in place; the node is not blamed
    RESET_GPU = "reset_gpu"  # once no process is on it
    REBOOT_NODE = "reboot_node"
    REPLACE = "replace"  # blamed and kept outside; a spare takes its place

    @property
    def severity(self) -> int:
        """0 for none up to 4 for replace."""
        return _SEVERITY[self]

    @property
    def next(self) -> Remedy:
        """The next harsher one, for when this one did not last."""
        return tuple(Remedy)[min(self.severity + 1, len(Remedy) - 1)]

    @property
    def blames_hardware(self) -> bool:
        """Whether the part itself is at fault, and must not be used before it was mended."""
        return self.severity >= Remedy.RESET_GPU.severity


_SEVERITY = {remedy: severity for severity, remedy in enumerate(Remedy)}


def parse_remedy(word: str) -> Remedy:
    """The remedy of this name; none of an empty one. One that is new to us asks for the most."""
    if not word:
        return Remedy.NONE
    try:
        return Remedy(word)
    except ValueError:
        return Remedy.REPLACE


def harsher(one: Remedy, other: Remedy) -> Remedy:
    """Whichever asks for more."""
    return max(one, other, key=lambda remedy: remedy.severity)
