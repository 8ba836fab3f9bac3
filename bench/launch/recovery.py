"""One sample of a fault: start the job, strike, and see when every rank steps again."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.benchmark import NotRun, Sample
from bench.launch.contestants import FIRST_NODE, Contestant, Scenario
from bench.launch.faults import VICTIM_NODE, Fault
from bench.launch.job import LOOK_S, Job, NotReached
from bench.launch.processes import Launched
from bench.launch.records import read_detected_unix, read_is_joining
from bench.launch.steps import Event, recovery, steady, step_seconds

START_LIMIT_S = 60.0
SETTLED_STEP = 60
"""About 3 s of stepping before the fault: start-up is over for every contestant."""
SAVE_EVERY = 20
RELAUNCH_AFTER_S = 2.0
"""Whoever replaces the node's agent has to notice first."""
SPARE_NODE = "c"


@dataclass(frozen=True)
class Case:
    """One contestant, one fault, one round."""

    fault: Fault
    contestant: Contestant
    optimizer: str
    round: int
    limit_s: float
    struck: threading.Event = field(default_factory=threading.Event)
    """Set once the fault was struck, or can't be any more."""

    @property
    def fault_step(self) -> int:
        """Rounds strike at different places between two checkpoints, the same for everyone."""
        return SETTLED_STEP + 7 * self.round % SAVE_EVERY


def measure(case: Case) -> Sample:
    """Run the case; a job that never started stepping counts as not recovered, with the reason."""
    who: Sample = {"contestant": case.contestant.name, "job": case.optimizer, "round": case.round}
    try:
        with Job(case.contestant, _scenario(case)) as job:
            return {**who, **_disturb(case, job)}
    except NotReached as failure:
        return {**who, "recovered": False, "failed": str(failure)}
    finally:
        case.struck.set()


def measure_staggered(cases: Sequence[Case]) -> list[Sample]:
    """Start each case when the one before was struck: for faults that are waited out on a timer.

    What is measured is tens of seconds of the contestant's own timeout in which the machine is
    idle; the busy seconds of the cases don't meet, because they start one after another.
    """
    samples: list[Sample] = []
    reasons: list[NotRun] = []

    def run(case: Case) -> None:
        try:
            samples.append(measure(case))
        except NotRun as reason:
            reasons.append(reason)

    threads = []
    for case in cases:
        threads.append(threading.Thread(target=run, args=(case,)))
        threads[-1].start()
        case.struck.wait(START_LIMIT_S + 30)
        time.sleep(1.0)
    for thread in threads:
        thread.join()
    if reasons and not samples:
        raise reasons[0]
    return samples


def _scenario(case: Case) -> Scenario:
    is_torchrun = case.contestant.name.startswith("torchrun")
    return Scenario(
        run="",
        directory=Path(),
        optimizer=case.optimizer,
        min_nodes=case.fault.min_nodes,
        spares=case.contestant.spares if case.fault.replaced else 0,
        group_timeout_s=case.fault.torchrun_group_timeout_s if is_torchrun else 0.0,
    )


def _disturb(case: Case, job: Job) -> Sample:
    job.start(FIRST_NODE)
    job.start(VICTIM_NODE)
    settled = _wait_for_spare(job) if job.scenario.spares else 0
    before = job.wait_until(
        lambda events: steady(events, 2, settled + case.fault_step), START_LIMIT_S, must=True
    )
    witnesses = list(job.launched.values())  # not those that are started after the fault
    fault_ns, fault_unix = time.monotonic_ns(), time.time()
    case.fault.strike(job, before)
    case.struck.set()
    if case.fault.replaced and not job.scenario.spares:
        time.sleep(RELAUNCH_AFTER_S)
        job.start(VICTIM_NODE)
    worlds = (case.fault.world_size,)

    def is_back(events: list[Event]) -> bool:
        return recovery(events, fault_ns, worlds).every_rank_stepping_s is not None

    events = job.wait_until(is_back, case.limit_s, must=False)
    result = recovery(events, fault_ns, worlds)
    return {
        "recovered": result.every_rank_stepping_s is not None,
        "detected_s": _detected_s(job, witnesses, fault_ns, fault_unix),
        **asdict(result),
        "step_at_fault": max(event.step for event in before),
        "step_s": step_seconds(before, skip=10),
    }


def _wait_for_spare(job: Job) -> int:
    """Start the spare node once the others step; the checkpoint step by which it waits."""
    job.wait_until(lambda events: steady(events, 2, 1), START_LIMIT_S, must=True)
    job.start(SPARE_NODE)
    server = job.server
    assert server is not None
    deadline = time.monotonic() + START_LIMIT_S
    while not read_is_joining(server, job.scenario.run, SPARE_NODE):
        if time.monotonic() > deadline:
            raise NotReached(f"the spare node did not join within {START_LIMIT_S:g} s")
        time.sleep(LOOK_S)
    reached = max(event.step for event in job.events())
    return math.ceil(reached / SAVE_EVERY) * SAVE_EVERY


def _detected_s(
    job: Job, witnesses: Sequence[Launched], fault_ns: int, fault_unix: float
) -> float | None:
    """Holdfast: as its incident says. The peers keep no record: the first line anyone prints."""
    if job.server is not None:
        detected = read_detected_unix(job.server, job.scenario.run, fault_unix)
        return None if detected is None else detected - fault_unix
    lines = [one.first_line_after(fault_ns) for one in witnesses]
    first = min((line_ns for line_ns in lines if line_ns is not None), default=None)
    return None if first is None else (first - fault_ns) / 1e9
