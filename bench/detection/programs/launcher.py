"""A launcher without ranks and without torch: joins, takes its place, leaves it, joins again.

Its heartbeat, its reading of the plan and its sidecar are the real ones.
"""

from __future__ import annotations

import argparse
import os
import secrets

from holdfast_sidecar import __version__
from holdfast_sidecar.config.paths import places
from holdfast_sidecar.config.settings import PathSettings, RedisSettings, SidecarSettings
from holdfast_sidecar.launcher.plan_state import (
    AttemptState,
    PlanFence,
    known_end,
    while_joining,
    while_running,
)
from holdfast_sidecar.launcher.plan_watch import PlanWatch, Reporter
from holdfast_sidecar.launcher.sidecar_process import SidecarProcess
from holdfast_sidecar.records.reports import AgentReport
from holdfast_sidecar.store.connection import open_store

LOOK_S = 1.0


def main() -> None:
    given = _arguments()
    redis, paths = (
        RedisSettings(given.redis),
        PathSettings(given.shm_dir, state_dir=given.state_dir),
    )
    heartbeat_s = SidecarSettings().heartbeat_s
    stores = [open_store(redis, given.job, os.environ, hears_reports=False) for _ in range(2)]
    report = AgentReport(
        node=given.node,
        incarnation=secrets.token_hex(4),
        state="joining",
        attempt=-1,
        beat=0,
        slots=1,
        address="127.0.0.1",
        min_nodes=given.nodes,
        max_nodes=given.nodes,
        last_call_s=0.0,
        version=__version__,
        pid=os.getpid(),
    )
    reporter, watch = Reporter(stores[0], report, heartbeat_s), PlanWatch(stores[1], heartbeat_s)
    where = places(paths, given.job, given.node)
    where.shm.mkdir(mode=0o700, parents=True, exist_ok=True)
    arguments = ["--job", given.job, "--node", given.node, "--launcher-pid", str(os.getpid())]
    arguments += ["--redis", given.redis, "--set", f"paths.shm_dir={given.shm_dir}"]
    arguments += ["--set", f"paths.state_dir={given.state_dir}"]
    arguments += [word for value in given.set for word in ("--set", value)]
    beside = SidecarProcess(arguments, where)
    beside.tell_end = lambda pid: reporter.say(ended_sidecar=pid)
    beside.start()
    watch.start()
    _follow(watch, reporter, report.incarnation)


def _follow(watch: PlanWatch, reporter: Reporter, incarnation: str) -> None:
    """Be where the plan says, for ever: whoever started this ends it."""
    watch.wait_for(lambda: watch.view, 60)
    known, fence, attempt = known_end(watch.plan, incarnation), PlanFence(), -1
    reporter.say(attempt=known)
    reporter.start()
    while True:
        plan = watch.plan
        if attempt < 0:
            if (
                while_joining(plan, incarnation, known, fence) is AttemptState.RUN
                and plan is not None
            ):
                attempt = known = plan.attempt
                fence = PlanFence(plan.attempt, plan.epoch)
                reporter.say(state="running", attempt=attempt, plan=watch.plan_text)
        elif while_running(plan, attempt, fence) is not AttemptState.WAIT:
            attempt = -1
            reporter.say(state="joining", attempt=known)
        before = watch.plan_text
        watch.wait_for(lambda before=before: watch.plan_text != before or None, LOOK_S)  # type: ignore[misc]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("job", "node", "redis", "state-dir", "shm-dir"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--set", action="append", default=[])
    return parser.parse_args()


if __name__ == "__main__":
    main()
