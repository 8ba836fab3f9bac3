"""A real job of one or two nodes on this machine, and what its leader tells of who is slow."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.benchmark import NotRun
from bench.launch.redis_server import RedisServer
from bench.stragglers.real_plan import Plan
from holdfast_sidecar.store.protocol import Keys, Section

PROGRAM = Path(__file__).with_name("real_rank.py")
ROOT = Path(__file__).parents[2]
JOB = "slow"
LOOK_S = 0.02
START_LIMIT_S = 60.0

BRISK = (
    "--set=sidecar.tick_s=0.1",
    "--set=sidecar.heartbeat_s=0.1",
    "--set=snapshot.peer=off",
)
"""Steps take a fifth of a second here, where those of large models take seconds: the sidecars look
as often in a step as they do there."""


@dataclass
class Told:
    """Standings in their order, each as it was first seen, and what ranks say of themselves."""

    standings: list[dict[str, Any]] = field(default_factory=list)
    own_s: dict[int, list[float]] = field(default_factory=dict)
    """rank -> what it did itself in each step."""
    step_s: list[float] = field(default_factory=list)
    """How long each step took, by rank 0."""
    saves: int = 0
    """Checkpoints that came about."""


@dataclass(frozen=True)
class Node:
    """One launcher: its name, how many ranks, and what its command is prefixed with."""

    name: str
    ranks: int
    inside: Sequence[str] = ()
    environment: dict[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()


def run(
    plan: Plan,
    nodes: Sequence[Node],
    on_step: Callable[[int], None] = lambda step: None,
) -> Told:
    """Run the plan to its end. on_step: told how far the judging is, now and then."""
    with _folder() as folder, _groups(plan) as plan:
        (folder / "plan.json").write_text(plan.spell())
        server = RedisServer(folder)
        launched: list[subprocess.Popen[bytes]] = []
        try:
            for node in nodes:
                launched.append(_start(node, nodes, server, folder, plan))
            told = Told(_watch(server, launched, plan, on_step, folder))
            told.saves = server.client().hlen(Keys(JOB).section(Section.LEDGER))
            _check(launched, folder)
        finally:
            for process in launched:
                _end(process)
            server.stop()
        for path in folder.glob("own-*.json"):
            rank, noted = int(path.stem.partition("-")[2]), json.loads(path.read_text())
            told.own_s[rank] = noted["own_s"]
            if rank == 0:
                told.step_s = [later - one for one, later in pairwise(noted["begun_s"])]
        return told


def _start(
    node: Node, nodes: Sequence[Node], server: RedisServer, folder: Path, plan: Plan
) -> subprocess.Popen[bytes]:
    for place in ("shm", "state", "checkpoints"):
        (folder / place).mkdir(exist_ok=True)
    command = [
        *node.inside,
        *(sys.executable, "-m", "holdfast_sidecar.cli.main", "run"),
        *(f"--job={JOB}", f"--node={node.name}", f"--redis={server.url}"),
        *(f"--nnodes={len(nodes)}", f"--nproc-per-node={node.ranks}"),
        *(*BRISK, *_saving(plan, folder), *node.options, str(PROGRAM)),
    ]
    outside = ("HOLDFAST_", "PET_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(outside)} | {
        "PLAN": str(folder / "plan.json"),
        "HOLDFAST_SET_PATHS_SHM_DIR": str(folder / "shm"),
        "HOLDFAST_SET_PATHS_STATE_DIR": str(folder / "state"),
        "OMP_NUM_THREADS": "1",
        # The program asks this package for its plan, from wherever the benchmark was started.
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        **node.environment,
    }
    with (folder / f"{node.name}.log").open("wb") as log:
        return subprocess.Popen(
            command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
        )


def _saving(plan: Plan, folder: Path) -> list[str]:
    if not plan.saves_every:
        return []
    where = f"--checkpoint-dir={folder / 'checkpoints'}"
    return [where, f"--set=checkpoint.every_steps={plan.saves_every}"]


def _watch(
    server: RedisServer,
    launched: Sequence[subprocess.Popen[bytes]],
    plan: Plan,
    on_step: Callable[[int], None],
    folder: Path,
) -> list[dict[str, Any]]:
    """Every standing that is seen, until the launchers end."""
    client, keys = server.client(), Keys(JOB)
    seen: list[dict[str, Any]] = []
    until_s = time.monotonic() + START_LIMIT_S + plan.steps * plan.own_s * 4
    while any(process.poll() is None for process in launched):
        if time.monotonic() > until_s:
            _tell_logs(folder)
            raise NotRun(f"the job of seed {plan.seed} was not through in time")
        for text in client.hvals(keys.section(Section.NODES)):
            standing = json.loads(str(text)).get("slow")
            if standing and (not seen or standing["step"] > seen[-1]["step"]):
                seen.append({name: standing[name] for name in ("step", "slow", "unjudged")})
                on_step(standing["step"])
        time.sleep(LOOK_S)
    return seen


def _check(launched: Sequence[subprocess.Popen[bytes]], folder: Path) -> None:
    codes = [process.wait(30) for process in launched]
    if any(codes):
        _tell_logs(folder)
        raise NotRun(f"the job ended with {codes}")


def _tell_logs(folder: Path) -> None:
    for log in sorted(folder.glob("*.log")):
        print(log.read_text(errors="replace")[-4000:], file=sys.stderr)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
    if process.poll() is None:
        process.kill()
        process.wait()


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="hf-real-", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _groups(plan: Plan) -> Iterator[Plan]:
    """The plan with a control group for every rank whose quota it sets; NotRun where none can be
    made."""
    wanted = sorted({one.rank for one in plan.episodes if one.cause == "cpu_quota"})
    made: list[Path] = []
    try:
        for rank in wanted:
            made.append(_make_group(f"holdfast-bench-{os.getpid()}-{rank}"))
        groups = {str(rank): str(group) for rank, group in zip(wanted, made, strict=True)}
        yield replace(plan, groups=groups)
    finally:
        for group in made:
            _remove_group(group)


def _make_group(name: str) -> Path:
    for root in ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup"):
        group = Path(root) / name
        with contextlib.suppress(OSError):
            group.mkdir()
            if any((group / file).exists() for file in ("cpu.max", "cpu.cfs_quota_us")):
                return group
            group.rmdir()
    raise NotRun("no control group with a CPU quota can be made here")


def _remove_group(group: Path) -> None:
    until_s = time.monotonic() + 5.0
    while time.monotonic() < until_s:
        try:
            group.rmdir()
        except OSError:
            time.sleep(0.05)
        else:
            return
