"""An incident in one sentence: who did what, how sure, what was done, what it cost. Pure."""

from __future__ import annotations

import re

from holdfast_sidecar.policy.attached import END, LEAVE
from holdfast_sidecar.policy.blame import LEFT
from holdfast_sidecar.policy.checkpoint_choice import ABOUT_NUMBERS
from holdfast_sidecar.policy.hardware import OF_HARDWARE
from holdfast_sidecar.records.plan import LEFT_ALONE
from holdfast_sidecar.story import Story, whom

_DID = {
    "crash": "crashed",
    "hang": "hung while its peers waited for it",
    "stall": "was silent for longer than its history allows",
    "data_stall": "waited for data for longer than its history allows",
    "gpu": "ran on a GPU that is ill",
    "link": "lost a link",
    "host": "ran on memory that fails",
    "node_lost": "was lost",
    "node_left": "left on its own account",
    "unreachable": "could not reach another",
    "agent_restarted": "got a new launcher",
    "preempted": "was asked to go",
    "straggler": "slowed the job",
    "nonfinite": "computed numbers that are not finite",
    "spike": "computed numbers far from what they had been",
}
"""What the one to blame did; of other causes only the name is known."""

_NOBODYS = {
    "grow": "The job made room for nodes that joined",
    "restart": "Somebody asked for a restart",
    "stop": "Somebody asked for the end of the job",
}
"""Causes that blame nobody."""

OF_NODES = frozenset(
    {"node_lost", "node_left", "unreachable", "agent_restarted", "preempted", "link", "host"}
)
"""Causes for which the whole node answers, whichever ranks it ran."""

_NOT_RESTARTED = {
    "observe": "nothing was done, as the mode for it is observe",
    "suggest": "nothing was done, as the mode for it is suggest",
    "paused": "nothing was done, as the job was paused",
    LEFT_ALONE: "it was seen and left alone",
    LEAVE: "what follows is for whoever launched the job",
    END: "its process was ended for whoever launched the job to notice",
}
"""Decisions after which Holdfast restarts nothing."""

UNDECIDED = "what to do is not decided yet"

_PLACE = re.compile(r"\bin \S+ \([^()]+:\d+\)")
"""`in load_batch (train.py:41)`: where in the code it stood."""

_RANK = re.compile(r"^rank \d+: ")


def sum_up(story: Story) -> str:
    """The verdict, in one sentence."""
    return f"{_accusation(story)}; {_consequence(story)}."


def _accusation(story: Story) -> str:
    if story.cause in _NOBODYS:
        return _NOBODYS[story.cause]
    did = f" {_DID[story.cause]}" if story.cause in _DID else f": {story.cause}"
    reasons = [reason for reason in story.reasons or [story.signature] if reason]
    # Where its ranks stood says nothing about hardware.
    telling = _telling(reasons[:1] if story.cause in OF_HARDWARE else reasons)
    if telling.startswith(LEFT):
        return f"{_subject(story)} {telling} ({story.confidence:.0%} sure)"
    told = f": {telling}" if telling else ""
    return f"{_subject(story)}{did}{told} ({story.confidence:.0%} sure)"


def _subject(story: Story) -> str:
    ranks = [] if story.cause in OF_NODES and story.culprit_node else story.culprit_ranks
    if not ranks and not story.culprit_node:
        return "The job" if story.cause in ABOUT_NUMBERS else "Somebody unknown"
    name = whom(story.culprit_node, ranks)
    return name[0].upper() + name[1:]


def _telling(reasons: list[str]) -> str:
    """The reason that says most in few words: a place in the code, a stop, else the first."""
    by_worth = [
        *(reason for reason in reasons if _PLACE.search(reason)),
        *(reason for reason in reasons if "(state T)" in reason),
        *reasons,
    ]
    return _RANK.sub("", by_worth[0]).partition("\n")[0] if by_worth else ""


def _consequence(story: Story) -> str:
    cost = _cost(story)
    if story.decided == "stop":
        why = story.stopped_for.partition("\n")[0]
        return f"the job was stopped: {why}" if why else "the job was stopped"
    if story.decided in _NOT_RESTARTED:
        over = "it was over" if story.decided in (LEAVE, END) else "it was over by itself"
        ended = f"; {over} {cost} later" if cost else ""
        return f"{_NOT_RESTARTED[story.decided]}{ended}"
    if story.decided == "restart":
        if not cost:
            return "the job is being restarted"
        origin = f"from step {story.resumed_step}" if story.resumed_step else "from its beginning"
        how = f" {story.how}," if story.how else ""
        return f"the job was restarted{how} {origin}: {cost} without progress{_done_again(story)}"
    if cost:
        return f"it was over by itself after {cost}"
    return f"done: {story.decided}" if story.decided else UNDECIDED


def _cost(story: Story) -> str:
    """Time in words; empty as long as it is not known."""
    return "" if story.lost_s is None else f"{max(story.lost_s, 0.0):.1f} s"


def _done_again(story: Story) -> str:
    if story.lost_steps is None:
        return ""
    return f", {story.lost_steps} step{'s' * (story.lost_steps != 1)} done again"
