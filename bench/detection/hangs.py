"""Row `hangs`: how soon each of twelve kinds is told and ended, and who is blamed."""

from __future__ import annotations

import time
from functools import partial

from bench.benchmark import Sample, Task
from bench.detection.hang_kinds import CULPRIT, KINDS
from bench.detection.hang_names import HANGS
from bench.detection.hanging_job import TIRELESS, await_hang, follow, hang_job
from bench.launch.contestants import FIRST_NODE, NVRX, TORCHRUN, Contestant
from bench.launch.job import Job, NotReached
from bench.launch.steps import Event, step_seconds

ROUNDS = 10

SOME = (
    *("stopped", "dead-loader-worker", "deadlock", "gil-held"),
    *("endless-loop", "mismatched-collective"),
)
"""One of each way to be found, for a quick run."""

LIMIT_S = 12.0

PEER_LIMIT_S = 45.0
"""For a peer to print its first line about it."""

MOST_STARTS = 6
"""A peer that takes a slow step for a hang starts anew, and hangs then."""

GROUP_TIMEOUT_S = 5.0
"""torchrun watches no progress: only a short timeout of the process group shows it a hang."""


def tasks(quick: bool) -> list[Task]:
    """One job per kind, or one for some of them; the peers once per kind."""
    if quick:
        return [Task(HANGS, f"{HANGS}/some", partial(measure, SOME))]
    own = [Task(HANGS, f"{HANGS}/{kind}", partial(measure, (kind,) * ROUNDS)) for kind in KINDS]
    peers = [
        Task(HANGS, f"{HANGS}/{peer.name}/{kind}", partial(measure_peer, peer, kind))
        for kind in KINDS
        for peer in (TORCHRUN, NVRX)
    ]
    return own + peers


def measure(kinds: tuple[str, ...]) -> list[Sample]:
    """One job under Holdfast that hangs in these ways, one attempt after the other."""
    samples: list[Sample] = []
    with hang_job(TIRELESS, kinds) as job:
        job.start(FIRST_NODE)
        for attempt, kind in enumerate(kinds):
            hang = await_hang(job, attempt)
            told = follow(job, hang, KINDS[kind], LIMIT_S)
            samples.append(
                {
                    **_who(TIRELESS, kind),
                    "declared_s": told.declared_s,
                    "acted_s": told.acted_s,
                    "step_s": _step_s(job.events(), attempt),
                    "is_right": told.named == [CULPRIT],
                    "named": told.named,
                    "found": sorted({finding.kind.value for finding in told.findings}),
                }
            )
    return samples


def measure_peer(peer: Contestant, kind: str) -> list[Sample]:
    """The first line that another launcher prints; none of them says whose fault it is."""
    timeout_s = GROUP_TIMEOUT_S if peer is TORCHRUN else 0.0
    sample = _who(peer, kind)
    try:
        with hang_job(peer, (kind,) * MOST_STARTS, timeout_s) as job:
            job.start(FIRST_NODE)
            hang = await_hang(job)
            sample["declared_s"] = _first_line_s(job, hang)
            sample["step_s"] = _step_s(job.events(), hang.attempt)
    except NotReached as failure:
        sample["failed"] = str(failure)
    return [sample]


def _who(contestant: Contestant, kind: str) -> Sample:
    return {"contestant": contestant.name, "kind": kind, "is_provable": KINDS[kind]}


def _first_line_s(job: Job, hang: Event) -> float | None:
    until_s = hang.at_ns / 1e9 + PEER_LIMIT_S
    launched = job.launched[FIRST_NODE]
    while time.monotonic() < until_s:
        line_ns = launched.first_line_after(hang.at_ns)
        if line_ns is not None:
            return (line_ns - hang.at_ns) / 1e9
        time.sleep(0.05)
    return None


def _step_s(events: list[Event], attempt: int) -> float:
    """Median step before the hang."""
    found = step_seconds([e for e in events if e.attempt == attempt], skip=5)
    return 0.0 if found is None else found
