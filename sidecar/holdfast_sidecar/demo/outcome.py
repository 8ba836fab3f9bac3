"""What became of each event, by the system's own records, and the verdict on the whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast_sidecar.demo.scenario import Event, Kind
from holdfast_sidecar.records.checkpoint import LedgerEntry
from holdfast_sidecar.records.plan import Incident


@dataclass(frozen=True)
class Injected:
    """An event as it was carried out. `node` is where; times are this machine's wall clock."""

    event: Event
    node: str
    step: int
    attempt: int
    at_unix_s: float


@dataclass(frozen=True)
class Outcome:
    """One row of the table. Seconds count from the injection; None when it never came."""

    event: str
    where: str
    step: int
    detected_s: float | None
    culprit: str
    recovered_s: float | None
    steps_lost: int | None
    problems: tuple[str, ...] = ()
    incident: str = ""
    """Under which Holdfast recorded it."""


@dataclass(frozen=True)
class Story:
    """What `holdfast explain` says of an incident, or why it says nothing."""

    incident: str
    text: str
    problem: str = ""


@dataclass(frozen=True)
class Verdict:
    """The whole demonstration."""

    outcomes: tuple[Outcome, ...]
    undisturbed_weights: str
    survived_weights: str
    seconds: float
    problems: tuple[str, ...] = ()
    stories: tuple[Story, ...] = ()

    @property
    def identical(self) -> bool:
        """Whether both runs ended with the same bits."""
        return bool(self.survived_weights) and self.survived_weights == self.undisturbed_weights

    @property
    def all_problems(self) -> tuple[str, ...]:
        """Everything that failed, one line each; empty when all went well."""
        of_events = tuple(f"{o.event}: {p}" for o in self.outcomes for p in o.problems)
        weights = () if self.identical or self.problems else ("the final weights differ",)
        untold = tuple(f"incident {s.incident}: {s.problem}" for s in self.stories if s.problem)
        return self.problems + of_events + weights + untold

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        return {
            **dataclasses.asdict(self),
            "identical": self.identical,
            "problems": list(self.all_problems),
            "ok": not self.all_problems,
        }


def judge_fault(injected: Injected, incident: Incident | None) -> Outcome:
    """Compare what was done with what Holdfast recorded about it."""
    event = injected.event
    if incident is None:
        return _row(injected, culprit="-", problems=("was never noticed",))
    recovered = incident.recovered_unix_s > 0
    problems = []
    if incident.cause not in event.causes:
        problems.append(f"called {incident.cause}, should be {' or '.join(event.causes)}")
    if tuple(incident.culprit_ranks) != event.hurt or incident.culprit_node != injected.node:
        problems.append(f"blamed {name_culprit(incident)}, was {where(injected)}")
    if not recovered:
        problems.append("did not recover")
    return _row(
        injected,
        detected_s=incident.detected_unix_s - injected.at_unix_s,
        culprit=f"{name_culprit(incident)} ({incident.cause})",
        recovered_s=incident.recovered_unix_s - injected.at_unix_s if recovered else None,
        steps_lost=incident.step_reached - incident.step_resumed if recovered else None,
        problems=tuple(problems),
        incident=incident.identifier,
    )


def judge_save(injected: Injected, entry: LedgerEntry | str) -> Outcome:
    """The checkpoint that was asked for: in the ledger, or why not."""
    if isinstance(entry, str):
        return _row(injected, culprit="-", problems=(f"no checkpoint was completed: {entry}",))
    return _row(
        injected,
        culprit=f"saved step {entry.step}",
        recovered_s=entry.at_unix_s - injected.at_unix_s,
        steps_lost=0,
    )


def name_culprit(incident: Incident) -> str:
    """Who an incident blames, in words."""
    return _name(incident.culprit_node, incident.culprit_ranks)


def where(injected: Injected) -> str:
    """Who was hurt, in words."""
    if injected.event.kind is Kind.SAVE:
        return "all ranks"
    return _name(injected.node, injected.event.hurt)


def _name(node: str, ranks: Sequence[int]) -> str:
    if not ranks:
        return f"node {node}" if node else "nobody"
    noun = "rank" if len(ranks) == 1 else "ranks"
    return f"{noun} {', '.join(str(rank) for rank in ranks)} on {node}"


def _row(
    injected: Injected,
    culprit: str,
    detected_s: float | None = None,
    recovered_s: float | None = None,
    steps_lost: int | None = None,
    problems: tuple[str, ...] = (),
    incident: str = "",
) -> Outcome:
    return Outcome(
        event=injected.event.kind.value,
        where=where(injected),
        step=injected.step,
        detected_s=detected_s,
        culprit=culprit,
        recovered_s=recovered_s,
        steps_lost=steps_lost,
        problems=problems,
        incident=incident,
    )
