"""From a node's death to the page: a job of two nodes without a spare, the real Prometheus and
Alertmanager, the shipped settings; only addresses are of this machine."""

from __future__ import annotations

import random
import shutil
import signal
import tempfile
import time
from pathlib import Path

from bench.benchmark import NotRun, Sample
from bench.launch.contestants import FIRST_NODE, HOLDFAST, Scenario
from bench.launch.faults import VICTIM_NODE
from bench.launch.job import Job, free_port
from bench.launch.names import SGD
from bench.launch.processes import kill, kill_marked, read_marked
from bench.launch.steps import steady
from bench.oncall.monitors import ALERTMANAGER, PROMETHEUS, Series, alertmanager, prometheus
from bench.oncall.names import SCRAPE_JOB
from bench.oncall.shipped import alertmanager_file, prometheus_files
from bench.oncall.webhook import Webhook, listening

RECEIVER = "pager"
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
        if shutil.which(program) is None:
            raise NotRun(f"{program} is not installed")
    scenario = Scenario(
        run="", directory=Path(), optimizer=SGD, min_nodes=2, max_nodes=2, sleep_s=STEP_SLEEP_S
    )
    with Job(HOLDFAST, scenario) as job:
        seeds = _start(job)
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as made, listening() as webhook:
            folder = Path(made)
            with (
                alertmanager(alertmanager_file(folder, webhook.url)) as address,
                prometheus(prometheus_files(folder, seeds, address)) as server,
            ):
                server.wait_for(f'up{{job="{SCRAPE_JOB}"}} == 1', _are_both, START_LIMIT_S)
                time.sleep(WATCHED_S + random.Random(number).uniform(0.0, TURN_S))
                return [_strike(job, webhook, ALL_TOLD_S if number == 0 else 0.0)]


def _start(job: Job) -> list[str]:
    """Both nodes, until they step; where their sidecars are."""
    seeds = []
    for node in (FIRST_NODE, VICTIM_NODE):
        address = f"127.0.0.1:{free_port()}"
        job.start(node, settings=(f"sidecar.listen={address}",))
        seeds.append(address)
    job.wait_until(lambda seen: steady(seen, 2, SETTLED_STEP), START_LIMIT_S, must=True)
    return seeds


def _are_both(told: list[Series]) -> bool:
    return len(told) == 2


def _strike(job: Job, webhook: Webhook, watched_s: float) -> Sample:
    """End all of a node, wait for the pager, and for another page: so long after the death."""
    before = len(webhook.firing(RECEIVER))
    struck_s = time.monotonic()
    _end_node(job.scenario.run)
    while time.monotonic() < struck_s + PAGE_LIMIT_S and len(webhook.firing(RECEIVER)) <= before:
        time.sleep(LOOK_S)
    if len(webhook.firing(RECEIVER)) > before:
        time.sleep(max(AFTERWARDS_S, struck_s + watched_s - time.monotonic()))
    return judged(webhook, before, struck_s)


def _end_node(run: str) -> None:
    """Stopped first: on a machine that loses power none of them tells of the others' death."""
    for pid in read_marked(run, VICTIM_NODE):
        kill(pid, signal.SIGSTOP)
    kill_marked(run, VICTIM_NODE)


def judged(webhook: Webhook, before: int, struck_s: float) -> Sample:
    """What the pages came to. before: how many there were while all was well."""
    pages = webhook.firing(RECEIVER)[before:]
    first = pages[0] if pages else None
    return {
        "s": None if first is None else first.at_s - struck_s,
        "pages_before": before,
        "pages": len(pages),
        "alerts": [one.alerts for one in pages],
        "names_node": first is not None and first.body["commonLabels"].get("node") == VICTIM_NODE,
        "names_cause": first is not None and first.says(CAUSE),
        "tickets": [one.alerts for one in webhook.firing("tickets")],
    }
