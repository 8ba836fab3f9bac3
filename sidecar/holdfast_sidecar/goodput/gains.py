"""What would bring most: where a run's time goes that could have been productive, largest first.

What it says to do about each is what can be done at all, in words; whether it pays is for people.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from holdfast_sidecar.records.account import MICRO, Account, Category

LEAST_SHARE = 0.005
"""Below half a percent of the run nothing is worth the trouble."""

ADVICE = {
    Category.INIT: "start processes faster: local images and imports, fewer things before the"
    " group is formed",
    Category.SETUP: "building the model, reading the data's index: what the script does each"
    " time it starts",
    Category.WARMUP: "keep compile caches (`TORCHINDUCTOR_CACHE_DIR`) between attempts",
    Category.RESTORE: "snapshots and peer copies are read from memory, checkpoints from storage",
    Category.DATA_WAIT: "more loader workers, prefetching, or data on faster storage",
    Category.SAVING: "save more seldom; a script that lacks the three lines: with them snapshots"
    " are written down behind the loop's back",
    Category.EVALUATING: "evaluate more seldom, on less, or beside the training",
    Category.COMPILING: "shapes that change make torch.compile start over: mark them dynamic, or"
    " pad",
    Category.STRAGGLER: "`holdfast explain --slow` names who is slow and why",
    Category.HANG_UNDETECTED: "hangs are declared by what the job's history allows: see"
    " `holdfast doctor` for the timeouts in force",
    Category.DRAINING: "`policy.evidence_timeout_s`, and what the script does when it is asked"
    " to go",
    Category.RESTART: "fewer failures, spares that wait warm, or a faster start",
    Category.PAUSED: "people's own time",
    Category.UNOBSERVED: "nobody saw the job then: a store or leader that was away for long",
}

LOST = "lost"
"""Name of the gain by losing less work."""

LOST_ADVICE = "save more often: `holdfast checkpoint plan`, snapshots and peer copies cost least"


@dataclass(frozen=True)
class Gain:
    """Without it the run would have been so much shorter."""

    what: str
    """A category's value, or LOST."""
    seconds: float
    share: float
    """Of the run, waiting for nodes left out."""
    advice: str


def gains(account: Account) -> list[Gain]:
    """The largest first; what is too small to speak of is left out."""
    life_us = sum(account.micros.values()) - account.micros.get(Category.QUEUED.value, 0)
    found = (gain for gain in _all(account, life_us) if gain.share >= LEAST_SHARE)
    return sorted(found, key=lambda gain: -gain.seconds)


def _all(account: Account, life_us: int) -> Iterator[Gain]:
    if life_us <= 0:
        return
    for category, advice in ADVICE.items():
        spent = account.micros.get(category.value, 0)
        yield Gain(category.value, spent / MICRO, spent / life_us, advice)
    yield Gain(LOST, account.lost_us / MICRO, account.lost_us / life_us, LOST_ADVICE)
