"""The lowest rungs of the ladder: what is learnt of each phase, for the jobs that run here."""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click

from holdfast.contract import page
from holdfast_sidecar.checks import judge_fabric
from holdfast_sidecar.cli.doctor import FAIL, NOTE, OK, WARN, Check
from holdfast_sidecar.cli.doctor.gpu import Driver, ask, check_fabric, judge_driver, judge_untried
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
from holdfast_sidecar.cli.options import read_options
from holdfast_sidecar.cli.tables import BAD, DOUBTFUL, GOOD, paint, table
from holdfast_sidecar.components.gpu.links import LinkMemory, remember_links
from holdfast_sidecar.components.hardware import HardwareAttention
from holdfast_sidecar.components.health_check.checks import (
    CHECKPOINT,
    CHECKS,
    GPU_PROBE,
    Fitness,
    Subject,
    judge_fitness,
)
from holdfast_sidecar.components.host.host import HostProbe
from holdfast_sidecar.components.machine import MachineReading
from holdfast_sidecar.components.network.rdma import FabricProbe, Selection
from holdfast_sidecar.components.xid.component import XidAttention
from holdfast_sidecar.components.xid.storage import read_boot, read_history
from holdfast_sidecar.config import timeouts
from holdfast_sidecar.config.loading import Effective, read_seconds
from holdfast_sidecar.config.paths import find, history_of, state_root
from holdfast_sidecar.config.settings import Settings, StallSettings
from holdfast_sidecar.config.timeouts import (
    ForeignTimeouts,
    foreign_rungs,
    parse_slurm,
    parse_surroundings,
    torchrun_rung,
)
from holdfast_sidecar.linux.files import KernelTrees
from holdfast_sidecar.linux.kmsg import KernelLog
from holdfast_sidecar.linux.probe_runner import ProbeRunner
from holdfast_sidecar.ranks.history import PhaseDurations
from holdfast_sidecar.ranks.page import Pages
from holdfast_sidecar.ranks.stall import MEASURED, STEPS_TO_TRUST, USUAL_SHARE
from holdfast_sidecar.records.findings import Finding, Moment
from holdfast_sidecar.records.reports import ProbeHealth


@dataclass(frozen=True)
class RunningJob:
    """Living ranks of one node, each with what its latest steps took."""

    job: str
    node: str
    paces: list[PhaseDurations] = field(default_factory=list)


def check_phases(settings: Settings) -> list[Check]:
    """What holds for every job, then each job that runs here."""
    return [describe_rule(settings.stall), *judge_jobs(read_jobs(settings), settings.stall)]


def describe_rule(stall: StallSettings) -> Check:
    """From what the limits are made."""
    if stall.limit_s:
        line = f"a phase's silence is declared after stall.limit_s = {stall.limit_s:g} s"
    else:
        line = (
            f"a phase's silence is declared after {stall.factor:g} times what "
            f"{USUAL_SHARE:.0%} of its steps took, at least {stall.floor_s:g} s; "
            f"{stall.first_step_s:g} s before the first step"
        )
    return Check("timeouts", OK, line)


def judge_jobs(jobs: Iterable[RunningJob], stall: StallSettings) -> Iterator[Check]:
    """One line for each job whose steps tell something."""
    for job in jobs:
        known = [pace for pace in job.paces if pace.steps_learnt >= STEPS_TO_TRUST]
        limits = {
            phase.name.lower(): max(limit_s(pace, part, stall) for pace in known)
            for phase, part in MEASURED.items()
            if known
        }
        if limits:
            yield _judge_phases(job, limits, stall)


def limit_s(pace: PhaseDurations, part: str, stall: StallSettings) -> float:
    """When the silence of this part of a step is declared, seconds."""
    usual_s = pace.parts[part].quantile_s(USUAL_SHARE)
    return stall.limit_s or max(stall.floor_s, stall.factor * usual_s)


def read_jobs(settings: Settings) -> list[RunningJob]:
    """The jobs of this user whose ranks live here, from their pages."""
    root = Path(settings.paths.shm_dir) / f"holdfast-{os.getuid()}"
    found = (_read_job(directory) for directory in find(root, "*/*"))
    return [job for job in found if job.paces]


def _read_job(directory: Path) -> RunningJob:
    pages = Pages(directory)
    try:
        contents = [held.read() for held in pages.refresh() if not held.is_gone()]
    finally:
        pages.close()
    records = [[record for _, record in page.parse_records(one, 0)] for one in contents]
    return RunningJob(
        directory.parent.name, directory.name, [PhaseDurations().after(r) for r in records]
    )


def _judge_phases(job: RunningJob, limits: dict[str, float], stall: StallSettings) -> Check:
    told = ", ".join(f"{limit:.3g} s in {phase}" for phase, limit in limits.items())
    line = f"job {job.job} on {job.node}: declared after {told}"
    longest = max(limits.values())
    if not stall.act_after_s or longest < stall.act_after_s:
        return Check("timeouts", OK, line)
    why = "silence would be acted on the moment it is declared: raise it"
    act = f"stall.act_after_s = {stall.act_after_s:g} s"
    return Check("timeouts", FAIL, f"{line}; {act} is not above that: {why}")


# The timeout ladder, rung by rung: ours among themselves, and beside those of others.


def check_timeouts(settings: Settings, around: ForeignTimeouts | None = None) -> list[Check]:
    """One line per rung, lowest first; whatever else doesn't fit together follows."""
    rungs = [(rung, FAIL) for rung in timeouts.rungs(settings)]
    if around is not None:
        rungs += [(rung, FAIL) for rung in foreign_rungs(settings, around)]
        rungs.append((torchrun_rung(settings), NOTE))
    rungs.sort(key=lambda pair: (pair[0].lower_s, pair[0].upper_s))
    steps = [_judge_timeouts(rung, broken) for rung, broken in rungs]
    return steps + [Check("settings", FAIL, line) for line in timeouts.misfits(settings)]


def _judge_timeouts(rung: timeouts.Rung, broken: str) -> Check:
    line = f"{rung.lower_name} = {rung.lower_s:g} s < {rung.upper_name} = {rung.upper_s:g} s"
    if rung.holds:
        return Check("timeouts", OK, line)
    return Check("timeouts", broken, f"{line} does not hold: {rung.why}")


# The timeouts of torch, NCCL, Slurm and Kubernetes, where they can be read.

ASKING_S = 5.0
"""A controller that takes longer is in trouble."""


def read_surroundings(
    environ: Mapping[str, str], group_timeout_s: float | None, grace_s: float | None
) -> ForeignTimeouts:
    """What is around this process. Slurm is asked only from inside one of its jobs."""
    slurm = read_slurm() if environ.get("SLURM_JOB_ID") else ""
    return parse_surroundings(environ, parse_slurm(slurm), group_timeout_s, grace_s)


def read_slurm(command: str = "scontrol") -> str:
    """What `scontrol show config` prints; empty when it does not answer."""
    try:
        return subprocess.run(
            [command, "show", "config"],
            capture_output=True,
            text=True,
            timeout=ASKING_S,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


# Whether a job would take this node in: the health gate's own checks, over readings of now.
#
# What only a job can tell is left out: the clocks of other nodes (`redis_server` looks at one), and
# what came of a test.

OF_A_JOB = ("clock", "test")
"""Checks that have nothing to go by here."""

OUT = "this node would be kept out of a job"


def check_gate(settings: Settings, driver: Driver) -> list[Check]:
    """Look at what the gate looks at, with the settings given."""
    acts = (settings.gate.mode or settings.sidecar.mode) == "act"
    return list(judge(look(settings, driver), acts))


def look(settings: Settings, driver: Driver) -> Fitness:
    """Read what the gate judges by, once."""
    now_s = time.monotonic()
    machine = _read(settings, driver, now_s)
    moment = Moment(now_s, time.time(), "")
    reading = machine.gpu
    links = LinkMemory() if reading is None else remember_links(LinkMemory(), reading.gpus)
    # A port that is not there now counts as one that was not there for as long as it takes.
    later = dataclasses.replace(moment, now_s=now_s + settings.fabric.drop_s)
    findings = [
        *judge_fabric(machine, settings.fabric, later),
        *_find_gpu_faults(machine, settings, moment),
    ]
    return judge_fitness(Subject(machine, settings.gate, findings, links))


def _find_gpu_faults(machine: MachineReading, settings: Settings, moment: Moment) -> list[Finding]:
    """As a sidecar would that starts now: by what is remembered of a day, and the kernel's log."""
    boot = read_boot()
    history = read_history(history_of(settings.paths), boot)
    hardware = HardwareAttention(xids=XidAttention(boot=boot, history=history))
    heard = hardware.hear(machine)
    return hardware.findings(hardware.follow(heard, -1, {}, False, moment), {}, moment)


def judge(fitness: Fitness, acts: bool) -> Iterator[Check]:
    """One check for each thing that is wrong, and for what can't be seen."""
    works = all(trouble.works for trouble in fitness.troubles)
    for trouble in fitness.troubles:
        line = f"{OUT}: {trouble.what}"
        if not acts:
            line = f"{trouble.what}: it would be told, and the node taken in (gate.mode)"
        elif works:
            line += " (where too few others are there it would be taken in all the same)"
        yield Check(f"gate: {trouble.check}", FAIL if acts else WARN, line)
    for name, why in fitness.blind.items():
        yield Check(f"gate: {name}", NOTE, f"can't be checked, and keeps nobody out: {why}")
    if not fitness.troubles:
        passed = [name for name in CHECKS if fitness.passes(name) and name not in OF_A_JOB]
        yield Check("gate", OK, f"this node would be taken into a job ({', '.join(passed)})")


def _read(settings: Settings, driver: Driver, now_s: float) -> MachineReading:
    trees = KernelTrees(settings.paths.machine_root)
    where = settings.checkpoint.dir
    rooms = {CHECKPOINT: Path(where)} if where and "://" not in where else {}
    host = ProbeRunner(HostProbe(rooms, trees, settings.host), every_s=0.0)
    ports = FabricProbe(trees.sys / "class/infiniband", Selection.of(settings.fabric))
    fabric = ProbeRunner(ports, every_s=0.0)
    kernel = ProbeRunner(KernelLog(lambda: None, trees.kernel_log), every_s=0.0)
    reading = driver.reading
    if reading is not None:
        reading = dataclasses.replace(reading, read_at_s=now_s)
    silent = ProbeHealth(GPU_PROBE, False, 1, 0.0, driver.trouble or driver.error)
    read = MachineReading(
        host=host.read(now_s),
        gpu=reading,
        fabric=fabric.read(now_s),
        kernel=kernel.read(now_s),
    )
    kernel.close()
    health = [host.health, fabric.health, *([] if reading is not None else [silent])]
    return dataclasses.replace(read, failing=tuple(one for one in health if not one.is_up))


# `holdfast doctor`: looks at this machine and the settings before a job does.

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
        click.echo(checks_page(checks))
    sys.exit(1 if any(check.verdict == FAIL for check in checks) else 0)


def examine(
    effective: Effective, ranks: int, around: ForeignTimeouts, nodes: int = 1
) -> list[Check]:
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


def checks_page(checks: list[Check]) -> str:
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
