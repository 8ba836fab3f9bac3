"""torch's LaunchConfig and WorkerSpec from our command line: every option keeps its meaning."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import itertools
import os
import shutil
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.multiprocessing import Std
from torch.distributed.launcher.api import LaunchConfig
from torch.distributed.run import config_from_args, determine_local_world_size

from holdfast.owned import owned_file
from holdfast.permit import NotPermitted
from holdfast.removing import rmtree
from holdfast_sidecar.config.settings import BadInput, PolicySettings
from holdfast_sidecar.launcher.arguments import OURS, Arguments
from holdfast_sidecar.launcher.function_rank import run_path

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
