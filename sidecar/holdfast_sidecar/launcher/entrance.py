"""One node's way into a job, the same under `holdfast run` and torchrun.

What all nodes must have in common, and the rendezvous handler. Nothing is started here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from holdfast_sidecar import __version__
from holdfast_sidecar.bad_input import BadInput
from holdfast_sidecar.configuration import read_seconds
from holdfast_sidecar.coordination.connection import open_store
from holdfast_sidecar.coordination.store import StoreUnavailable
from holdfast_sidecar.decisions.admission import mode_of_gate
from holdfast_sidecar.launcher.address import own_address
from holdfast_sidecar.launcher.gate_notice import awaits_gate
from holdfast_sidecar.launcher.machine import read_machine
from holdfast_sidecar.launcher.plan_watch import PlanWatch
from holdfast_sidecar.launcher.rendezvous import LAST_CALL_S, HoldfastRendezvous, new_incarnation
from holdfast_sidecar.launcher.reporting import Reporter
from holdfast_sidecar.launcher.time_limit import read_end
from holdfast_sidecar.records.agent import AgentReport
from holdfast_sidecar.settings import PolicySettings, Settings
from holdfast_sidecar.shared_settings import check_settings_shared


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
    """Name of the training script, without its directory."""
    local_address: str | None
    timeouts: Timeouts
    max_restarts: int | None = None
    role: str = "default"
    has_sidecar: bool = False
    """One serves this node, or is about to."""

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
                    "script": self.script,
                    "checkpoint.dir": self.settings.checkpoint.dir,
                },
            )
        except StoreUnavailable as error:
            raise BadInput(f"the coordination server went away: {error}") from None
        finally:
            store.close()

    def make_rendezvous(self, node: str) -> HoldfastRendezvous:
        """The handler of the node that this launcher owns."""
        redis, heartbeat_s = self.settings.redis, self.settings.sidecar.heartbeat_s
        stores = [
            open_store(redis, self.job, os.environ, hears_reports=False)
            for _ in ("reports", "plans")
        ]
        return HoldfastRendezvous(
            reporter=Reporter(stores[0], self._first_report(node), heartbeat_s),
            watch=PlanWatch(stores[1], heartbeat_s),
            run_id=self.job,
            join_timeout_s=self.timeouts.join_s,
            gate_acts=mode_of_gate(self.settings) == "act",
        )

    def _first_report(self, node: str) -> AgentReport:
        return AgentReport(
            node=node,
            incarnation=new_incarnation(),
            state="joining",
            attempt=-1,
            beat=0,
            slots=self.slots,
            address=own_address(self.local_address, self.settings.redis.url),
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
            ends_unix_s=read_end(self.settings.policy, os.environ, time.time()),
            awaits_gate=awaits_gate(
                self.settings.gate, self.has_sidecar, self.settings.paths.machine_root
            ),
        )
