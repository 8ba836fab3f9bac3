"""`holdfast doctor`: looks at this machine and the settings before a job does."""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import os
import sys

import click

from holdfast_sidecar.cli.doctor.check import FAIL, NOTE, OK, WARN, Check
from holdfast_sidecar.cli.doctor.gpu import ask, check_fabric, judge_driver, judge_untried
from holdfast_sidecar.cli.doctor.host import check_host, check_machine, check_memory
from holdfast_sidecar.cli.doctor.job import (
    check_directories,
    check_hooks,
    check_redis,
    check_restoring,
    check_serving,
    check_software,
    check_torchrun,
)
from holdfast_sidecar.cli.doctor.timeouts import (
    check_gate,
    check_phases,
    check_timeouts,
    read_surroundings,
)
from holdfast_sidecar.cli.options import read_options
from holdfast_sidecar.cli.tables import BAD, DOUBTFUL, GOOD, paint, table
from holdfast_sidecar.components.network.rdma import Selection
from holdfast_sidecar.config.loading import Effective, read_seconds
from holdfast_sidecar.config.paths import state_root
from holdfast_sidecar.config.timeouts import Surroundings
from holdfast_sidecar.linux.files import KernelTrees

COLOURS = {OK: GOOD, NOTE: "", WARN: DOUBTFUL, FAIL: BAD}


@click.command()
@click.option("--ranks", default=8, show_default=True, help="Ranks this node is to run.")
@click.option("--nodes", default=1, show_default=True, help="Nodes that the job is to have.")
@click.option(
    "--group-timeout",
    metavar="DURATION",
    help="What the script gives init_process_group(timeout=). Default: torch's.",
)
@click.option(
    "--grace",
    metavar="DURATION",
    help="What the scheduler leaves after SIGTERM, where it doesn't say so itself (Kubernetes).",
)
@click.option("--json", "as_json", is_flag=True, help="For scripts: a list of checks.")
@read_options
def doctor(
    effective: Effective,
    ranks: int,
    nodes: int,
    group_timeout: str | None,
    grace: str | None,
    as_json: bool,
) -> None:
    """Check this machine and the settings before a job does.

    The ladder of timeouts is printed lowest first: what was learnt of the jobs that run here, ours,
    and those of NCCL, gloo, torchrun and the scheduler that this machine tells of. One in the wrong
    order fails.

    ok: fine. note: worth knowing in some setups. warn: something is lost. fail: it will not work.

    \b
      holdfast doctor
      holdfast doctor --nodes 512 --ranks 8 --redis rediss://redis.example:6379
      holdfast doctor --group-timeout 2h --grace 60s
      holdfast doctor --json | jq '.[] | select(.verdict == "fail")'

    \b
    Exit code: 0 nothing failed
               1 something failed
               2 something you gave is wrong
    """
    # What probes say in a log stands in the checks.
    logging.basicConfig(level=logging.ERROR, format="%(message)s")
    around = read_surroundings(
        os.environ,
        read_seconds("--group-timeout", group_timeout) if group_timeout else None,
        read_seconds("--grace", grace) if grace else None,
    )
    checks = examine(effective, ranks, around, nodes)
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(check) for check in checks], indent=2))
    else:
        click.echo(page(checks))
    sys.exit(1 if any(check.verdict == FAIL for check in checks) else 0)


def examine(effective: Effective, ranks: int, around: Surroundings, nodes: int = 1) -> list[Check]:
    """Look at everything."""
    settings = effective.settings
    trees = KernelTrees(settings.paths.machine_root)
    driver = ask()
    parts = {
        "software": check_software(),
        "coordination": check_redis(settings.redis, os.environ, settings.gate.clock_off_s, nodes),
        "storage": [
            *check_directories(settings, ranks),
            *check_memory(settings),
            *check_restoring(state_root(settings.paths)),
        ],
        "processes": check_machine(trees),
        "host": check_host(trees),
        "GPUs": [*judge_driver(driver), *judge_untried(driver, settings, os.environ)],
        "network": check_fabric(trees, Selection.of(settings.fabric), settings.fabric.ports),
        "gate": [*check_gate(settings, driver), *check_hooks(settings.nodes)],
        "timeouts": [*check_phases(settings), *check_timeouts(settings, around)],
        "metrics": [check_serving(settings.sidecar, state_root(settings.paths))],
        "torchrun": check_torchrun(os.environ),
    }
    return [
        dataclasses.replace(check, part=part) for part, checks in parts.items() for check in checks
    ]


def page(checks: list[Check]) -> str:
    """The checks as a table, part by part, and a last line that sums them up."""
    rows = [[_painted(check.verdict), check.what, check.line] for check in checks]
    shown = zip(checks, table(["", "", ""], rows).splitlines()[1:], strict=True)
    parts = [
        "\n".join([part, *(f"  {line}" for _, line in of_part)])
        for part, of_part in itertools.groupby(shown, key=lambda one: one[0].part)
    ]
    failed = sum(check.verdict == FAIL for check in checks)
    warned = sum(check.verdict == WARN for check in checks)
    total = f"{len(checks)} checks: {failed} failed, {warned} warned"
    return "\n\n".join([*parts, total])


def _painted(verdict: str) -> str:
    return paint(verdict, COLOURS[verdict]) if COLOURS[verdict] else verdict
