"""The record of a step while it is being made: a list in the order of `page.RECORD_BODY`, which is
packed as it is. Who fills it is the `recorder`."""

from __future__ import annotations

from typing import Any

from holdfast.contract.page import LARGEST_NORM, Phase

_LONGEST_US = 2**32 - 1
"""A duration has 32 bits in the record: 71 minutes. Longer ones are cut to it. So are counts."""

# Where each thing lies in it: plain numbers, for a member of an enumeration costs as much as a
# clock.
_PART = {
    Phase.DATA: 2,
    Phase.FORWARD: 3,
    Phase.BACKWARD: 4,
    Phase.COMMUNICATING: 5,
    Phase.OPTIMIZER: 6,
    Phase.SAVING: 7,
    Phase.IDLE: 8,
    Phase.FINISHED: 8,
    Phase.TRANSFERRING: 9,
    Phase.EVALUATING: 10,
    Phase.COMPILING: 11,
    Phase.STARTING: 0,  # no part of any step, and of no record: the step's number replaces it
    Phase.RESTORING: 0,
}
PARTS = tuple(_PART[phase] for phase in Phase)
OUTSIDE, END, FIRST_PART, OTHER, AFTER_PARTS = 0, 1, 2, 8, 12
LOSS_AT, GRADIENT_AT, FLAGS_AT, COLLECTOR, OVERLAPPED, FIRST_WAIT = 12, 13, 14, 15, 16, 17
FIRST_DEVICE, TOKENS_AT, SQUARES_AT, BACKWARDS = 21, 28, 29, 30
NO_PARTS: tuple[float, ...] = (0,) * (AFTER_PARTS - FIRST_PART)
NO_MORE: tuple[float, ...] = (*(0,) * (SQUARES_AT - FLAGS_AT), 0.0, 0)
NEW_RECORD = (0, 0, *NO_PARTS, 0.0, 0.0, *NO_MORE)

ALWAYS_MEASURED = tuple(
    phase
    in (
        Phase.STARTING,
        Phase.RESTORING,
        Phase.COMPILING,
        Phase.SAVING,
        Phase.EVALUATING,
        Phase.FINISHED,
    )
    for phase in Phase
)
"""Rare, and so long that a step which hid them would mislead."""
PARTS_OF_A_WHOLE = tuple(PARTS[phase] if ALWAYS_MEASURED[phase] else OTHER for phase in Phase)
"""The same for a step whose parts are not measured, but for those."""


def cut(record: list[Any]) -> None:
    """Make what a record has no room for as large as it has; both slices are whole numbers."""
    for first, end in ((FIRST_PART, AFTER_PARTS), (COLLECTOR, SQUARES_AT)):
        record[first:end] = [min(max(number, 0), _LONGEST_US) for number in record[first:end]]
    record[SQUARES_AT] = min(record[SQUARES_AT], LARGEST_NORM)
    # A norm is never negative, but a script may report what it likes.
    record[GRADIENT_AT] = max(record[GRADIENT_AT], -LARGEST_NORM)
