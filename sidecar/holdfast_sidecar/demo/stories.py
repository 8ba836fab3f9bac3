"""What `holdfast explain` says of each fault, asked as a person would, once the job is gone."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping

from holdfast import environment as names
from holdfast_sidecar.demo import programs
from holdfast_sidecar.demo.outcome import Outcome, Story
from holdfast_sidecar.demo.workspace import Workspace

LIMIT_S = 30.0
"""It reads a few small files; the rest is for a machine under load."""


def read_stories(workspace: Workspace, job: str, outcomes: Iterable[Outcome]) -> tuple[Story, ...]:
    """The story of every fault that was noticed, in the order in which they were done."""
    return tuple(_ask(workspace, job, outcome) for outcome in outcomes if outcome.incident)


def _ask(workspace: Workspace, job: str, outcome: Outcome) -> Story:
    asked = programs.explain(workspace, job, outcome.incident)
    try:
        answer = subprocess.run(
            asked,
            env=_without_server(programs.environment()),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Story(outcome.incident, "", f"holdfast explain took longer than {LIMIT_S:g} s")
    if answer.returncode != 0:
        lines = answer.stderr.strip().splitlines() or [f"exit code {answer.returncode}"]
        return Story(outcome.incident, "", f"holdfast explain failed: {lines[-1]}")
    return Story(outcome.incident, answer.stdout.rstrip())


def _without_server(environment: Mapping[str, str]) -> dict[str, str]:
    """The job's own server is gone; one that the person uses otherwise knows nothing of it."""
    return {name: value for name, value in environment.items() if name != names.REDIS_URL}
