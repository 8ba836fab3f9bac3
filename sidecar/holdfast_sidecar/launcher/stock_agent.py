"""torch's own agent, for torch's own rendezvous: it restarts by itself, the sidecar only watches.

Ours are only how ranks start (hooks, parent-death signal) and that the shutdown timeout holds.
"""

from __future__ import annotations

import functools
import os
import signal
from dataclasses import replace
from typing import Any

from torch.distributed.elastic.agent.server.api import WorkerGroup
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent

from holdfast_sidecar.launcher.ending import end_ranks
from holdfast_sidecar.launcher.inheritance import inherited
from holdfast_sidecar.launcher.ownership import make_if_possible
from holdfast_sidecar.launcher.rank_environment import RankContext, rank_environment
from holdfast_sidecar.launcher.rank_process import ranks_started_by, start_cold
from holdfast_sidecar.launcher.torch_config import GRACE_S, supported


class StockAgent(LocalElasticAgent):  # type: ignore[misc]
    """torch's LocalElasticAgent with attached ranks. Attempts count this node's own starts."""

    def __init__(self, spec: Any, context: RankContext, **stock: Any) -> None:
        super().__init__(spec, **supported(LocalElasticAgent, **stock))
        self._grace_s = float(stock.get("shutdown_timeout") or GRACE_S)
        self._context = replace(context, attempt=-1)

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        self._context = replace(self._context, attempt=self._context.attempt + 1)
        context = self._context
        make_if_possible(context.places.evidence(context.attempt))
        with (
            ranks_started_by(
                start_cold,
                lambda env: rank_environment(env, context),
                isinstance(worker_group.spec.entrypoint, str),
            ),
            inherited(rank_environment(os.environ, context)),
        ):
            started: dict[int, Any] = super()._start_workers(worker_group)
        # torch closes a failed group with 30 s of grace, whatever --shutdown-timeout says.
        self._pcontext.close = functools.partial(self._close, self._pcontext, self._pcontext.close)
        return started

    def _close(
        self, processes: Any, stock_close: Any, death_sig: Any = None, timeout: int = 30
    ) -> None:
        del timeout
        sig = death_sig or signal.SIGTERM
        end_ranks(processes.pids().values(), sig, self._grace_s)
        stock_close(signal.SIGKILL, 1)
