"""Shared memory, state and checkpoints: writable, and with room."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

import redis
from redis.exceptions import RedisError

from holdfast.contract.identity import ProcessIdentity, is_alive
from holdfast.contract.owned import owned_file
from holdfast.contract.removing import rmdir
from holdfast.contract.storage import absolute, is_url, open_folder, written_here
from holdfast_sidecar import __version__, startup
from holdfast_sidecar.checkpoint.ledger import untouched
from holdfast_sidecar.cli.doctor import FAIL, NOTE, OK, WARN, Check
from holdfast_sidecar.cli.doctor.host import CLOCKS_APART
from holdfast_sidecar.components.host.clock import LEAST_OTHERS, how_far_off
from holdfast_sidecar.config import timeouts
from holdfast_sidecar.config.addresses import describe, is_loopback, parse_listen
from holdfast_sidecar.config.paths import find, state_root
from holdfast_sidecar.config.settings import (
    BadInput,
    NodesSettings,
    RedisSettings,
    Settings,
    SidecarSettings,
)
from holdfast_sidecar.export.access import Protection, open_protection
from holdfast_sidecar.export.http_server import PortTaken, Server
from holdfast_sidecar.export.job_record import JobRecord, read_record
from holdfast_sidecar.store.connection import check_server, connect, most_nodes
from holdfast_sidecar.store.embedded import find_binary

_PROBE = "holdfast-doctor-was-here"

LITTLE_BYTES = 10 * 2**30
"""One checkpoint of a model worth the trouble: below this a warning costs less than a full disk."""


def check_directories(settings: Settings, ranks: int) -> list[Check]:
    """Look at every directory that a node with this many ranks will use; what has to be made for
    that is removed again."""
    used = [state_root(settings.paths)]
    if settings.checkpoint.dir and not is_url(settings.checkpoint.dir):
        used.append(Path(settings.checkpoint.dir))
    with _left_as_found(used):
        return _check_all(settings, ranks)


@contextlib.contextmanager
def _left_as_found(paths: Sequence[Path]) -> Iterator[None]:
    """Removes what was made of these and the directories above them, unless something is in it."""
    missing = {
        place for path in paths for place in (path, *path.parents) if not os.access(place, os.F_OK)
    }
    yield
    for place in sorted(missing, key=lambda place: len(place.parts), reverse=True):
        with contextlib.suppress(OSError):
            rmdir(owned_file(place))


def _check_all(settings: Settings, ranks: int) -> list[Check]:
    shm, state = Path(settings.paths.shm_dir), state_root(settings.paths)
    found = [
        _judge("shared memory", shm, startup.shm_problem(settings, ranks, startup.read_room)),
        _judge("state", state, startup.state_problem(settings)),
    ]
    losses = startup.losses(settings)
    found = [
        Check(check.what, WARN, losses[check.what])
        if check.verdict != FAIL and check.what in losses
        else check
        for check in [*found, _check_checkpoints(settings)]
    ]
    return [*found, *_check_left_alone(settings.checkpoint.dir)]


def _check_left_alone(root: str) -> list[Check]:
    """What else lies there: neither is it lost on us, nor is it ours to remove."""
    try:
        lines = untouched(absolute(root)).describe(root) if root else []
    except OSError:  # told by the check before
        return []
    return [Check("checkpoints", NOTE, line) for line in lines]


def _check_checkpoints(settings: Settings) -> Check:
    if not settings.checkpoint.dir:
        line = (
            "no checkpoint.dir is set: a restart goes on from snapshots in memory, or from nothing"
        )
        return Check("checkpoints", NOTE, line)
    if is_url(settings.checkpoint.dir):
        return _check_url(settings)
    path = Path(settings.checkpoint.dir)
    found = _judge("checkpoints", path, startup.checkpoint_problem(settings))
    room = startup.read_room(path)
    if found.verdict == OK and room is not None and room.free_bytes < LITTLE_BYTES:
        return Check("checkpoints", WARN, f"{found.line}: room for little more than one")
    if found.verdict == OK and _is_everybodys(path):
        line = f"{found.line}: every user may write there, and rename or remove what is yours"
        return Check("checkpoints", WARN, f"{line}: chmod o-w it, or set its sticky bit")
    return found


def _is_everybodys(path: Path) -> bool:
    """With the sticky bit only who made a name in it may remove it."""
    mode = path.stat().st_mode if path.is_dir() else 0
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX


def _check_url(settings: Settings) -> Check:
    """Write a file there and remove it: whoever may list a bucket may still not write to it."""
    url = settings.checkpoint.dir
    if problem := startup.checkpoint_problem(settings):
        return Check("checkpoints", FAIL, problem)
    folder = open_folder(url)
    try:
        folder.write(_PROBE, b"")
        folder.remove(_PROBE, written_here(folder, _PROBE))
    except OSError as error:
        return Check("checkpoints", FAIL, f"{url} can't be written: {error.strerror or error}")
    return Check("checkpoints", OK, url)


def _judge(what: str, path: Path, problem: str | None) -> Check:
    if problem:
        return Check(what, FAIL, problem)
    room = startup.read_room(path)
    free = "" if room is None else f", {startup.binary_size(room.free_bytes)} free"
    return Check(what, OK, f"{path}{free}")


# The coordination server: one that was named, or the one we would start ourselves.

LARGE_SKEW_S = 1.0
"""Beyond this the order of events in a story can't be trusted. Restarts, some of whose waits go by
the leader's wall clock (see `machine.judge_clock`), would bear more."""


def check_redis(
    settings: RedisSettings, environment: Mapping[str, str], clock_off_s: float, nodes: int = 1
) -> list[Check]:
    """Look at the server these settings lead to. `clock_off_s`: as in the gate's settings. nodes:
    that the job is to have."""
    try:
        if not settings.url:
            return [_check_embedded()]
        with connect(settings, environment) as client:
            return _check_named(client, describe(settings.url), clock_off_s, nodes)
    except BadInput as error:
        return [Check("redis", FAIL, str(error))]


def _check_named(client: redis.Redis, where: str, clock_off_s: float, nodes: int) -> list[Check]:
    if problems := check_server(client):
        return [Check("redis", FAIL, problem.line) for problem in problems]
    found = Check("redis", OK, f"{where} answers, keeps keys, allows all we need")
    return [found, *_check_room(client, nodes), *_check_skew(client, clock_off_s)]


def judge_room(room: int | None, nodes: int) -> list[Check]:
    """Whether the server takes the connections of so many nodes."""
    if room is None:
        return []
    line = f"room for the connections of {room} more nodes"
    if room < nodes:
        line += f", and {nodes} are to come: raise its maxclients (and its limit of open files)"
        return [Check("clients", FAIL, line)]
    return [Check("clients", OK, line)]


def _check_room(client: redis.Redis, nodes: int) -> list[Check]:
    try:
        return judge_room(most_nodes(client.info("clients")), nodes)  # type: ignore[arg-type,unused-ignore]
    except (RedisError, OSError):  # an ACL may forbid it
        return []


def judge_skew(skew_s: float, clock_off_s: float) -> Check:
    """Whether this machine's clock and the server's tell the same time; the gate would judge it by
    those of the other nodes, which are not known here."""
    line = f"{abs(skew_s):.1f} s {'ahead of' if skew_s > 0 else 'behind'} the Redis server's"
    if how_far_off([skew_s] * LEAST_OTHERS, clock_off_s):
        line += ", and where most other nodes go by that, this node would be kept out of a job"
        return Check("clock", WARN, f"{line} (gate.clock_off_s)")
    if abs(skew_s) > LARGE_SKEW_S:
        return Check("clock", WARN, f"{line}: {CLOCKS_APART}")
    return Check("clock", OK, "agrees with the Redis server's")


def _check_embedded() -> Check:
    binary = find_binary()
    line = f"none named: `run` on a single node starts {binary.path}; several nodes need --redis"
    return Check("redis", OK, line)


def _check_skew(client: redis.Redis, clock_off_s: float) -> list[Check]:
    try:
        before = time.time()
        seconds, micros = client.time()  # type: ignore[misc,unused-ignore]
        after = time.time()
    except (RedisError, OSError):  # an ACL may forbid it; nothing rests on it
        return []
    return [judge_skew((before + after) / 2 - (float(seconds) + float(micros) / 1e6), clock_off_s)]


# Whether a sidecar would serve under these settings, and to whom.

SERVING = "sidecar.listen"


def check_serving(sidecar: SidecarSettings, state: Path) -> Check:
    """Open what it would open. state: of all jobs here, whose sidecars may well listen now."""
    try:
        host, port = parse_listen(sidecar.listen)
        protection = open_protection(sidecar)
        Server(sidecar.listen, protection).close()
    except PortTaken:
        return _taken(port, state)
    except BadInput as error:
        return Check(SERVING, FAIL, str(error))
    return _heard(sidecar.listen, host, protection)


def _taken(port: int, state: Path) -> Check:
    for record in find(state, "*/*/sidecar.json"):
        if _is_at(port, record):
            return Check(
                SERVING,
                NOTE,
                f"port {port} is the sidecar's of job {record.parent.parent.name}: it serves there;"
                " another job on this node needs another port",
            )
    return Check(
        SERVING,
        FAIL,
        f"port {port} is taken: a sidecar would serve nothing, no metrics and no page (`ss -ltnp`"
        " says by whom)",
    )


def _is_at(port: int, record: Path) -> bool:
    """Whether the sidecar of this record lives and serves at that port."""
    try:
        told = json.loads(record.read_text())
        at = str(told["metrics_address"]).rpartition(":")[2]
        return at == str(port) and is_alive(
            ProcessIdentity(int(told["pid"]), int(told["start_ticks"]))
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _heard(listen: str, host: str, protection: Protection) -> Check:
    if is_loopback(host):
        return Check(
            SERVING,
            NOTE,
            f"{listen}: for this machine alone. A Prometheus elsewhere, and a job of"
            " several nodes, want an address that others reach (docs/prometheus.md)",
        )
    how = "over TLS" if protection.certificate else "in the clear"
    who = "to whoever has the token" if protection.token else "to everybody who reaches it"
    return Check(SERVING, OK, f"{listen}: {how}, {who}")


# Python, torch and the C library, by what is installed; torch is never imported.

OLDEST_TORCH = (2, 10)
"""Before it, `torch.load(weights_only=True)` can corrupt memory (CVE-2026-24747)."""

OLDEST_PYTHON = (3, 11)


def check_software() -> list[Check]:
    """Look at this interpreter and what is installed in it."""
    return [
        judge_python(
            sys.version_info[:3], __version__, getattr(sys, "_is_gil_enabled", lambda: True)()
        ),
        judge_torch(_installed("torch")),
        judge_libc(platform.libc_ver()[0]),
    ]


def judge_python(version: tuple[int, ...], holdfast_version: str, has_gil: bool = True) -> Check:
    """Whether this Python will do."""
    text = ".".join(map(str, version))
    if version[:2] < OLDEST_PYTHON:
        return Check("python", FAIL, f"Python {text} is too old: 3.11 or later is needed")
    if not has_gil:
        line = f"Python {text} is free-threaded: Holdfast needs a build with the GIL"
        return Check("python", FAIL, line)
    return Check("python", OK, f"Python {text}, holdfast {holdfast_version}")


def judge_torch(version: str | None) -> Check:
    """Whether this torch will do; a node that only watches needs none."""
    if version is None:
        line = "not installed: enough to watch, but training needs `pip install holdfast[train]`"
        return Check("torch", WARN, line)
    if parse_release(version) < OLDEST_TORCH:
        return Check("torch", FAIL, f"torch {version} is too old: 2.10 or later is needed")
    return Check("torch", OK, f"torch {version}")


def judge_libc(name: str) -> Check:
    """The death watch rests on glibc's robust mutexes; a pidfd does without, a little later."""
    if name == "glibc":
        return Check("libc", OK, "glibc")
    return Check("libc", WARN, "not glibc: a rank's death is seen a little later")


def parse_release(version: str) -> tuple[int, int]:
    """Major and minor of `2.13.0+cpu`; (0, 0) when it has none."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


# What only matters to those who start the job by plain torchrun instead of `holdfast run`.

SHARE_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
MAX_RESTARTS = "PET_MAX_RESTARTS"
"""torchrun takes every option from PET_<OPTION> too."""


def check_torchrun(environment: Mapping[str, str]) -> list[Check]:
    """Look at what torchrun would inherit from this environment."""
    return [_judge_store(environment.get(SHARE_STORE)), _judge_restarts(environment)]


def _judge_store(value: str | None) -> Check:
    if value == "1":
        return Check("torchrun", OK, f"{SHARE_STORE}=1: every attempt gets a fresh store")
    line = (
        f"with torchrun's own rendezvous set {SHARE_STORE}=1: the store shared between attempts "
        "makes restarts on several nodes hang; `holdfast run` and --rdzv-backend=holdfast need not"
    )
    return Check("torchrun", NOTE, line)


def _judge_restarts(environment: Mapping[str, str]) -> Check:
    value = environment.get(MAX_RESTARTS)
    if value is None:
        line = "give plain torchrun --max-restarts 1 or more: its default of 0 restarts nothing"
        return Check("torchrun", NOTE, line)
    if value.isdecimal() and int(value) >= 1:
        return Check("torchrun", OK, f"{MAX_RESTARTS}={value}")
    return Check("torchrun", FAIL, f"{MAX_RESTARTS}={value} restarts nothing: make it 1 or more")


# Whether the commands exist that are to be run for nodes.


def check_hooks(settings: NodesSettings) -> list[Check]:
    """Look for their programs here, where this node may lead. Those that are not well formed are
    told of with the other settings that can't work."""
    commands = {"on_quarantine": settings.on_quarantine, "on_return": settings.on_return}
    return [
        _check(f"nodes.{name}", timeouts.program(command))
        for name, command in commands.items()
        if command and not timeouts.problem(command)
    ]


def _check(what: str, program: str) -> Check:
    if program and shutil.which(program) is None:
        line = f"there is no program {program!r} here: the command would fail when it is wanted"
        return Check(what, WARN, line)
    return Check(what, OK, program or "its program depends on what it is run for")


# Whether the state of the jobs that ran here last could be given back at a resume.

RESTORING = "resumes"


def check_restoring(root: Path) -> list[Check]:
    """Look at what the sidecars here kept of their jobs, below the root of all jobs."""
    found = ((state.name, read_record(state)) for state in sorted(find(root, "*/")))
    return list(judge_restoring((job, kept[0]) for job, kept in found if kept is not None))


def judge_restoring(jobs: Iterable[tuple[str, JobRecord]]) -> Iterator[Check]:
    """A line for each thing that a job could not be resumed for; one line when there is none."""
    doubts = [(job, reason) for job, record in jobs for reason in record.unrestorable]
    for job, reason in doubts:
        yield Check(RESTORING, WARN, f"job {job} could not be resumed: {reason}")
    if not doubts:
        yield Check(RESTORING, OK, "no job that ran here found state that it could not restore")
