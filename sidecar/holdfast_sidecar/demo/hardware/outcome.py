"""What became of each story, by the system's own records, and whether that is right."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast_sidecar.demo.hardware.scenario import Story
from holdfast_sidecar.records.checkpoint import LedgerEntry
from holdfast_sidecar.records.findings import Finding
from holdfast_sidecar.records.plan import Incident, Plan


@dataclass(frozen=True)
class Done:
    """A story as it was played: times are this machine's wall clock."""

    story: Story
    node: str
    step: int
    attempt: int
    at_unix_s: float


@dataclass(frozen=True)
class Seen:
    """What Holdfast recorded of it."""

    finding: Finding | None = None
    found_unix_s: float = 0.0
    saved: LedgerEntry | None = None
    incident: Incident | None = None
    plan: Plan | None = None
    """As it was when everything had been seen."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    fault: str
    step: int
    told_s: float | None
    told_as: str
    tied_to: str
    done: str
    problems: tuple[str, ...] = ()
    incident: str = ""


@dataclass(frozen=True)
class Verdict:
    """The whole demonstration."""

    rows: tuple[Row, ...]
    seconds: float
    problems: tuple[str, ...] = ()

    @property
    def all_problems(self) -> tuple[str, ...]:
        """Everything that failed, one line each; empty when all went well."""
        return self.problems + tuple(f"{r.fault}: {p}" for r in self.rows for p in r.problems)

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        problems = list(self.all_problems)
        return {**dataclasses.asdict(self), "problems": problems, "ok": not problems}


def judge(done: Done, seen: Seen) -> Row:
    """Compare what was done with what was told and what came of it."""
    finding = seen.finding
    if finding is None:
        return Row(done.story.fault.value, done.step, None, "-", "-", "-", ("was never told",))
    problems = [*_wrong_name(done.story, finding), *_wrong_deed(done, seen)]
    return Row(
        fault=done.story.fault.value,
        step=done.step,
        told_s=seen.found_unix_s - done.at_unix_s,
        told_as=finding.kind.value,
        tied_to=_whom(done.node, finding.ranks),
        done=_deed(done, seen),
        problems=tuple(problems),
        incident="" if seen.incident is None else seen.incident.identifier,
    )


def _wrong_name(story: Story, finding: Finding) -> list[str]:
    if tuple(finding.ranks) == story.ranks:
        return []
    return [f"tied to ranks {finding.ranks}, should be {list(story.ranks)}"]


def _wrong_deed(done: Done, seen: Seen) -> list[str]:
    story, incident = done.story, seen.incident
    problems = []
    if story.is_saved and seen.saved is None:
        problems.append("no checkpoint was made for it")
    if not story.ends_attempt:
        return [*problems, *(["the job was restarted for it"] if incident is not None else [])]
    if incident is None:
        return [*problems, "the job was not taken off it"]
    if incident.culprit_node != done.node or tuple(incident.culprit_ranks) != story.ranks:
        problems.append(f"blamed {_whom(incident.culprit_node, incident.culprit_ranks)}")
    if not incident.recovered_unix_s:
        problems.append("did not recover")
    if seen.plan is not None and any(m.node == done.node for m in seen.plan.members):
        problems.append(f"node {done.node} still trains")
    return problems


def _deed(done: Done, seen: Seen) -> str:
    if seen.incident is not None:
        nodes = ", ".join(m.node for m in seen.plan.members) if seen.plan else "?"
        lost = seen.incident.step_reached - seen.incident.step_resumed
        return f"goes on with node {nodes}, {lost} steps again"
    if seen.saved is not None:
        return f"saved step {seen.saved.step}"
    return "told only, training goes on"


def _whom(node: str, ranks: Sequence[int]) -> str:
    if not ranks:
        return f"node {node}"
    noun = "rank" if len(ranks) == 1 else "ranks"
    return f"{noun} {', '.join(map(str, ranks))} on {node}"
