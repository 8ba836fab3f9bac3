"""A job of one node whose ranks hang, and what its launcher says and does about it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.detection.hang_kinds import CULPRIT, PROGRAMS, RANKS
from bench.launch.contestants import FIRST_NODE, HOLDFAST, Contestant, Scenario
from bench.launch.job import Job, NotReached
from bench.launch.processes import kill
from bench.launch.steps import Event
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.plan import Incident
from holdfast_sidecar.records.reports import NodeReport
from holdfast_sidecar.store.protocol import Keys, Section

LOOK_S = 0.01

START_LIMIT_S = 60.0

TOLD = frozenset({Kind.HANG, Kind.STALL, Kind.DATA_STALL})

LEFT_ALONE_S = 2.5
"""A kind that is only silent is ended by the benchmark; until then Holdfast must not have."""


def _tireless(_scenario: Scenario, _node: str) -> Mapping[str, str]:
    """Ten hangs of one kind within minutes are a measurement, and no reason to stop."""
    return {
        "HOLDFAST_SET_POLICY_BUDGET": "1000",
        "HOLDFAST_SET_POLICY_SAME_SIGNATURE_LIMIT": "1000",
        "HOLDFAST_SET_POLICY_BACKOFF_S": "0.1",
        "HOLDFAST_SET_POLICY_BACKOFF_LIMIT_S": "0.1",
    }


TIRELESS = replace(HOLDFAST, environment=_tireless)


@dataclass(frozen=True)
class HangScenario(Scenario):
    """A job that hangs in each attempt in the next of these ways."""

    kinds: tuple[str, ...] = ()
    step: int = 25

    def training(self) -> list[str]:
        """The program and its options."""
        options = ["--directory", str(self.directory), "--kinds", ",".join(self.kinds)]
        options += ["--rank", str(CULPRIT), "--step", str(self.step)]
        options += ["--group-timeout", str(self.group_timeout_s)]
        return [str(PROGRAMS / "training.py"), *options]


def hang_job(contestant: Contestant, kinds: tuple[str, ...], group_timeout_s: float = 0.0) -> Job:
    """The job; nothing is started before it is entered."""
    scenario = HangScenario(
        run="",
        directory=Path(),
        optimizer="sgd",
        min_nodes=1,
        max_nodes=1,
        ranks_per_node=RANKS,
        group_timeout_s=group_timeout_s,
        kinds=kinds,
    )
    return Job(contestant, scenario)


@dataclass
class Told:
    """What Holdfast said and did about one hang. Seconds after it; None: not within the limit."""

    declared_s: float | None = None
    acted_s: float | None = None
    findings: list[Finding] = field(default_factory=list)
    incident: Incident | None = None

    @property
    def named(self) -> list[int]:
        """The ranks to blame: as was decided, else by the surest finding."""
        if self.incident is not None:
            return list(self.incident.culprit_ranks)
        surest = max(self.findings, key=lambda f: f.confidence, default=None)
        return [] if surest is None else list(surest.ranks)


def await_hang(job: Job, attempt: int | None = None) -> Event:
    """The moment at which this attempt hangs; by default, whichever comes first."""

    def hangs(events: list[Event]) -> list[Event]:
        return [e for e in events if e.name == "hang" and attempt in (None, e.attempt)]

    events = job.wait_until(lambda events: bool(hangs(events)), START_LIMIT_S, must=True)
    return hangs(events)[0]


def follow(job: Job, hang: Event, acts: bool, limit_s: float) -> Told:
    """Look until the attempt is ended, or it is clear that it won't be; then see that it is."""
    told = Told()
    while (age_s := time.monotonic() - hang.at_ns / 1e9) < limit_s:
        _look(job, hang, told)
        if told.acted_s is not None:
            return told
        if not acts and told.declared_s is not None and age_s > told.declared_s + LEFT_ALONE_S:
            break
        time.sleep(LOOK_S)
    kill(hang.pid)
    return told


def _look(job: Job, hang: Event, told: Told) -> None:
    if job.server is None:
        raise NotReached("without Redis nobody can be asked")
    keys, client = Keys(job.scenario.run), job.server.client()
    text = client.hget(keys.section(Section.NODES), FIRST_NODE)
    report = None if text is None else decode(NodeReport, str(text))
    incidents = map(str, client.hvals(keys.section(Section.INCIDENTS)))
    age_s = time.monotonic() - hang.at_ns / 1e9
    if report is not None and report.attempt == hang.attempt:
        found = [finding for finding in report.findings if finding.kind in TOLD]
        if found:
            told.findings = found
            told.declared_s = age_s if told.declared_s is None else told.declared_s
    for incident in (decode(Incident, text) for text in incidents):
        if incident is not None and incident.attempt == hang.attempt:
            told.incident = incident
            told.acted_s = age_s if incident.ended_unix_s else None
