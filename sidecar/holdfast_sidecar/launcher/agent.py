"""torch's elastic agent under the leader's plan: it starts, watches and ends this node's ranks.

It decides nothing: a rank's bad end is reported, and the plan says whether all ranks are ended and
start again, or the job stops. While the store is away no plan changes, so survivors are left alone.
"""

from __future__ import annotations

import functools
import logging
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch.distributed.elastic.agent.server.api import RunResult, Worker, WorkerGroup, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from holdfast.contract.page import Flag, page_name, uses_gloo_alone
from holdfast_sidecar.config.redaction import Redaction, secrets_among
from holdfast_sidecar.launcher.arguments import GRACE_S, supported
from holdfast_sidecar.launcher.console import CheckpointNews, PauseNews, SlownessNews
from holdfast_sidecar.launcher.join import announce, assign_workers, context_for
from holdfast_sidecar.launcher.ownership import make_if_possible
from holdfast_sidecar.launcher.plan_state import AttemptState, ExitBarrier, while_running
from holdfast_sidecar.launcher.rank_process import (
    LocalRanks,
    RankContext,
    inherited,
    rank_environment,
    ranks_started_by,
    signals_handled_by,
    start_cold,
)
from holdfast_sidecar.launcher.rank_state import (
    Course,
    RankEnd,
    forgive,
    has_flag,
    own_ends,
    read_completed_steps,
    read_onset,
    read_step,
    read_step_end_s,
    read_words,
    said_finished,
)
from holdfast_sidecar.launcher.rendezvous import HoldfastRendezvous, JobStopped
from holdfast_sidecar.launcher.shutdown import Preempted, PreemptionNotice, at_once, end_ranks
from holdfast_sidecar.launcher.standby import LOOK_EVERY_S, Backing, Spare, Standby
from holdfast_sidecar.policy.checkpoint_choice import NAME as SNAPSHOT
from holdfast_sidecar.records.plan import Plan

logger = logging.getLogger(__name__)


class JobFailed(JobStopped):
    """The job was stopped after ranks of this node failed."""

    def __init__(self, plan: Plan, failures: Mapping[int, ProcessFailure]) -> None:
        super().__init__(plan)
        self.failures = failures


class HoldfastAgent(LocalElasticAgent):  # type: ignore[misc]
    """One node's agent. Its rendezvous handler is a HoldfastRendezvous."""

    def __init__(
        self,
        spec: Any,
        rendezvous: HoldfastRendezvous,
        context: RankContext,
        preemption: PreemptionNotice,
        standby: Standby | None = None,
        **stock: Any,
    ) -> None:
        super().__init__(spec, **supported(LocalElasticAgent, **stock))
        self._grace_s = float(stock.get("shutdown_timeout") or GRACE_S)
        self._pcontext: Any = None
        self._rendezvous_handler = rendezvous
        self._context = replace(context, holds_termination=bool(context.checkpoint_dir))
        self._preemption = preemption
        self._standby = standby
        rendezvous.completed = lambda left: read_completed_steps(
            context.places.shm, left.plan.attempt, left.member
        )
        if standby is not None:
            rendezvous.beside = Spare(standby, rendezvous.watch, spec, context).look
        self._course = Course(-1)
        self._barrier = ExitBarrier()
        self._checkpoint_news = CheckpointNews()
        self._pause_news = PauseNews()
        self._slowness_news = SlownessNews()
        self._backing: Backing | None = None

    def _invoke_run(self, role: str = "default") -> RunResult:
        self._preemption.heed()
        while True:
            try:
                self._initialize_workers(self._worker_group)
            except JobStopped as stopped:
                raise self._failed(stopped.plan) from None
            with self._preemption.waiting():
                result = self._oversee()
            if result is not None:
                return result
            if self._preemption.asked is not None:
                raise Preempted(self._why_ended())
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
        ranks = {worker.local_rank: worker.global_rank for worker in worker_group.workers}
        secrets = secrets_among(os.environ)  # the ranks inherit them
        self._course = Course(plan.attempt, ranks, redaction=Redaction(secrets))
        self._barrier = ExitBarrier()
        context = context_for(self._context, plan)
        make_if_possible(context.places.evidence(plan.attempt))
        for line in announce(assignment, context.job):
            logger.info("%s", line)
        started = self._start_in(context, worker_group)
        if self._standby is not None:
            pages = [self._page(rank) for rank in ranks]
            self._backing = Backing(self._standby, pages, self._tell_spares)
        return started

    def _tell_spares(self, modules: tuple[str, ...]) -> None:
        self._rendezvous_handler.reporter.say(warm_modules=list(modules))

    def _start_in(self, context: RankContext, worker_group: WorkerGroup) -> dict[int, Any]:
        is_program = isinstance(worker_group.spec.entrypoint, str)
        start = start_cold if self._standby is None else self._standby.start
        started: dict[int, Any]
        with (
            signals_handled_by(self._preemption.handle),
            ranks_started_by(start, lambda env: rank_environment(env, context), is_program),
        ):
            if is_program:
                started = super()._start_workers(worker_group)
            else:
                with inherited(rank_environment(os.environ, context)):
                    started = super()._start_workers(worker_group)
        return started

    def _stop_workers(self, worker_group: WorkerGroup) -> None:
        self._shutdown()
        # The store is served as long as anyone holds it, and --master-port is needed again.
        self._store = worker_group.store = None

    def _shutdown(
        self, death_sig: signal.Signals | None = None, timeout: float | None = None
    ) -> None:
        """End all ranks at once; torch's own way waits for one after the other, 30 s each.

        death_sig: the signal that this launcher got; None: it got none.
        """
        grace_s = self._grace_s if timeout is None else float(timeout)
        self._tell_leaving(death_sig)
        is_asked, death_sig = death_sig is not None, death_sig or signal.SIGTERM
        dying, finished = self._local_ranks.read_dying(), self._finished()
        holding = self._ranks_with(Flag.HOLDS_TERMINATION)
        self._local_ranks.end(death_sig, grace_s, holding, is_asked)
        self._take_last_ends(dying, finished)
        # Of subprocesses nothing is left to wait for; the rest of torch's own way is still needed.
        stock = super()._shutdown
        stock(death_sig, **supported(stock, timeout=int(grace_s)))
        self._pcontext = None

    def _tell_leaving(self, received: signal.Signals | None) -> None:
        """Ranks that end while the plan has them run are ended because this launcher goes. torch
        ends them, too, while it handles a signal, whatever the plan is."""
        plan = self._rendezvous_handler.watch.plan
        if received is not None:
            self._rendezvous_handler.reporter.say(left_for=received.name)
        runs = plan is not None and (plan.attempt, plan.state) == (self._course.attempt, "running")
        if runs or isinstance(sys.exc_info()[1], SignalException):
            self._rendezvous_handler.reporter.say(leaves=True)

    @property
    def _local_ranks(self) -> LocalRanks:
        return LocalRanks(self._pcontext)

    def _oversee(self) -> RunResult | None:
        """Watch ranks and plan until the attempt is over; None when there will be another."""
        while True:
            self._look()
            self._mind_preemption()
            self._tell_news()
            if self._course.has_succeeded and self._gave_up_waiting(time.monotonic()):
                return self._success()
            if self._course.is_over and self._course.has_failed:
                self._rendezvous_handler.leave_if_unled(self._barrier)
            standing = self._standing()
            if standing is AttemptState.DONE:
                return self._success()
            if standing is AttemptState.STOPPED:
                plan = self._rendezvous_handler.watch.plan
                assert plan is not None
                self._shutdown()
                raise self._failed(plan)
            if standing is AttemptState.END:
                return None
            if self._backing is not None and not self._course.ends:
                self._backing.look(time.monotonic())
            self._sleep_until_news()

    def _failed(self, plan: Plan) -> JobFailed:
        return JobFailed(plan, self._course.failures_behind(plan))

    def _mind_preemption(self) -> None:
        """Tell the leader that this node was asked for; give the node up when the time is over."""
        preemption = self._preemption
        preemption.check()
        if preemption.asked is None:
            return
        name = preemption.asked.name
        if not preemption.is_told:
            if not self._can_be_saved():
                raise at_once(preemption.asked)
            preemption.is_told = True
            logger.warning(
                "received %s: the job is saved first, within %g s; once more ends this node now",
                name,
                preemption.grace_s,
            )
            self._rendezvous_handler.reporter.say(preempted_by=name, grace_s=preemption.grace_s)
        if preemption.is_over():
            raise Preempted(f"received {name}: nothing was saved within {preemption.grace_s:g} s")

    def _tell_news(self) -> None:
        """One node speaks for all."""
        handler = self._rendezvous_handler
        assert handler.assignment is not None
        speaks = handler.assignment.member.node_rank == 0
        handler.watch.hears_slowness = speaks
        if not speaks:
            return
        news = (
            self._checkpoint_news.line(handler.watch.checkpoint),
            self._pause_news.line(handler.watch.plan),
            self._slowness_news.line(handler.watch.standing),
        )
        for line in filter(None, news):
            logger.warning("%s", line)

    def _can_be_saved(self) -> bool:
        """Whether all ranks here have said what to save, or their predecessors left it in memory,
        and there is a place for it."""
        assignment = self._rendezvous_handler.assignment
        resume = [] if assignment is None else assignment.plan.resume
        is_left = any(candidate.tier == SNAPSHOT for candidate in resume)
        ranks, ready = self._course.ranks, self._ranks_with(Flag.STATE_REGISTERED)
        return bool(self._context.checkpoint_dir) and (is_left or len(ready) == len(ranks))

    def _why_ended(self) -> str:
        plan = self._rendezvous_handler.watch.plan
        return (plan.message if plan is not None else "") or "this node left the job as asked"

    def _ranks_with(self, flag: Flag) -> list[int]:
        """Pids of the ranks here that have set this flag."""
        found = {local: read_words(self._page(local)) for local in self._local_ranks.pids}
        return [
            pid
            for local, pid in self._local_ranks.pids.items()
            if (words := found[local]) is not None and has_flag(words, flag)
        ]

    def _standing(self) -> AttemptState:
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
        course, reporter = self._course, self._rendezvous_handler.reporter
        self._take(ended)
        if course.has_failed:
            reporter.say(state="failed", exits=course.exits())
        elif course.has_succeeded:
            reporter.say(state="succeeded", exits=course.exits())
        else:
            # Who leaves before its time may be why a rank of another node fails.
            reporter.say(exits=course.exits())

    def _finished(self) -> set[int]:
        """Local ranks whose page says that they ended well."""
        return {
            local for local in self._course.ranks if said_finished(read_words(self._page(local)))
        }

    def _take_last_ends(self, dying: set[int], finished: set[int]) -> None:
        """The sidecars may have known of a death before it could be reaped: it is still told."""
        own = own_ends(self._new_ends(), dying, finished)
        if own:
            self._take(own)
            self._rendezvous_handler.reporter.say(exits=self._course.exits())

    def _take(self, ended: list[RankEnd]) -> None:
        had_failed = self._course.has_failed
        ranks = self._local_ranks
        self._course.take(ended, ranks.error_files, ranks.read_unread())
        if self._course.has_failed and not had_failed:
            plan = self._rendezvous_handler.watch.plan
            logger.warning("%s", self._course.first_failure(plan))

    def _new_ends(self) -> list[RankEnd]:
        now_unix_s, now_s = time.time(), time.monotonic()
        pids = self._local_ranks.pids
        ends = []
        for local_rank, code in self._local_ranks.read_exit_codes().items():
            if local_rank not in self._course.ended:
                words = read_words(self._page(local_rank))
                code = forgive(code, code < 0 and said_finished(words))
                onset = read_onset(self._page(local_rank)) if code else -1
                stepped_s = read_step_end_s(words)
                end = RankEnd(
                    local_rank,
                    pids[local_rank],
                    code,
                    now_unix_s,
                    read_step(words),
                    onset,
                    words is not None and uses_gloo_alone(words),
                    0.0 if stepped_s is None else now_unix_s - (now_s - stepped_s),
                )
                ends.append(end)
        return ends

    def _gave_up_waiting(self, now: float) -> bool:
        """Whether nobody has been there for so long who could say that the job is done."""
        why = self._rendezvous_handler.watch.why_unled
        if not self._barrier.is_over(why, now):
            return False
        logger.warning("all ranks here ended well and %s: leaving", why)
        return True

    def _success(self) -> RunResult:
        return RunResult(
            state=WorkerState.SUCCEEDED,
            return_values=dict.fromkeys(self._course.ranks.values()),
        )

    def _sleep_until_news(self) -> None:
        """Until a rank ends, the plan changes, a signal comes, or something else may be due."""
        watch, ranks = self._rendezvous_handler.watch, self._local_ranks
        running = self._course.ranks.keys() - self._course.ended
        interval_s = self._worker_group.spec.monitor_interval
        is_over_soon = bool(self._course.ended) or self._preemption.asked is not None
        if ranks.hears_ends and not is_over_soon:
            interval_s = max(interval_s, LOOK_EVERY_S)
        ranks.wait(running, watch.news_fd, interval_s)
        watch.drain()

    def _page(self, local_rank: int) -> Path:
        return self._context.places.shm / page_name(self._course.attempt, local_rank)


# torch's own agent, for torch's own rendezvous: it restarts by itself, the sidecar only watches.
#
# Ours are only how ranks start (hooks, parent-death signal) and that the shutdown timeout holds.


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
