"""From a node's death to the page: a job of two nodes without a spare, the real Prometheus and
Alertmanager, the shipped settings; only addresses are of this machine."""

from __future__ import annotations

import random
import signal
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from testing.alerting import ALERTMANAGER, PROMETHEUS
from testing.pager import PAGER, TICKETS, Notice, Receiver

from bench.benchmark import Sample
from bench.launch.contestants import FIRST_NODE, HOLDFAST, Scenario
from bench.launch.faults import VICTIM_NODE
from bench.launch.job import Job, free_port
from bench.launch.names import SGD
from bench.launch.processes import kill, kill_marked, read_marked
from bench.launch.steps import steady
from bench.oncall.monitors import Series, alertmanager, found, prometheus
from bench.oncall.names import SCRAPE_JOB
from bench.oncall.shipped import RUNBOOKS, write_alertmanager, write_prometheus

CAUSE = "node_lost"
START_LIMIT_S = 120.0
SETTLED_STEP = 20
STEP_SLEEP_S = 0.2
WATCHED_S = 30.0
"""Before the strike: two scrapes, so that all is known of a job that is well."""
TURN_S = 15.0
"""The strike comes at a moment drawn by chance within a scrape and an evaluation."""
PAGE_LIMIT_S = 240.0
"""Twice the goal."""
AFTERWARDS_S = 40.0
"""As long as another group would wait (group_wait), and a scrape."""
ALL_TOLD_S = 180.0
"""After the first death: HoldfastJobDown, whose page would come last, waits 90 s itself, and then
as every other for a scrape, an evaluation and its group."""
LOOK_S = 0.2


def measure(number: int) -> list[Sample]:
    """One death; which node goes is the same each time, the moment is not."""
    for program in (PROMETHEUS, ALERTMANAGER):
        found(program)
    scenario = Scenario(
        run="", directory=Path(), optimizer=SGD, min_nodes=2, max_nodes=2, sleep_s=STEP_SLEEP_S
    )
    with Job(HOLDFAST, scenario) as job:
        sidecars = _start(job)
        with (
            tempfile.TemporaryDirectory(prefix="holdfast-bench-") as made,
            closing(Receiver(RUNBOOKS)) as receiver,
        ):
            folder = Path(made)
            receiver.start()
            write_alertmanager(folder, receiver.url)
            with alertmanager(folder) as address:
                write_prometheus(folder, sidecars, address)
                with prometheus(folder) as server:
                    server.wait_for(f'up{{job="{SCRAPE_JOB}"}} == 1', _are_both, START_LIMIT_S)
                    time.sleep(WATCHED_S + random.Random(number).uniform(0.0, TURN_S))
                    return [_strike(job, receiver, ALL_TOLD_S if number == 0 else 0.0)]


def _start(job: Job) -> list[str]:
    """Both nodes, until they step; where their sidecars are."""
    sidecars = []
    for node in (FIRST_NODE, VICTIM_NODE):
        address = f"127.0.0.1:{free_port()}"
        job.start(node, settings=(f"sidecar.listen={address}",))
        sidecars.append(address)
    job.wait_until(lambda seen: steady(seen, 2, SETTLED_STEP), START_LIMIT_S, must=True)
    return sidecars


def _are_both(told: list[Series]) -> bool:
    return len(told) == 2


def _strike(job: Job, receiver: Receiver, watched_s: float) -> Sample:
    """End all of a node, wait for the pager, and for another page: so long after the death."""
    before = len(calls(receiver.heard()))
    struck_unix_s, struck_s = time.time(), time.monotonic()
    _end_node(job.scenario.run)
    while time.monotonic() < struck_s + PAGE_LIMIT_S and len(calls(receiver.heard())) <= before:
        time.sleep(LOOK_S)
    if len(calls(receiver.heard())) > before:
        time.sleep(max(AFTERWARDS_S, struck_s + watched_s - time.monotonic()))
    return judged(receiver.heard(), before, struck_unix_s)


def _end_node(run: str) -> None:
    """Stopped first: on a machine that loses power none of them tells of the others' death."""
    for pid in read_marked(run, VICTIM_NODE):
        kill(pid, signal.SIGSTOP)
    kill_marked(run, VICTIM_NODE)


def calls(notices: Sequence[Notice], receiver: str = PAGER) -> list[Notice]:
    """What this receiver was told that something is wrong."""
    return [one for one in notices if one.receiver == receiver and one.is_firing]


def judged(notices: Sequence[Notice], before: int, struck_unix_s: float) -> Sample:
    """What the pages came to. before: how many there were while all was well."""
    pages = calls(notices)[before:]
    first = pages[0] if pages else None
    alerts = first.alerts if first is not None else ()
    return {
        "s": None if first is None else first.at_unix_s - struck_unix_s,
        "pages_before": before,
        "pages": len(pages),
        "alerts": [one.names for one in pages],
        "names_node": {one.node for one in alerts} == {VICTIM_NODE},
        "names_cause": any(CAUSE in one.description for one in alerts),
        "tickets": [one.names for one in calls(notices, TICKETS)],
    }
