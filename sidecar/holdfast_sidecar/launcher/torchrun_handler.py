"""Our rendezvous under plain torchrun; sidecars are run beside it (systemd, Slurm prolog, …).

--rdzv-endpoint is the Redis URL and --rdzv-id the job. --rdzv-conf may hold node=NAME, spares=N,
slots=N, join_timeout=S and last_call_timeout=S; settings come from holdfast.toml and environment.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys

import torch
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.run import determine_local_world_size, get_args_parser

from holdfast import environment as names
from holdfast.attachment import python_path
from holdfast_sidecar import __version__, configuration
from holdfast_sidecar.bad_input import BadInput
from holdfast_sidecar.coordination.connection import open_store
from holdfast_sidecar.coordination.reports import AgentReport
from holdfast_sidecar.launcher import job_server, ownership
from holdfast_sidecar.launcher.address import own_address
from holdfast_sidecar.launcher.machine import read_machine
from holdfast_sidecar.launcher.plan_watch import PlanWatch
from holdfast_sidecar.launcher.rank_environment import (
    SHARED_STORE_OFF,
    RankContext,
    holdfast_environment,
)
from holdfast_sidecar.launcher.rendezvous import (
    LAST_CALL_S,
    Assignment,
    HoldfastRendezvous,
    new_incarnation,
)
from holdfast_sidecar.launcher.reporting import Reporter
from holdfast_sidecar.launcher.seating import context_for


def create(parameters: RendezvousParameters) -> HoldfastRendezvous:
    """The handler for one torchrun. BadInput when refused."""
    flags = {"redis.url": parameters.endpoint or None}
    settings = configuration.load(flags=flags).settings
    job = ownership.as_name(parameters.run_id)
    server = job_server.reach(settings.redis)
    owned = ownership.own_node(settings.paths, job, parameters.get("node") or None)
    server.write_record(owned.places)
    report = AgentReport(
        node=owned.node,
        incarnation=new_incarnation(),
        state="joining",
        attempt=-1,
        beat=0,
        slots=read_slots(parameters),
        address=own_address(parameters.local_addr, settings.redis.url),
        min_nodes=parameters.min_nodes,
        max_nodes=parameters.max_nodes,
        spares=int(parameters.get("spares", 0)),
        max_restarts=None,
        last_call_s=float(parameters.get("last_call_timeout", LAST_CALL_S)),
        version=__version__,
        torch_version=torch.__version__,
        machine=read_machine(),
        pid=os.getpid(),
    )
    stores = [open_store(settings.redis, job, os.environ, hears_reports=False) for _ in range(2)]
    context = RankContext(
        job=job,
        node=owned.node,
        attempt=0,
        epoch=0,
        places=owned.places,
        hooks_path=python_path(),
        checkpoint_dir=settings.checkpoint.dir,
        checkpoint_key_file=settings.checkpoint.key_file,
    )
    handler = HoldfastRendezvous(
        reporter=Reporter(stores[0], report, settings.sidecar.heartbeat_s),
        watch=PlanWatch(stores[1], settings.sidecar.heartbeat_s),
        run_id=job,
        join_timeout_s=float(parameters.get("join_timeout", settings.policy.join_timeout_s)),
        prepare=lambda assignment: leave_for_ranks(assignment, context),
        release=owned.release,
    )
    handler.watch.start()
    return handler


def leave_for_ranks(assignment: Assignment, context: RankContext) -> None:
    """torchrun's ranks inherit this process's environment: put there what they shall find."""
    attempt = context_for(context, assignment.plan)
    attempt.places.evidence(attempt.attempt).mkdir(parents=True, exist_ok=True)
    for name in names.NEVER_FOR_RANKS:
        os.environ.pop(name, None)  # our stores hold what they need of it
    os.environ.setdefault(SHARED_STORE_OFF, "1")
    os.environ.update(holdfast_environment(attempt, os.environ.get("PYTHONPATH", "")))


def read_slots(parameters: RendezvousParameters) -> int:
    """Ranks of this node. torch doesn't tell its handlers, so torchrun's own line is read."""
    given = parameters.get("slots")
    if given is not None:
        return int(given)
    with contextlib.suppress(SystemExit):
        given = get_args_parser().parse_args(sys.argv[1:]).nproc_per_node
        return int(determine_local_world_size(given))
    raise BadInput(
        f"how many ranks has {socket.gethostname()}? give --rdzv-conf slots=N like --nproc-per-node"
    )
