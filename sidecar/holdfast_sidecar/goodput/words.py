"""What categories, phases and costs are called where people read of them: in reports, in the
terminal and on the page. Pure."""

from __future__ import annotations

from holdfast_sidecar.records.account import PENDING, Category, Phase

CATEGORIES = {
    Category.PRODUCTIVE.value: "productive steps",
    Category.DATA_WAIT.value: "waiting for data",
    Category.SAVING.value: "saving",
    Category.EVALUATING.value: "evaluating",
    Category.COMPILING.value: "compiling",
    Category.STRAGGLER.value: "waiting for somebody slow",
    Category.WARMUP.value: "first steps",
    Category.INIT.value: "processes start",
    Category.SETUP.value: "before the first step",
    Category.RESTORE.value: "reading state back",
    Category.HANG_UNDETECTED.value: "standing, not yet seen",
    Category.DRAINING.value: "ending ranks",
    Category.RESTART.value: "restarting",
    Category.PAUSED.value: "paused by a person",
    Category.QUEUED.value: "waiting for nodes",
    Category.UNOBSERVED.value: "nobody saw",
    Category.OTHER.value: "other",
}
"""In the order in which they are shown: the good one first, then what training itself spends, then
starts, then faults."""

PHASES = {
    Phase.DETECT.value: "detect",
    Phase.DRAIN.value: "drain",
    Phase.RENDEZVOUS.value: "rendezvous",
    Phase.RESTORE.value: "restore",
    Phase.FIRST_STEP.value: "first step",
}

PENDING_WORDS = "steps under way"
"""What waits to be split."""


IN_VIEWS = {**CATEGORIES, PENDING: PENDING_WORDS}
"""All that a live view's account may have."""


def name_category(name: str) -> str:
    """A category of a view, which a newer sidecar may have told."""
    return IN_VIEWS.get(name, name)


def name_gain(what: str) -> str:
    """What a gain is about."""
    return CATEGORIES.get(what, "work done again" if what == "lost" else what)
