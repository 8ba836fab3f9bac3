"""Our rendezvous under plain torchrun; sidecars are run beside it (systemd, Slurm prolog, …).

--rdzv-endpoint is the Redis URL and --rdzv-id the job. --rdzv-conf may hold node=NAME, spares=N,
slots=N, join_timeout=S and last_call_timeout=S; settings come from holdfast.toml and environment.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import socket
import sys
from argparse import Namespace

from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.run import determine_local_world_size, get_args_parser

from holdfast.contract import environment
from holdfast.contract.environment import python_path
from holdfast_sidecar.config import loading
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.launcher import ownership, sidecar_process
from holdfast_sidecar.launcher.join import Entrance, context_for, read_timeouts
from holdfast_sidecar.launcher.rank_process import (
    SHARED_STORE_OFF,
    RankContext,
    holdfast_environment,
)
from holdfast_sidecar.launcher.rank_state import read_completed_steps
from holdfast_sidecar.launcher.rendezvous import Assignment, HoldfastRendezvous
from holdfast_sidecar.launcher.sidecar_process import has_own_sidecar
from holdfast_sidecar.startup import check_node


def create(parameters: RendezvousParameters) -> HoldfastRendezvous:
    """The handler for one torchrun. BadInput when refused."""
    flags = {"redis.url": parameters.endpoint or None}
    settings = loading.load(flags=flags).settings
    line = read_torchrun_line()
    if parameters.run_id == "none":
        raise BadInput("--rdzv-id names the job: give it the name that its sidecars have (--job)")
    entrance = Entrance(
        job=ownership.as_name(parameters.run_id),
        settings=settings,
        nodes=(parameters.min_nodes, parameters.max_nodes),
        spares=int(parameters.get("spares", 0)),
        slots=read_slots(parameters, line),
        script="" if line is None else line.training_script,
        arguments=() if line is None else tuple(line.training_script_args),
        local_address=parameters.local_addr,
        timeouts=read_timeouts(parameters.config, settings.policy),
        has_id=True,
    )
    check_node(settings, entrance.slots)
    server = sidecar_process.reach(settings.redis)
    entrance.check_shared()
    owned = ownership.own_node(settings.paths, entrance.job, parameters.get("node") or None)
    ownership.sweep_slots(owned.places.shm)
    entrance = dataclasses.replace(entrance, has_sidecar=has_own_sidecar(owned.places))
    server.write_record(owned.places)
    context = RankContext(
        job=entrance.job,
        node=owned.node,
        attempt=0,
        epoch=0,
        places=owned.places,
        hooks_path=python_path(),
        checkpoint_dir=settings.checkpoint.dir,
        checkpoint_key_file=settings.checkpoint.key_file,
        checkpoint_write_timeout_s=settings.checkpoint.write_timeout_s,
        # The sidecar ends such ranks, where it may.
        holds_termination=bool(settings.checkpoint.dir) and settings.sidecar.mode == "act",
        takes_snapshots=settings.snapshot.every_steps >= 0,
        flight_recorder=settings.stall.flight_recorder,
        peer_copies=settings.snapshot.peer,
        peer_timeout_s=settings.snapshot.peer_timeout_s,
    )
    handler = entrance.make_rendezvous(owned)
    handler.prepare = lambda assignment: leave_for_ranks(assignment, context)
    handler.completed = lambda left: read_completed_steps(
        owned.places.shm, left.plan.attempt, left.member
    )
    handler.release = owned.release
    handler.watch.start()
    return handler


def leave_for_ranks(assignment: Assignment, context: RankContext) -> None:
    """torchrun's ranks inherit this process's environment: put there what they shall find."""
    attempt = context_for(context, assignment.plan)
    ownership.make_if_possible(attempt.places.evidence(attempt.attempt))
    for name in environment.NEVER_FOR_RANKS:
        os.environ.pop(name, None)  # our stores hold what they need of it
    os.environ.setdefault(SHARED_STORE_OFF, "1")
    os.environ.update(holdfast_environment(attempt, os.environ.get("PYTHONPATH", "")))


def read_torchrun_line() -> Namespace | None:
    """torchrun's own arguments, of which torch tells its handlers little; None elsewhere."""
    with contextlib.suppress(SystemExit), contextlib.redirect_stderr(io.StringIO()):
        line: Namespace = get_args_parser().parse_args(sys.argv[1:])
        return line
    return None


def read_slots(parameters: RendezvousParameters, line: Namespace | None) -> int:
    """Ranks of this node: given in words, else as torchrun's line has it."""
    given = parameters.get("slots")
    if given is not None:
        return int(given)
    if line is not None:
        return int(determine_local_world_size(line.nproc_per_node))
    raise BadInput(
        f"how many ranks has {socket.gethostname()}? give --rdzv-conf slots=N like --nproc-per-node"
    )
