"""The story of an incident: what happened when, who is to blame, what was done, what it cost. Pure.

Times are the leader's wall clock, except the first: that is the node's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast_sidecar.policy.attached import END, LEAVE
from holdfast_sidecar.policy.blame import LEFT
from holdfast_sidecar.policy.budget import HANGS, PLANNED
from holdfast_sidecar.policy.checkpoint_choice import ABOUT_NUMBERS
from holdfast_sidecar.policy.hardware import OF_HARDWARE, STILL_RAN
from holdfast_sidecar.records.plan import LEFT_ALONE, WITHHELD, Incident


@dataclass(frozen=True)
class Chapter:
    """One thing that happened; `after_s` counts from the first sign."""

    at_unix_s: float
    after_s: float
    what: str


@dataclass(frozen=True)
class IncidentStory:
    """An incident, told. Costs are None as long as they are not known."""

    identifier: str
    attempt: int
    cause: str
    culprit_node: str
    culprit_ranks: list[int]
    confidence: float
    chapters: list[Chapter]
    decided: str
    is_over: bool
    lost_s: float | None
    """From the first sign until every rank was stepping again."""
    lost_steps: int | None
    """Steps that were done and had to be done again."""
    resumed_step: int | None
    signature: str
    reasons: list[str] = field(default_factory=list)
    """What the judgement rests on."""
    kept_by: list[str] = field(default_factory=list)
    """Nodes that kept evidence before anything was ended."""
    bundles: dict[str, str] = field(default_factory=dict)
    """node -> where what it kept is packed, as `host:path`."""
    how: str = ""
    """How the restart went further than in place; empty: it didn't."""
    stopped_for: str = ""
    """Why the job was stopped over it."""
    onset_step: int = -1
    """Since which step numbers were wrong; -1: they were not."""
    went_over_into: str = ""
    """Cause of the incident that followed on it, of numbers that were wrong in another way."""
    gpu: str = ""
    """UUID of the GPU that is to blame."""
    remedy: str = ""
    """What the hardware that is to blame needs before it is used again: a remedy.Remedy."""

    @property
    def is_withheld(self) -> bool:
        """Nothing was done about it."""
        return self.decided in WITHHELD


def lost_s(incident: Incident) -> float | None:
    """From the first sign until every rank was stepping again; None: not known yet."""
    recovered = incident.recovered_unix_s
    return recovered - _start(incident) if recovered else None


def tell(incident: Incident) -> IncidentStory:
    """The story of this incident as far as it has gone."""
    recovered = bool(incident.recovered_unix_s)
    start = _start(incident)
    return IncidentStory(
        identifier=incident.identifier,
        attempt=incident.attempt,
        cause=incident.cause,
        culprit_node=incident.culprit_node,
        culprit_ranks=list(incident.culprit_ranks),
        confidence=incident.confidence,
        chapters=[Chapter(at, at - start, what) for at, what in _events(incident)],
        decided=incident.decided,
        is_over=recovered or incident.decided == "stop" or _was_overtaken(incident),
        lost_s=lost_s(incident),
        lost_steps=_lost_steps(incident),
        resumed_step=incident.step_resumed if recovered else None,
        signature=incident.signature,
        reasons=[*incident.evidence, *_numbers(incident), *_again(incident)],
        kept_by=sorted(incident.kept_by),
        bundles=dict(incident.bundles),
        how=_HOW.get(incident.escalation, incident.escalation),
        onset_step=incident.onset_step,
        stopped_for=incident.stopped_for,
        went_over_into=incident.went_over_into,
        gpu=incident.gpu,
        remedy=incident.remedy,
    )


def _lost_steps(incident: Incident) -> int | None:
    """None also where others restarted the job, or nobody did: what it resumed from is unknown."""
    if not incident.recovered_unix_s or incident.decided != "restart":
        return None
    return max(0, incident.step_reached - incident.step_resumed)


def _start(incident: Incident) -> float:
    """The first sign; a node's clock may be ahead of the leader's, the story then starts there."""
    since, detected = incident.since_unix_s, incident.detected_unix_s
    return min(since, detected) if since else detected


def _last_well(incident: Incident) -> int:
    """The last step before the fault."""
    is_of_numbers = incident.cause in ABOUT_NUMBERS and incident.onset_step > 0
    return incident.onset_step - 1 if is_of_numbers else incident.step_reached


def _was_overtaken(incident: Incident) -> bool:
    """Nothing was done about it, and its attempt ended for another reason."""
    return incident.decided in WITHHELD and bool(incident.ended_unix_s)


def _events(incident: Incident) -> Iterator[tuple[float, str]]:
    who = whom(incident.culprit_node, incident.culprit_ranks, incident.cause)
    cause = describe_cause(incident.cause)
    yield _start(incident), f"first sign of trouble, after step {_last_well(incident)}"
    yield incident.detected_unix_s, f"declared: {cause}; {who} ({incident.confidence:.0%} sure)"
    if incident.decided in WITHHELD:
        yield from _events_withheld(incident)
        return
    if incident.ended_unix_s:
        yield incident.ended_unix_s, _how_ended(incident, who)
    if incident.reopened_unix_s:
        how = f"{incident.decided} {_HOW.get(incident.escalation, '')}".rstrip()
        yield incident.reopened_unix_s, f"decided: {how}; the next attempt was opened"
    elif incident.decided:
        decided = describe_decision(incident.decided)
        why = f" ({incident.stopped_for})" if incident.stopped_for else ""
        yield incident.ended_unix_s or incident.detected_unix_s, f"decided: {decided}{why}"
    if incident.recovered_unix_s and incident.decided in _OF_OTHERS:
        yield incident.recovered_unix_s, "every rank was stepping again"
    elif incident.recovered_unix_s:
        yield incident.recovered_unix_s, _how_it_went_on(incident)


def _how_it_went_on(incident: Incident) -> str:
    if incident.is_over_unseen:
        return "every rank had lived on; steps of this run are not seen"
    resumed = f"from step {incident.step_resumed}" if incident.step_resumed else "from nothing"
    return f"every rank was stepping again, {resumed}"


def _how_ended(incident: Incident, who: str) -> str:
    """Whose deed it was: whoever reads of a SIGKILL elsewhere asks who sent it."""
    is_by_us = incident.cause in HANGS or STILL_RAN in incident.evidence
    if is_by_us and incident.culprit_ranks:
        return f"Holdfast ended attempt {incident.attempt}, and {who} by SIGKILL"
    return f"attempt {incident.attempt} ended"


def _events_withheld(incident: Incident) -> Iterator[tuple[float, str]]:
    decided = _WITHHELD.get(incident.decided, incident.decided)
    yield incident.detected_unix_s, f"nothing was done ({decided})"
    if incident.recovered_unix_s:
        went_on = f", after step {incident.step_resumed}" * (incident.cause in ABOUT_NUMBERS)
        yield incident.recovered_unix_s, f"it was over by itself{went_on}"
    elif incident.went_over_into:
        into = describe_cause(incident.went_over_into)
        yield incident.ended_unix_s, f"it went over into another: {into}"
    elif incident.ended_unix_s:
        yield incident.ended_unix_s, "its attempt ended before it was over"


def _numbers(incident: Incident) -> Iterator[str]:
    if incident.onset_step >= 0:
        if incident.decided in WITHHELD:
            return  # its first reason says since when, and nothing was gone back to
        were = "far above usual" if incident.cause == "spike" else "not finite"
        yield (
            f"its losses or gradients were {were} from step {incident.onset_step} on, so that only"
            " a checkpoint of before could be gone back to"
        )


def _again(incident: Incident) -> Iterator[str]:
    if incident.came_back:
        often = {1: "once", 2: "twice"}.get(incident.came_back, f"{incident.came_back} times")
        yield f"it came back {often}"


def describe_cause(cause: str) -> str:
    """The cause in words; one that is new to us is shown as it is."""
    return _CAUSES.get(cause, cause)


def name_cause(cause: str) -> str:
    """The cause as a noun: `the crash of rank 3`, `the ill GPU of rank 3`."""
    return _NOUNS.get(cause, cause)


def describe_decision(decided: str) -> str:
    """The decision in words."""
    return (_OF_OTHERS | _WITHHELD).get(decided, decided)


_WITHHELD = {LEFT_ALONE: "it was seen and left alone"}
"""Decisions that are no words by themselves."""

_OF_OTHERS = {
    "leave": "what follows is for whoever launched the job",
    "end": "the culprit is ended, so that whoever launched the job notices",
}
"""Decisions in a job that somebody else launched, and restarts."""


def whom(node: str, ranks: list[int], cause: str = "") -> str:
    """`rank 3 on node b`, as far as it is known; of numbers it may be all."""
    if not ranks:
        if node:
            return f"node {node}"
        if cause in PLANNED:
            return "nobody"
        return "all ranks" if cause in ABOUT_NUMBERS else "culprit unknown"
    listed = ", ".join(str(rank) for rank in ranks)
    return f"rank{'s' * (len(ranks) > 1)} {listed}" + (f" on node {node}" if node else "")


_NOUNS = {
    "gpu": "ill GPU",
    "link": "lost link",
    "host": "failing memory",
    "straggler": "slowness",
}

WITHOUT = "without the node"
_HOW = {"without_node": WITHOUT, "roll_back": "from further back"}

_CAUSES = {
    "crash": "a rank's process ended badly",
    "hang": "a rank stands still while its peers wait for it",
    "stall": "a rank has been silent for too long",
    "nonfinite": "losses or gradients of all ranks are no numbers any more",
    "spike": "losses or gradients are far above what they were",
    "data_stall": "a rank has waited too long for data",
    "gpu": "a GPU is ill",
    "link": "a node lost a link",
    "host": "the memory of a node fails",
    "straggler": "a node is slow, and a spare would be faster",
    "node_lost": "a node is gone",
    "node_left": "a node left on its own account",
    "unreachable": "nodes could not reach the attempt's store",
    "agent_restarted": "a launcher came back as a new process",
    "grow": "the job makes room for nodes that joined",
    "restart": "somebody asked for a restart",
    "stop": "somebody asked for the end of the job",
}


# An incident in one sentence: who did what, how sure, what was done, what it cost. Pure.

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


def sum_up(story: IncidentStory) -> str:
    """The verdict, in one sentence."""
    return f"{_accusation(story)}; {_consequence(story)}."


def _accusation(story: IncidentStory) -> str:
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


def _subject(story: IncidentStory) -> str:
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


def _consequence(story: IncidentStory) -> str:
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


def _cost(story: IncidentStory) -> str:
    """Time in words; empty as long as it is not known."""
    return "" if story.lost_s is None else f"{max(story.lost_s, 0.0):.1f} s"


def _done_again(story: IncidentStory) -> str:
    if story.lost_steps is None:
        return ""
    return f", {story.lost_steps} step{'s' * (story.lost_steps != 1)} done again"
