"""What a sidecar says of one rank's latest steps, short enough to be told of thousands of ranks.

A line covers one block of steps: `stride` of them, a power of two, ending at a multiple of it, so
that the lines of all ranks cover the same steps.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple


class StepLine(NamedTuple):
    """Means over the ordinary steps of a block, microseconds unless a name says otherwise.

    Ordinary are steps in which nothing was saved, evaluated or compiled, and whose parts were
    measured; `steps` of 0 says that the block had none. Its text is all fields, separated by
    blanks; a newer writer may have added some at the end.
    """

    rank: int
    step: int
    """The block's last step."""
    stride: int
    """Steps of the block."""
    steps: int
    """Ordinary ones among them."""
    total: int
    data: int
    transfer: int
    forward: int
    backward: int
    """Own work if `waits_seen`; else with what was waited for others in it."""
    communicating: int
    optimizer: int
    other: int
    waits_seen: int
    """1: `backward` is own work in all of the steps."""
    collector: int
    """Of the parts: Python's garbage collector."""
    overlapped: int
    wait_1: int
    """Of communicating: in the rank's first process group. 0 where it has none."""
    wait_2: int
    wait_3: int
    wait_4: int
    tokens: int
    """Work of a step; 0: not known."""
    squares: int
    """Sum of the squares of its sequences' lengths; 0: not known."""
    work_reported: int
    """1: by the script itself; 0: as seen in its batches."""
    lost: int
    """Saving, evaluating and compiling, per step over all steps of the block."""
    compiled: int
    """Steps of the block in which something was compiled."""
    cpu_permille: int
    """CPU time of the process, thousandths of one core; 0: not known."""
    queued_permille: int
    """Of the time: its main thread was ready to run, and no CPU was free for it."""
    throttled_permille: int
    """Of the time: its cgroup's quota was used up."""
    faults_per_s: int
    """Pages that had to be read from storage."""
    storage_permille: int
    """Of the time: its node's tasks waited for storage (pressure stall, some)."""
    clock_permille: int
    """Its GPU's clock against what it could be; 0: it has none, or it is not known."""
    evaluated: int
    """Of lost: evaluating."""

    @property
    def own_us(self) -> int:
        """Its own work in a step, waiting removed."""
        own = self.data + self.transfer + self.forward + self.optimizer + self.other
        return own + (self.backward if self.waits_seen else 0)

    @property
    def waits(self) -> tuple[int, int, int, int]:
        """What it waited in each of its first process groups."""
        return (self.wait_1, self.wait_2, self.wait_3, self.wait_4)


FIELDS = len(StepLine._fields)

LARGEST = 1 << 64
"""Of all numbers together, which is the cheapest to ask: a page's words have 64 bits, so that what
is beyond was said by no rank, and a float may not hold it."""


def spell(line: StepLine) -> str:
    """The line as it stands in the store."""
    return " ".join(map(str, line))


def parse(text: str) -> StepLine | None:
    """A line from its text; None when it is none."""
    try:
        numbers = list(map(int, text.split()))
    except ValueError:
        return None
    if len(numbers) < FIELDS or abs(sum(numbers)) > LARGEST:
        return None
    return StepLine(*numbers[:FIELDS])


_PLAIN = b"0123456789- "
"""All that a line is written with. int() and JSON's scanner take more, each something else."""


def parse_all(texts: Sequence[str]) -> list[StepLine]:
    """Those of many texts that are lines, in one pass: JSON's scanner reads them at half the price
    of number by number. What it would read otherwise than `parse` is left to that."""
    joined = "],[".join(texts).replace(" ", ",")
    try:
        if " ".join(texts).encode().translate(None, _PLAIN):
            raise ValueError
        rows = json.loads(f"[[{joined}]]")
    except ValueError:
        return [line for text in texts if (line := parse(text)) is not None]
    # As StepLine._make, which would count the fields once more.
    return [
        tuple.__new__(StepLine, row[:FIELDS])
        for row in rows
        if len(row) >= FIELDS and abs(sum(row)) <= LARGEST
    ]
