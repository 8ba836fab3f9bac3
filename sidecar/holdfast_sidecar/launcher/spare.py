"""A spare's warm interpreters: it has nothing else to do, so they wait from the job's first steps
on, and it is not slower than the survivors when it takes a lost node's place.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch.distributed.elastic.utils import macros

from holdfast_sidecar.launcher.plan_watch import PlanWatch
from holdfast_sidecar.launcher.rank_environment import RankContext, rank_environment
from holdfast_sidecar.launcher.rank_process import Command
from holdfast_sidecar.launcher.standby import Standby
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.records.reports import AgentReport

LATE_SHARE = 0.25
"""Of the time that an attempt has taken to its first steps, the interpreters may start later."""

LONGEST_S = 30.0
"""Between two looks at what all agents report, where no rank comes to a step."""

NCCL_ERRORS = "TORCH_NCCL_ASYNC_ERROR_HANDLING"


class Spare:
    """Starts the interpreters once those who run the job know what they should import."""

    def __init__(
        self,
        standby: Standby,
        watch: PlanWatch,
        spec: Any,
        context: RankContext,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._standby = standby
        self._watch = watch
        self._spec = spec
        self._context = context
        self._clock = clock
        self._attempt = -1
        self._since_s = 0.0
        self._due_s = 0.0

    def look(self, plan: Plan) -> None:
        """Called now and then while this node waits beside a live attempt."""
        if self._standby.waiting or not isinstance(self._spec.entrypoint, str):
            return
        if not self._is_due(plan, self._clock()):
            return
        if modules := modules_of(self._watch.read_agents(), plan):
            self._standby.expect(expected_commands(self._spec, self._context, os.environ))
            self._standby.warm_up(modules)

    def _is_due(self, plan: Plan, now_s: float) -> bool:
        """Whether to read what all agents say. Those that took minutes to come so far are in no
        haste, and there may be a thousand of them."""
        if plan.attempt != self._attempt:
            self._attempt, self._since_s, self._due_s = plan.attempt, now_s, now_s
        if now_s < self._due_s:
            return False
        self._due_s = now_s + min(LONGEST_S, LATE_SHARE * (now_s - self._since_s))
        return True


def modules_of(agents: Iterable[AgentReport], plan: Plan) -> tuple[str, ...]:
    """What the ranks of the running attempt had imported; empty while nobody can tell."""
    told = (a.warm_modules for a in agents if a.state == "running" and a.attempt == plan.attempt)
    return tuple(next(filter(None, told), ()))


def expected_commands(
    spec: Any, context: RankContext, environment: Mapping[str, str]
) -> list[Command]:
    """This node's ranks as torch will start them, as far as is known without a place.

    What torch adds to the environment names the rank and is handed over late, but for one variable.
    If a version of torch adds another, the interpreter will not fit and the rank starts cold.
    """
    made = {NCCL_ERRORS: "1", **environment}
    return [
        Command(
            (spec.entrypoint, *macros.substitute(list(spec.args), str(local_rank))),
            rank_environment(made, context),
            None,
            None,
            local_rank,
        )
        for local_rank in range(spec.local_world_size)
    ]
