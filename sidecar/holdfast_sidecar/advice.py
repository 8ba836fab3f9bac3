"""What to do next about an incident, by its cause and by what was found. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from holdfast_sidecar.story import Story

OUT_OF_MEMORY = re.compile(r"\bOOM\b|out of memory|oom[-_ ]kill", re.IGNORECASE)

_SIGNALS = (
    (
        re.compile(r"SIGSEGV|SIGBUS|SIGILL|SIGFPE|SIGABRT"),
        "native code failed: read fatal-local-N.txt among the evidence and try the newest versions "
        "of what it names; `ulimit -c unlimited` keeps a core next time",
    ),
    (
        re.compile(r"SIGKILL|exit(ed with)? code 137"),
        "a SIGKILL comes from outside: ask who sent it (the OOM killer is in `dmesg`, a scheduler "
        "in its own log)",
    ),
)

_HANGS = (
    (
        re.compile(r"\(state T\)"),
        "find out who stopped the process (a debugger, `kill -STOP`, a frozen cgroup)",
    ),
    (
        re.compile(r"which loads for it, (was ended|exited)"),
        "a loader's worker died: its traceback is in the rank's output, or it was short of memory "
        "(`dmesg`)",
    ),
    (
        re.compile(r"entered .+ as no\. \d+ of|skipped|out of turn|ended without having entered"),
        "the ranks took different ways through the script: look for a collective behind a "
        "condition that is not the same on all of them (a rank's number, a batch that only some "
        "have)",
    ),
    (
        re.compile(r"every member has entered"),
        "every rank is where it should be: look at the network between them (links, counters, "
        "NCCL_DEBUG=INFO)",
    ),
)
"""What the evidence of a hang says of its kind."""

_BY_CAUSE = {
    "crash": (
        "read the traceback in the output of the rank that is to blame; those of its peers are of "
        "its death",
    ),
    "hang": (
        "read the stack of the one to blame beside those of its peers: the line it stands in is "
        "what to mend (a lock, a loader, a collective that the others don't enter)",
    ),
    "stall": (
        "silence alone proves nothing: where this phase may take so long (an evaluation, an "
        "upload), raise stall.act_after_s",
    ),
    "data_stall": (
        "look at the storage that the loader reads from, and at its number of workers: the ranks "
        "themselves are well",
    ),
    "node_lost": (
        "look at the node itself (power, console, network): Holdfast goes on without it, and takes "
        "it back when a launcher joins from there",
    ),
    "node_left": ("its launcher's log says why it left; start it again to have it back",),
    "agent_restarted": ("its launcher's log says why it ended before",),
    "preempted": (
        "nothing is broken: when it is started again, by a requeue or by hand, it resumes where "
        "it was saved",
    ),
    "stop": ("nothing is broken: when it is started again it resumes from what was saved",),
    "nonfinite": (
        "look at the batch and the learning rate of that step; `holdfast checkpoint list` shows "
        "which checkpoints are good",
    ),
    "spike": ("look at the batches of those steps; a spike that heals needs nothing",),
}

_STOPPED = (
    "mend what is named above before starting it again: Holdfast gave up because starting it again "
    "did not help, or could not"
)

_WITHHELD = {
    "observe": "set sidecar.mode=act (`holdfast attach --mode act`) to have it done",
    "suggest": "set sidecar.mode=act to have it done",
    "paused": "`holdfast resume` has it done",
}

_OPEN = "it is not over yet: `holdfast status` shows what is waited for"


def advise(story: Story) -> list[str]:
    """What a person should do now, most urgent first; empty when there is nothing to do."""
    return list(_advice(story))


def _said(table: Iterable[tuple[re.Pattern[str], str]], reasons: str) -> Iterator[str]:
    return (line for pattern, line in table if pattern.search(reasons))


def _advice(story: Story) -> Iterator[str]:
    if story.decided == "stop" and story.cause not in ("preempted", "stop"):
        yield _STOPPED
    elif story.decided in _WITHHELD and story.lost_s is None:
        yield (
            "nothing is done by itself now: end the rank that is to blame, so that its launcher "
            f"notices; {_WITHHELD[story.decided]}"
        )
    elif not story.is_over:
        yield _OPEN
    reasons = " ".join([*story.reasons, story.signature])
    if story.cause == "crash" and OUT_OF_MEMORY.search(reasons):
        yield (
            "it needs more memory than it may have: a smaller batch, fewer loader workers, or a "
            "higher limit"
        )
    elif story.cause == "crash" and (told := list(_said(_SIGNALS, reasons))):
        yield from told
    else:
        yield from _said(_HANGS, reasons) if story.cause in ("hang", "stall") else ()
        yield from _BY_CAUSE.get(story.cause, ())
    if story.confidence < 0.5 and story.cause in ("crash", "hang", "stall"):
        yield "who is to blame is a guess: compare the stacks of all ranks"
