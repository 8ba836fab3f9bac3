"""torch's elastic agent under the leader's plan: it starts, watches and ends this node's ranks.

It decides nothing: a rank's bad end is reported, and the plan says whether all ranks are ended and
start again, or the job stops. While the store is away no plan changes, so survivors run on.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch.distributed.elastic.agent.server.api import RunResult, Worker, WorkerGroup, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import SubprocessContext
from torch.distributed.elastic.multiprocessing.api import MultiprocessContext
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from holdfast import page
from holdfast_sidecar.coordination.reports import Exit, Plan
from holdfast_sidecar.launcher.ending import end_ranks
from holdfast_sidecar.launcher.inheritance import inherited
from holdfast_sidecar.launcher.rank_ends import RankEnd, forgive, in_order, read_exit_code
from holdfast_sidecar.launcher.rank_environment import RankContext, rank_environment
from holdfast_sidecar.launcher.rank_pages import (
    has_flag,
    has_stepped,
    read_said_finished,
    read_words,
)
from holdfast_sidecar.launcher.rank_process import ranks_started_by, start_cold
from holdfast_sidecar.launcher.rendezvous import Assignment, HoldfastRendezvous, JobStopped
from holdfast_sidecar.launcher.standby import Standby
from holdfast_sidecar.launcher.standing import Standing, while_running

logger = logging.getLogger(__name__)

EXIT_BARRIER_S = 300.0
"""How long ranks that ended well wait for a store that is away; torchrun's exit barrier."""


LOOK_AT_PAGES_S = 0.5
"""How often the ranks' pages are looked at until all have stepped."""


class JobFailed(JobStopped):
    """The job was stopped after ranks of this node failed."""

    def __init__(self, plan: Plan, failures: Mapping[int, ProcessFailure]) -> None:
        super().__init__(plan)
        self.failures = failures


@dataclass
class Course:
    """How the attempt under way is going on this node."""

    attempt: int
    looked_at_pages_at: float = 0.0
    is_backed: bool = False
    """Warm interpreters wait for the next attempt, or are not wanted."""
    ends: list[RankEnd] = field(default_factory=list)
    failures: dict[int, ProcessFailure] = field(default_factory=dict)
    """Global rank -> torch's record of its failure, in order."""

    @property
    def has_failed(self) -> bool:
        """Whether a rank ended badly."""
        return any(end.exit_code != 0 for end in self.ends)


class HoldfastAgent(LocalElasticAgent):  # type: ignore[misc]
    """One node's agent. Its rendezvous handler is a HoldfastRendezvous."""

    def __init__(
        self,
        spec: Any,
        rendezvous: HoldfastRendezvous,
        context: RankContext,
        standby: Standby | None = None,
        **stock: Any,
    ) -> None:
        super().__init__(spec, **stock)
        self._pcontext: Any = None
        self._rendezvous_handler = rendezvous
        self._context = context
        self._standby = standby
        self._course = Course(-1)
        self.last_failures: dict[int, ProcessFailure] = {}

    def _invoke_run(self, role: str = "default") -> RunResult:
        while True:
            try:
                self._initialize_workers(self._worker_group)
            except JobStopped as stopped:
                raise JobFailed(stopped.plan, self.last_failures) from None
            result = self._oversee()
            if result is not None:
                return result
            self._stop_workers(self._worker_group)
            self._worker_group.state = WorkerState.STOPPED

    def _assign_worker_ranks(
        self, store: Any, group_rank: int, group_world_size: int, spec: Any
    ) -> list[Worker]:
        """The plan already numbers the ranks; torch's way waits for every member's agent."""
        assert self._rendezvous_handler.assignment is not None
        return assign_workers(self._rendezvous_handler.assignment, spec.role)

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        assignment = self._rendezvous_handler.assignment
        assert assignment is not None
        plan = assignment.plan
        # torch tells ranks, and names log directories, by how often the job was restarted.
        self._remaining_restarts = worker_group.spec.max_restarts - plan.restarts
        self._course = Course(plan.attempt)
        context = context_for(self._context, plan)
        context.places.evidence(plan.attempt).mkdir(parents=True, exist_ok=True)
        logger.info(
            "attempt %d: node rank %d of %d, ranks %d-%d of %d%s",
            plan.attempt,
            assignment.member.node_rank,
            len(plan.members),
            assignment.member.first_rank,
            assignment.member.first_rank + assignment.member.slots - 1,
            plan.world_size,
            f", resuming from step {plan.resume[0].step}" if plan.resume else "",
        )
        started: dict[int, Any]
        start = start_cold if self._standby is None else self._standby.start
        with ranks_started_by(start, lambda env: rank_environment(env, context)):
            if isinstance(worker_group.spec.entrypoint, str):
                started = super()._start_workers(worker_group)
            else:
                with inherited(rank_environment(os.environ, context)):
                    started = super()._start_workers(worker_group)
        return started

    def _stop_workers(self, worker_group: WorkerGroup) -> None:
        self._shutdown(timeout=self._shutdown_timeout)

    def _shutdown(
        self, death_sig: signal.Signals = signal.SIGTERM, timeout: float | None = None
    ) -> None:
        """End all ranks at once; torch's own way waits for one after the other, 30 s each."""
        grace_s = self._shutdown_timeout if timeout is None else timeout
        if isinstance(self._pcontext, SubprocessContext):
            end_ranks(self._local_pids().values(), death_sig, float(grace_s))
            _close_files(self._pcontext)
        # Of subprocesses nothing is left to wait for; the rest of torch's own way is still needed.
        super()._shutdown(death_sig, timeout=int(grace_s))
        self._pcontext = None

    def _oversee(self) -> RunResult | None:
        """Watch ranks and plan until the attempt is over; None when there will be another."""
        over_since = None
        while True:
            self._look()
            if self._has_succeeded():
                over_since = over_since or time.monotonic()
                if self._gave_up_waiting(over_since):
                    return self._success()
            standing = self._standing()
            if standing is Standing.DONE:
                return self._success()
            if standing is Standing.STOPPED:
                plan = self._rendezvous_handler.watch.plan
                assert plan is not None
                self._shutdown(timeout=self._shutdown_timeout)
                raise JobFailed(plan, self._course.failures or self.last_failures)
            if standing is Standing.END:
                self.last_failures = self._course.failures or self.last_failures
                return None
            self._back_up()
            self._sleep_until_news()

    def _standing(self) -> Standing:
        handler = self._rendezvous_handler
        plan = handler.watch.plan
        standing = while_running(plan, self._course.attempt, handler.fence)
        if plan is not None and not handler.fence.refuses(plan):
            handler.obey(plan)
        return standing

    def _look(self) -> None:
        """Take in which ranks have ended, and report it at the first bad end."""
        ended = self._new_ends()
        if not ended:
            return
        failures = {end.local_rank: self._failure(end) for end in ended if end.exit_code != 0}
        said_at = {local_rank: float(f.timestamp) for local_rank, f in failures.items()}
        for end in in_order(ended, said_at):
            self._course.ends.append(end)
            if end.local_rank in failures:
                self._course.failures[self._rank(end.local_rank)] = failures[end.local_rank]
        if self._course.has_failed:
            self._rendezvous_handler.reporter.say(state="failed", exits=self._exits())
        elif self._has_succeeded():
            self._rendezvous_handler.reporter.say(state="succeeded", exits=self._exits())

    def _back_up(self) -> None:
        """Once all ranks here have stepped, let warm interpreters wait for the next attempt."""
        course = self._course
        now = time.monotonic()
        if self._standby is None or course.is_backed or course.ends:
            return
        if now - course.looked_at_pages_at < LOOK_AT_PAGES_S:
            return
        course.looked_at_pages_at = now
        pages = [read_words(self._page(local_rank)) for local_rank in self._local_pids()]
        words = [found for found in pages if found is not None and has_stepped(found)]
        if not words or len(words) < len(pages):
            return
        course.is_backed = True
        if any(has_flag(found, page.Flag.NEEDS_COLD_START) for found in words):
            return
        uses_dynamo = any(has_flag(found, page.Flag.DYNAMO_IMPORTED) for found in words)
        self._standby.warm_up(("torch", "torch._dynamo") if uses_dynamo else ("torch",))

    def _new_ends(self) -> list[RankEnd]:
        known = {end.local_rank for end in self._course.ends}
        now_unix_s = time.time()
        ends = []
        self._let_functions_return()
        for local_rank, pid in self._local_pids().items():
            if local_rank in known:
                continue
            code = self._read_exit_code(local_rank, pid)
            if code is not None:
                said_finished = code < 0 and read_said_finished(self._page(local_rank))
                code = forgive(code, said_finished)
                ends.append(RankEnd(local_rank, pid, code, now_unix_s))
        return ends

    def _read_exit_code(self, local_rank: int, pid: int) -> int | None:
        if isinstance(self._pcontext, MultiprocessContext):
            # It may be the child of a fork server, so only torch's handle on it can tell.
            code: int | None = self._pcontext._pc.processes[local_rank].exitcode
            return code
        return read_exit_code(pid)

    def _let_functions_return(self) -> None:
        """Ranks of --run-path wait for their return values to be taken before they exit."""
        context = self._pcontext
        if not isinstance(context, MultiprocessContext):
            return
        for local_rank, queue in context._ret_vals.items():
            if local_rank not in context._return_values and not queue.empty():
                context._return_values[local_rank] = queue.get()
        if context._is_done():
            context._worker_finished_event.set()

    def _has_succeeded(self) -> bool:
        ended = len(self._course.ends) == self._worker_group.spec.local_world_size
        return ended and not self._course.has_failed

    def _gave_up_waiting(self, since: float) -> bool:
        if self._rendezvous_handler.watch.is_up or time.monotonic() - since < EXIT_BARRIER_S:
            return False
        logger.warning("all ranks here ended well and the coordination server is away: leaving")
        return True

    def _success(self) -> RunResult:
        ranks = range(self._worker_group.spec.local_world_size)
        return RunResult(
            state=WorkerState.SUCCEEDED,
            return_values={self._rank(local_rank): None for local_rank in ranks},
        )

    def _sleep_until_news(self) -> None:
        """Until a rank ends, the plan changes, or --monitor-interval is over."""
        watch = self._rendezvous_handler.watch
        known = {end.local_rank for end in self._course.ends}
        running = [pid for rank, pid in self._local_pids().items() if rank not in known]
        poller = select.poll()
        poller.register(watch.news_fd, select.POLLIN)
        with contextlib.ExitStack() as handles:
            for pid in running:
                with contextlib.suppress(ProcessLookupError):
                    handle = os.pidfd_open(pid)
                    handles.callback(os.close, handle)
                    poller.register(handle, select.POLLIN)
            poller.poll(self._worker_group.spec.monitor_interval * 1000)
        watch.drain()

    def _exits(self) -> list[Exit]:
        return [
            Exit(
                rank=self._rank(end.local_rank),
                local_rank=end.local_rank,
                pid=end.pid,
                exit_code=end.exit_code,
                at_unix_s=end.at_unix_s,
                order=order,
                message=message_of(self._course.failures.get(self._rank(end.local_rank))),
                forced=end.forced,
            )
            for order, end in enumerate(self._course.ends)
        ]

    def _failure(self, end: RankEnd) -> ProcessFailure:
        assert self._pcontext is not None
        return ProcessFailure(
            local_rank=end.local_rank,
            pid=end.pid,
            exitcode=end.exit_code,
            error_file=self._pcontext.error_files[end.local_rank],
        )

    def _rank(self, local_rank: int) -> int:
        return int(self._worker_group.workers[local_rank].global_rank)

    def _page(self, local_rank: int) -> Any:
        name = page.page_name(self._course.attempt, local_rank)
        return self._context.places.shm / name

    def _local_pids(self) -> dict[int, int]:
        return {} if self._pcontext is None else dict(self._pcontext.pids())


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
    return RankContext(
        job=context.job,
        node=context.node,
        attempt=plan.attempt,
        epoch=plan.epoch,
        places=context.places,
        hooks_path=context.hooks_path,
        checkpoint_dir=context.checkpoint_dir,
        checkpoint_key_file=context.checkpoint_key_file,
        resume=tuple(plan.resume),
    )


def message_of(failure: ProcessFailure | None) -> str:
    """Type and text of the exception behind a failure, in one line; empty for a signal."""
    if failure is None or not isinstance(failure.message, dict):
        return ""
    return " ".join(str(failure.message.get("message", "")).split())


def _close_files(context: Any) -> None:
    """torch closes the log files only of ranks that it ends itself."""
    if isinstance(context, SubprocessContext):
        for handler in context.subprocess_handlers.values():
            handler.proc.poll()
            for stream in (handler._stdout, handler._stderr):
                if stream is not None:
                    stream.close()
