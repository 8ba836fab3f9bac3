"""Why a collective does not complete, who is to blame for it, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Cause(str, Enum):
    """Why a collective does not complete."""

    ABSENT = "absent"  # the culprits have not entered it, and wait for nobody
    PARTED = "parted"  # the culprits entered another collective in its place
    FINISHED = "finished"  # the culprits ended without entering it
    CROSSED = "crossed"  # the culprits wait for each other, in different groups or messages
    MUTE = "mute"  # all others have entered it; the culprits can't be asked
    ARRIVED = "arrived"  # all have entered the same one: nobody's doing, but the transport's


HOPELESS = frozenset({Cause.PARTED, Cause.FINISHED, Cause.CROSSED})
"""What can never complete, whatever any rank does next: positive evidence of a hang."""


MINORITY = 0.95
"""Sureness that who differs from all others is to blame."""


USUAL = 0.8
"""The same where two sides are of one size, and one does what the group's past makes one expect."""


NOT_THERE = 0.9
"""The same of a rank that all others wait for while it waits for nobody."""


NOT_ANSWERING = 0.7
"""The same of one that can't be asked, when all that can be have arrived."""


COUNTED = 0.5
"""The same by our own count of calls from Python, which sees no collective that DDP makes."""


@dataclass(frozen=True)
class Arrival:
    """One judgement. Confidence is 0 to 1, of all culprits together."""

    cause: Cause
    culprits: tuple[int, ...]
    waiting: tuple[int, ...]
    """The victims, as far as they are known."""
    confidence: float
    evidence: tuple[str, ...]
    signature: str = ""
    """What is the same when the program does it again; empty: its surroundings may be the cause."""

    may_pass: bool = False
    """Whether some of them may not be waiting at all, or for something that is on its way."""

    @property
    def is_hopeless(self) -> bool:
        """Whether it can never complete."""
        return self.cause in HOPELESS and not self.may_pass
