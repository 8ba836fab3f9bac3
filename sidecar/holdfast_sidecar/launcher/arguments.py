"""The command line of `holdfast run`: torch's own parser, and the options that are Holdfast's."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import itertools
import logging
import os
import re
import shutil
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NoReturn

from torch.distributed.argparse_util import check_env
from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.multiprocessing import Std
from torch.distributed.launcher.api import LaunchConfig
from torch.distributed.run import config_from_args, determine_local_world_size, get_args_parser

from holdfast.contract.owned import owned_file
from holdfast.contract.permit import NotPermitted
from holdfast.contract.removing import rmtree
from holdfast_sidecar.config.loading import read_value
from holdfast_sidecar.config.settings import BadInput, PolicySettings
from holdfast_sidecar.launcher.rank_process import run_path

logger = logging.getLogger(__name__)

OURS = "holdfast"

FLAGS = {
    "redis": "redis.url",
    "redis_user": "redis.user",
    "redis_password_file": "redis.password_file",
    "checkpoint_dir": "checkpoint.dir",
    "time_limit": "policy.time_limit_s",
}
"""Options that are settings under a shorter name."""

DESCRIPTION = """\
Start a script on this node as torchrun would, and keep it running: every option of torchrun has
its effect. Unless --rdzv-backend names one of torch's own backends, nodes meet over Redis and the
job's leader restarts them; --max-restarts, if given, is then a cap on the policy's budget. With one
of torch's own backends (c10d, static, etcd) torch's agent restarts the ranks of its node as it
does under torchrun, and Holdfast's sidecar watches without acting.
"""


@dataclass(frozen=True)
class Arguments:
    """The parsed command line."""

    torch: Namespace
    """As torch's parser made it, with `rdzv_backend` and `max_restarts` None where not given."""
    job: str | None
    node: str | None
    spares: int
    policy: str | None
    sets: tuple[str, ...]
    flags: dict[str, str | None]
    uses_standby: bool = True

    @property
    def uses_own_rendezvous(self) -> bool:
        """Whether the leader's plan drives this job, rather than one of torch's rendezvous."""
        return self.torch.standalone or self.torch.rdzv_backend in (None, OURS)


def make_parser() -> ArgumentParser:
    """torch's parser with our options in a group of their own."""
    parser: ArgumentParser = get_args_parser()
    parser.prog = "holdfast run"
    parser.usage = "holdfast run [options] SCRIPT [options of the script]"
    parser.description = DESCRIPTION
    parser.error = refuse  # type: ignore[method-assign]
    ours = parser.add_argument_group("Holdfast")
    ours.add_argument(
        "--redis",
        metavar="URL",
        help="redis://, rediss://, unix:// or Sentinel "
        "URL; needed by more than one node, else a server is started here.",
    )
    ours.add_argument("--redis-user", metavar="NAME", help="ACL user.")
    ours.add_argument("--redis-password-file", metavar="FILE", help="File with the password.")
    ours.add_argument(
        "--job",
        metavar="NAME",
        help="The job's name, whose checkpoints it goes on from (default: --rdzv-id, else the "
        "script's name with an ending; several nodes need one, except under Slurm).",
    )
    ours.add_argument("--node", metavar="NAME", help="This node's name (default: host name).")
    ours.add_argument(
        "--policy", metavar="FILE", help="Settings file (default: holdfast.toml, if there is one)."
    )
    ours.add_argument(
        "--spares",
        metavar="N",
        type=int,
        default=0,
        help="Nodes that wait to replace a lost one, beside those of --nnodes.",
    )
    ours.add_argument("--checkpoint-dir", metavar="DIR", help="Where checkpoints go.")
    ours.add_argument("--checkpoint-every", metavar="N", help="`100steps`, or a time such as `5m`.")
    ours.add_argument(
        "--time-limit",
        metavar="TIME",
        help="Save and stop before this launch has run so long, such as `12h` (default: what Slurm "
        "says, under it).",
    )
    ours.add_argument(
        "--set",
        metavar="SECTION.NAME=VALUE",
        action="append",
        default=[],
        dest="sets",
        help="One setting; repeatable.",
    )
    ours.add_argument(
        "--no-standby",
        action=check_env,
        help="Keep no warm interpreters: restarts then take the time that importing torch takes.",
    )
    unset = {"rdzv_backend": None, "max_restarts": None}
    given = {name for name in unset if f"PET_{name.upper()}" in os.environ}
    parser.set_defaults(**{name: value for name, value in unset.items() if name not in given})
    return parser


def refuse(message: str) -> NoReturn:
    """What is wrong, without the 28 lines of usage that argparse would print before it."""
    if "training_script" in message:
        message = "no script to run was given"
    raise BadInput(f"{message} (see `holdfast run --help`)")


def parse_arguments(arguments: Sequence[str]) -> Arguments:
    """Parse; BadInput for what can't be understood. Leaves after --help."""
    found = make_parser().parse_args(arguments)
    if found.spares < 0:
        raise BadInput("--spares can't be negative")
    sets = tuple(found.sets) + tuple(parse_checkpoint_every(found.checkpoint_every))
    return Arguments(
        torch=found,
        job=found.job,
        node=found.node,
        spares=found.spares,
        policy=found.policy,
        sets=sets,
        flags={setting: getattr(found, name) for name, setting in FLAGS.items()},
        uses_standby=not found.no_standby,
    )


def parse_checkpoint_every(text: str | None) -> list[str]:
    """`100steps` or a duration, as settings; empty when not given. Who wants no checkpoints leaves
    the option out: 0 is refused."""
    if text is None:
        return []
    number = text.removesuffix("steps").removesuffix("step").strip()
    is_of_steps = number != text
    try:
        is_some = float(int(number) if is_of_steps else read_value("every_s", float, text)) > 0
    except ValueError:
        is_some = False
    if not is_some:
        raise BadInput(f"--checkpoint-every {text}: write it as 100steps, or as a time like 5m")
    if is_of_steps:
        return [f"checkpoint.every_steps={int(number)}"]
    return ["checkpoint.every_steps=0", f"checkpoint.every_s={text}"]


# torch's LaunchConfig and WorkerSpec from our command line: every option keeps its meaning.

GRACE_S = 30
"""Between the first signal to a rank and SIGKILL: torchrun's default."""

PUTS_ITS_OWN_FIRST = ("opentelemetry-instrument", "ddtrace-run")


@dataclass(frozen=True)
class Launch:
    """What torch's agent shall do on this node."""

    config: LaunchConfig
    entrypoint: str | Callable[..., Any]
    arguments: tuple[str, ...]
    script: str
    keeps_logs: bool
    """The user asked for log files, or for where they go."""

    def why_unhooked(self) -> str:
        """Why its ranks will probably run without hooks; empty: nothing speaks for it."""
        return why_unhooked([self.entrypoint, *self.arguments])

    def remove_unasked_logs(self) -> None:
        """torch makes a temporary log directory even for a launch that logs nothing."""
        if not self.keeps_logs and self.config.logs_specs.root_log_dir != os.devnull:
            with contextlib.suppress(OSError, NotPermitted):
                rmtree(owned_file(self.config.logs_specs.root_log_dir))

    def make_spec(self, rendezvous: Any) -> WorkerSpec:
        """The worker spec, as torch's own launcher makes it."""
        config = self.config
        address, port = None, None
        if config.rdzv_backend == "static":
            host, _, number = config.rdzv_endpoint.rpartition(":")
            address, port = host, int(number)
        return WorkerSpec(
            **supported(
                WorkerSpec,
                role=config.role,
                local_world_size=config.nproc_per_node,
                entrypoint=self.entrypoint,
                args=self.arguments,
                rdzv_handler=rendezvous,
                max_restarts=config.max_restarts,
                monitor_interval=config.monitor_interval,
                master_addr=address,
                master_port=port,
                local_addr=config.local_addr,
                event_log_handler=config.event_log_handler,
                numa_options=getattr(config, "numa_options", None),
                duplicate_stdout_filters=getattr(config, "duplicate_stdout_filters", None),
                duplicate_stderr_filters=getattr(config, "duplicate_stderr_filters", None),
                virtual_local_rank=getattr(config, "virtual_local_rank", False),
            )
        )

    def agent_options(self) -> dict[str, Any]:
        """The options of torch's agent beside its spec."""
        return {
            "logs_specs": self.config.logs_specs,
            "start_method": self.config.start_method,
            "log_line_prefix_template": self.config.log_line_prefix_template,
            "shutdown_timeout": getattr(self.config, "shutdown_timeout", None) or GRACE_S,
        }


def why_unhooked(command: Sequence[object]) -> str:
    """Why a rank that is started by this command won't find the hooks on its PYTHONPATH.

    Beside torch's own `python -u script` this is a program of the user's (`--no-python`).
    """
    program, *rest = map(str, command)
    name = Path(program).name
    if name in PUTS_ITS_OWN_FIRST:
        return f"{name} puts a sitecustomize of its own before Holdfast's"
    options = list(itertools.takewhile(lambda word: word.startswith("-"), rest))
    letters = "".join(word[1:] for word in options if not word.startswith("--"))
    ignoring = sorted(set(letters) & set("IES"))
    if name.startswith("python") and ignoring:
        return f"{name} -{ignoring[0]} does not look at PYTHONPATH, or runs no sitecustomize"
    return ""


def supported(callee: Any, **options: Any) -> dict[str, Any]:
    """Those options that this version of torch knows."""
    known = inspect.signature(callee).parameters
    return {name: value for name, value in options.items() if name in known}


def make_launch(arguments: Arguments, job: str, policy: PolicySettings) -> Launch:
    """Turn the command line into torch's configuration. BadInput in one line where it is wrong."""
    given = Namespace(**vars(arguments.torch))
    check_script(given)
    given.nproc_per_node = str(count_ranks(given.nproc_per_node))
    check_options(given)
    given.max_restarts = int(
        given.max_restarts if given.max_restarts is not None else policy.budget
    )
    if arguments.uses_own_rendezvous:
        given.rdzv_backend = OURS
        given.rdzv_id = job
        # torch warns about a missing endpoint; ours is the coordination server.
        given.rdzv_endpoint = given.rdzv_endpoint or "redis"
    elif given.master_port is None:
        given.master_port = 29500  # torchrun's default, which its parser leaves to its caller
    try:
        config, entrypoint, args = config_from_args(given)
    except OSError as error:
        where = f"--log-dir {given.log_dir}" if given.log_dir else "a temporary log directory"
        raise BadInput(f"{where}: {error.strerror or error}") from error
    except (ValueError, AssertionError, RuntimeError) as error:
        raise BadInput(str(error) or "torch refuses these options, and doesn't say why") from error
    if callable(entrypoint):
        entrypoint = run_path
    keeps_logs = bool(given.log_dir or given.logs_specs) or (given.redirects, given.tee) != (
        "0",
        "0",
    )
    return Launch(config, entrypoint, tuple(args), given.training_script, keeps_logs)


def count_ranks(text: str) -> int:
    """Ranks of this node, from a number or a kind of device."""
    try:
        count = int(determine_local_world_size(text))
    except (ValueError, RuntimeError) as error:
        reason = str(error).rstrip(".")
        raise BadInput(f"--nproc-per-node {text}: {reason}; give the number of ranks") from error
    if count < 1:
        raise BadInput(f"--nproc-per-node {text}: a node has at least 1 rank")
    return count


def check_options(given: Namespace) -> None:
    """Refuse what torch answers with an assertion, or with words that don't name the option."""
    if not given.monitor_interval > 0:
        raise BadInput(f"--monitor-interval {given.monitor_interval:g}: needs more than 0 seconds")
    for option, text in (("--redirects", given.redirects), ("--tee", given.tee)):
        try:
            Std.from_str(text)
        except ValueError:
            raise BadInput(
                f"{option} {text}: write 0 (nothing), 1 (stdout), 2 (stderr) or 3 (both), "
                "or for single ranks 0:3,1:2"
            ) from None


def check_script(given: Namespace) -> None:
    """Refuse a script, module or program that is not there."""
    name = given.training_script
    if given.no_python and not given.run_path:
        if shutil.which(name) is None:
            raise BadInput(f"there is no program {name} to run")
    elif given.module and not given.run_path:
        # PYTHON_EXEC may name an interpreter with other packages.
        if "PYTHON_EXEC" not in os.environ and not has_module(name):
            raise BadInput(f"there is no module {name} to run")
    elif not Path(name).exists():
        raise BadInput(f"there is no script {name}")
    elif Path(name).is_dir() and not (Path(name) / "__main__.py").exists():
        raise BadInput(f"{name} is a directory without a __main__.py: give the script in it")


def has_module(name: str) -> bool:
    """Whether the top-level package of a module can be found from the current directory."""
    top = name.partition(".")[0]
    return (
        PathFinder.find_spec(top, [str(Path.cwd()), *sys.path]) is not None
        or importlib.util.find_spec(top) is not None
    )


# When this launch's time is over: by its own setting, else as Slurm says. Asked at the start.

_LEFT = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")
"""squeue's %L: days-hours:minutes:seconds, as far as needed; else a word like UNLIMITED."""

NO_LIMIT = "UNLIMITED"

LEAST_S = 0.001
"""Of a job whose time is over: 0 would say that it has no limit."""

CLOCK_OFF_S = 60.0
"""More than clocks of a cluster differ by."""

ASKING_S = 5.0
"""A controller that takes longer is in trouble, and a launch does not wait for it."""


def read_left_s(
    policy: PolicySettings,
    environ: Mapping[str, str],
    now_unix_s: float,
    ask: Callable[[str], str] | None = None,
) -> float:
    """Seconds until this launch will be ended; 0: nobody has said.

    Slurm itself says how much is left: an end by the clock is wrong by as much as this node's clock
    is. The environment counts only where Slurm does not answer.
    """
    if policy.time_limit_s:
        return policy.time_limit_s
    job = environ.get("SLURM_JOB_ID", "")
    answer = (ask or read_left)(job) if job.isdecimal() else ""
    if NO_LIMIT in answer.split():
        return 0.0
    left = [left_s for line in answer.split() if (left_s := parse_left(line)) is not None]
    if left:  # a heterogeneous job has a line for each of its components
        return max(LEAST_S, min(left))
    return _left_by_the_clock(environ, now_unix_s)


def _left_by_the_clock(environ: Mapping[str, str], now_unix_s: float) -> float:
    """What Slurm since 22.05 leaves in the environment; 0: nothing, or this node's clock is off."""
    begins, ends = (environ.get(f"SLURM_JOB_{which}_TIME", "") for which in ("START", "END"))
    told_s = float(ends) - now_unix_s if ends.isdecimal() else 0.0
    # Both are by the controller's clock: a node whose own is far off says that it is after the end,
    # or before the start.
    is_off = begins.isdecimal() and now_unix_s < float(begins) - CLOCK_OFF_S
    return 0.0 if is_off else max(0.0, told_s)


def started_again(environ: Mapping[str, str]) -> int:
    """How often Slurm has started this job again; 0 where nobody counts."""
    told = environ.get("SLURM_RESTART_COUNT", "")
    return int(told) if told.isdecimal() else 0


def parse_left(text: str) -> float | None:
    """Seconds of `1-02:03:04`, `2:03:04` or `3:04`; None for anything else."""
    match = _LEFT.fullmatch(text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def read_left(job: str) -> str:
    """What squeue says of the time that a job has left; empty when it says nothing."""
    try:
        answer = subprocess.run(
            ["squeue", "--noheader", f"--job={job}", "--format=%L"],
            capture_output=True,
            text=True,
            timeout=ASKING_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        logger.info("squeue does not say when job %s ends: %s", job, error)
        return ""
    return answer.stdout
