"""`holdfast attach`: watch a job that somebody else launched."""

from __future__ import annotations

import dataclasses
import logging
import os
import shlex
import socket
import sys
from collections.abc import Mapping

import click

from holdfast.contract import environment, foreign_launch
from holdfast_sidecar.cli.options import serving_options, settings_options
from holdfast_sidecar.config.loading import Effective
from holdfast_sidecar.config.paths import NAME, state_root
from holdfast_sidecar.config.settings import BadInput, Settings
from holdfast_sidecar.config.timeouts import MODES


@click.command()
@click.option("--job", envvar=environment.JOB, metavar="NAME", help="What to call the job.")
@click.option("--node", metavar="NAME", help="What to call this node (Slurm's name, or the host).")
@click.option("--environment", "prints", is_flag=True, help="Print what the ranks need; no more.")
@click.option("--pid", "pids", type=int, multiple=True, metavar="PID", help="Watch from outside.")
@click.option("--match", metavar="TEXT", help="The same: my processes whose command holds TEXT.")
@click.option("--mode", type=click.Choice(MODES), default="observe", show_default=True)
@click.option("--stay", is_flag=True, help="Wait for the next start once all ranks have ended.")
@serving_options
@settings_options
def attach(
    effective: Effective,
    job: str | None,
    node: str | None,
    prints: bool,
    pids: tuple[int, ...],
    match: str | None,
    mode: str,
    stay: bool,
    listen: str | None,
) -> None:
    """Watch a job that srun, mpirun or Kubernetes started, on this node.

    With hooks, which see steps, phases and collectives: set the variables where the job is started,
    and attach once per node, before or after it.

    \b
      eval "$(holdfast attach --environment --job llm)"
      srun python train.py &
      srun --overlap --ntasks-per-node=1 holdfast attach --job llm

    Without hooks, from outside: CPU time, sockets, input and output, stacks. PID may be what
    launched them (mpirun, srun's step, a shell): what that started is looked through for ranks.

    \b
      holdfast attach --job llm --pid $(pgrep -o mpirun)
      holdfast attach --job llm --match train.py

    Nothing is done to the job unless --mode=act, and then at most the culprit of a hang is ended,
    so that its launcher notices. `holdfast explain` tells the story, also afterwards. Several nodes
    need the same --redis to know of each other.

    \b
    Exit code: 0 every rank ended, or you ended the watch, and no trouble was left
               1 an incident was left
               2 something you gave is wrong
    """
    name = job or _scheduled_job(os.environ)
    if prints:
        click.echo(exports(name, effective.settings))
        return
    here = node or foreign_launch.node_name(os.environ, socket.gethostname())
    for what, given in (("job", name), ("node", here)):
        if not NAME.fullmatch(given):
            raise BadInput(f"{given!r} can't name a {what}: use letters, digits and . _ ~ -")
    logging.basicConfig(level=logging.ERROR, format="%(name)s: %(message)s")
    sidecar = dataclasses.replace(effective.settings.sidecar, mode=mode)
    if listen:
        sidecar = dataclasses.replace(sidecar, listen=listen)
    from holdfast_sidecar.cli.attach_watch import Watched, watch_pages

    watched = Watched(name, here, dataclasses.replace(effective.settings, sidecar=sidecar), stay)
    if pids or match:
        from holdfast_sidecar.cli.attach_outside import watch_outside

        sys.exit(watch_outside(watched, pids, match))
    sys.exit(watch_pages(watched))


def _scheduled_job(environ: Mapping[str, str]) -> str:
    """The name of a job that has none, from its scheduler."""
    number = environ.get("SLURM_JOB_ID", "")
    return f"slurm-{number}" if number.isdecimal() else "attached"


def exports(job: str, settings: Settings) -> str:
    """Lines for a shell, which set what ranks need."""
    root = str(state_root(settings.paths))
    needed = foreign_launch.rank_environment(job, settings.paths.shm_dir, root, os.getuid())
    path = shlex.quote(needed.pop("PYTHONPATH"))
    lines = [f"export {name}={shlex.quote(value)}" for name, value in needed.items()]
    return "\n".join([*lines, f'export PYTHONPATH={path}"${{PYTHONPATH:+:$PYTHONPATH}}"'])
