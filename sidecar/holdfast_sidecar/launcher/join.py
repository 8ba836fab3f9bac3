"""One node's way into a job, the same under `holdfast run` and torchrun.

What all nodes must have in common, and the rendezvous handler. Nothing is started here.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.distributed.elastic.agent.server.api import Worker

from holdfast_sidecar import __version__
from holdfast_sidecar.config.loading import read_seconds
from holdfast_sidecar.config.settings import BadInput, PolicySettings, Settings
from holdfast_sidecar.launcher.arguments import read_left_s, started_again
from holdfast_sidecar.launcher.attempt_store import own_address, read_machine
from holdfast_sidecar.launcher.ownership import (
    NodeOwnership,
    describe_command,
    launch_command,
    launch_of,
    scheduler_job,
)
from holdfast_sidecar.launcher.plan_state import awaits_gate
from holdfast_sidecar.launcher.plan_watch import PlanWatch, Reporter
from holdfast_sidecar.launcher.rank_process import RankContext
from holdfast_sidecar.launcher.rendezvous import LAST_CALL_S, Assignment, HoldfastRendezvous
from holdfast_sidecar.policy.formation import mode_of_gate
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.records.reports import AgentReport
from holdfast_sidecar.store.connection import open_store
from holdfast_sidecar.store.protocol import StoreUnavailable
from holdfast_sidecar.store.shared_settings import check_settings_shared


@dataclass(frozen=True)
class Timeouts:
    """How long a node waits for others."""

    join_s: float
    """For enough of them."""
    last_call_s: float = LAST_CALL_S
    """For more than enough, before the first attempt."""


def read_timeouts(conf: Mapping[str, Any], policy: PolicySettings) -> Timeouts:
    """What --rdzv-conf says of them, else the settings. They are reported, and JSON has no inf."""
    given = {
        name: read_seconds(f"--rdzv-conf: {name}", str(conf[name]))
        for name in ("join_timeout", "last_call_timeout")
        if name in conf
    }
    return Timeouts(
        join_s=given.get("join_timeout", policy.join_timeout_s),
        last_call_s=given.get("last_call_timeout", LAST_CALL_S),
    )


@dataclass(frozen=True)
class Entrance:
    """What a launcher on this node asks for and has to offer."""

    job: str
    settings: Settings
    nodes: tuple[int, int]
    """Fewest and most."""
    spares: int
    slots: int
    script: str
    """The training script, as it was given."""
    local_address: str | None
    timeouts: Timeouts
    max_restarts: int | None = None
    role: str = "default"
    has_sidecar: bool = False
    """One serves this node, or is about to."""
    arguments: tuple[str, ...] = ()
    """Of the training script."""
    has_id: bool = False
    """Whoever starts the nodes gave them an id in common (--rdzv-id)."""

    def check_shared(self) -> None:
        """Refuse a job name that is in use with other settings."""
        least, most = self.nodes
        store = open_store(self.settings.redis, self.job, os.environ)
        try:
            check_settings_shared(
                store,
                self.job,
                {
                    "nnodes": f"{least}" if least == most else f"{least}:{most}",
                    "spares": self.spares,
                    "script": Path(self.script).name,
                    "launch": launch_of(os.environ),
                    "checkpoint.dir": self.settings.checkpoint.dir,
                },
            )
        except StoreUnavailable as error:
            raise BadInput(f"the coordination server went away: {error}") from None
        finally:
            store.close()

    def make_rendezvous(self, owned: NodeOwnership) -> HoldfastRendezvous:
        """The handler of the node that this launcher owns."""
        redis, heartbeat_s = self.settings.redis, self.settings.sidecar.heartbeat_s
        stores = [
            open_store(redis, self.job, os.environ, hears_reports=False)
            for _ in ("reports", "plans")
        ]
        first = self._first_report(owned)
        return HoldfastRendezvous(
            reporter=Reporter(stores[0], first, heartbeat_s, dead=[owned.before]),
            watch=PlanWatch(stores[1]),
            run_id=self.job,
            join_timeout_s=self.timeouts.join_s,
            gate_acts=mode_of_gate(self.settings) == "act",
        )

    def _launch_command(self, node: str, address: str) -> str:
        return launch_command(
            self.script, self.arguments, {node, address, socket.gethostname(), socket.getfqdn()}
        )

    def _first_report(self, owned: NodeOwnership) -> AgentReport:
        address = own_address(self.local_address, self.settings.redis.url)
        return AgentReport(
            node=owned.node,
            incarnation=owned.incarnation,
            state="joining",
            attempt=-1,
            beat=0,
            slots=self.slots,
            address=address,
            min_nodes=self.nodes[0],
            max_nodes=self.nodes[1],
            spares=self.spares,
            max_restarts=self.max_restarts,
            last_call_s=self.timeouts.last_call_s,
            version=__version__,
            torch_version=torch.__version__,
            machine=self.settings.sidecar.machine or read_machine(),
            role=self.role,
            pid=os.getpid(),
            launch=launch_of(os.environ),
            launch_number=started_again(os.environ),
            launch_command=self._launch_command(owned.node, address),
            has_launch_id=self.has_id or bool(scheduler_job(os.environ)),
            command=describe_command(self.script, self.arguments, self.slots, self.settings),
            left_s=read_left_s(self.settings.policy, os.environ, time.time()),
            awaits_gate=awaits_gate(
                self.settings.gate, self.has_sidecar, self.settings.paths.machine_root
            ),
        )


# From the plan to this node's ranks: their numbers, and what they are told.


def assign_workers(assignment: Assignment, role: str) -> list[Worker]:
    """This node's ranks as the plan numbers them, and their numbers inside their role."""
    member = assignment.member
    alike = [m for m in assignment.plan.members if m.role == role]
    before = sum(m.slots for m in alike if m.node_rank < member.node_rank)
    return [
        Worker(
            local_rank=local_rank,
            global_rank=member.first_rank + local_rank,
            role_rank=before + local_rank,
            world_size=assignment.plan.world_size,
            role_world_size=sum(m.slots for m in alike),
        )
        for local_rank in range(member.slots)
    ]


def context_for(context: RankContext, plan: Plan) -> RankContext:
    """What the ranks of this plan's attempt are told."""
    return replace(
        context,
        attempt=plan.attempt,
        epoch=plan.epoch,
        resume=tuple(plan.resume),
        skips=tuple(plan.skips),
        peer_copies=context.peer_copies if len(plan.members) > 1 else "off",
    )


def announce(assignment: Assignment, job: str) -> list[str]:
    """What people are told when an attempt starts: after a failure its cause, then the place."""
    why = assignment.plan.message
    return [*([f"restarted after: {why}"] if why else []), describe(assignment, job)]


def describe(assignment: Assignment, job: str) -> str:
    """This node's place, for people, and by which name commands know the job."""
    plan, member = assignment.plan, assignment.member
    last = member.first_rank + member.slots - 1
    resuming = f", resuming from {plan.resume[0].words}" if plan.resume else ""
    return (
        f"job {job}, attempt {plan.attempt}: node rank {member.node_rank} of {len(plan.members)}, "
        f"ranks {member.first_rank}-{last} of {plan.world_size}{resuming}"
    )
