"""torch's RendezvousHandler on the leader's plan: join, wait for a place, meet on a fresh store."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousError,
    RendezvousGracefulExitError,
    RendezvousHandler,
    RendezvousTimeoutError,
)
from torch.distributed.elastic.rendezvous.api import RendezvousInfo, RendezvousStoreInfo

from holdfast_sidecar.config.addresses import is_loopback
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.launcher import attempt_store, plan_state
from holdfast_sidecar.launcher.attempt_store import advertised
from holdfast_sidecar.launcher.ownership import unlike_commands
from holdfast_sidecar.launcher.plan_state import (
    LIVE,
    AttemptState,
    ExitBarrier,
    PlanFence,
    all_live,
    known_end,
    may_leave_unused,
    seat,
    while_joining,
    while_running,
    why_not_admitted,
    why_unused,
)
from holdfast_sidecar.launcher.plan_watch import PlanWatch, Reporter
from holdfast_sidecar.policy.budget import EXIT_REQUEUE
from holdfast_sidecar.records.plan import Member, Plan
from holdfast_sidecar.records.reports import AgentReport, GateVerdict
from holdfast_sidecar.store.protocol import Section

logger = logging.getLogger(__name__)

LAST_CALL_S = 30.0
"""torch's own default for how long a first attempt waits for more than --nnodes' minimum."""

SEATS_LOOK_S = 2.5
"""Between two looks at the members of an attempt that has no place for this node: within it each
living launcher beats several times."""

LOOK_S = 1.0
"""Longest sleep between two looks at the deadline; news wake earlier."""

UNREACHABLE_S = 5.0
"""So long the attempt's store is tried before that is said and reported: a slow start of a host
that all nodes connect to at once takes less."""

RETRY_S = 0.2
"""Pause between two tries of a store that refuses."""

REACH_S = 1.0
"""Patience with one connection attempt to the attempt's store, before the plan is looked at."""


class JobStopped(RendezvousClosedError):  # type: ignore[misc]
    """The leader stopped the job; the plan says why and with which exit code to leave."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan.message or plan.cause or "the job was stopped")
        self.plan = plan


class NotFormedAgain(RendezvousError):  # type: ignore[misc]
    """The job ran, and this node can't take part in a further attempt of it."""


class Unled(SystemExit):
    """No rank lives here, and nobody has led the job for so long that this node leaves. It may be
    started again; torchrun, too, leaves with this code."""

    def __init__(self) -> None:
        super().__init__(EXIT_REQUEUE)


@dataclass(frozen=True)
class Assignment:
    """This node's place in the attempt it takes part in."""

    plan: Plan
    member: Member


@dataclass(frozen=True)
class _Seen:
    """The agents as they were at some moment, for one attempt."""

    attempt: int
    at_s: float
    agents: dict[str, AgentReport]


@dataclass
class HoldfastRendezvous(RendezvousHandler):  # type: ignore[misc]
    """One node's way into every attempt of the job.

    `prepare` is called with each assignment before the rendezvous returns, `release` at the end,
    `beside` now and then while an attempt is live in which this node has no place. `completed`
    answers how far each rank of this node had come (rank -> step) once their attempt has ended.
    """

    reporter: Reporter
    watch: PlanWatch
    run_id: str
    join_timeout_s: float
    master_address: str = ""
    master_port: int = 0
    prepare: Callable[[Assignment], None] = lambda assignment: None
    release: Callable[[], None] = lambda: None
    beside: Callable[[Plan], None] = lambda plan: None
    completed: Callable[[Assignment], dict[str, int]] = lambda assignment: {}
    fence: PlanFence = field(default_factory=PlanFence)
    gate_acts: bool = True
    """Whether unfit nodes are kept outside, and not only told of."""
    assignment: Assignment | None = None
    _known: int | None = None
    _store: TCPStore | None = None
    _seen: _Seen | None = None
    _admitted: int = -1
    """Beside which attempt this node may wait."""
    _told: str = ""

    def get_backend(self) -> str:
        """Name of the backend, as given to --rdzv-backend."""
        return "holdfast"

    @property
    def use_agent_store(self) -> bool:
        """Ranks use the store that node rank 0's agent opened for the attempt."""
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """Join, wait until the plan has a place for this node, and meet the other members."""
        self._let_the_attempt_end()
        while True:
            assignment = self._join()
            self._store = self._meet(assignment)
            if self._store is not None:
                break
        self.assignment = assignment
        self._tell_unlike(assignment)
        self.prepare(assignment)
        self.reporter.say(state="running", attempt=assignment.plan.attempt, exits=[], steps={})
        endpoint = RendezvousStoreInfo(self._store.host, self._store.port)
        member, plan = assignment.member, assignment.plan
        return RendezvousInfo(self._store, member.node_rank, len(plan.members), endpoint)

    def num_nodes_waiting(self) -> int:
        """1 once the running attempt is over: torch's own agent then restarts, uncounted."""
        if self.assignment is None:
            return 0
        standing = while_running(self.watch.plan, self.assignment.plan.attempt, self.fence)
        return int(standing in (AttemptState.END, AttemptState.STOPPED))

    def is_closed(self) -> bool:
        """Whether the job is over."""
        return self._joining_standing() in (AttemptState.DONE, AttemptState.STOPPED)

    def set_closed(self) -> None:
        """Only the leader closes a job; an agent that gives up reports that it left."""

    def get_run_id(self) -> str:
        """The job's name."""
        return self.run_id

    def shutdown(self) -> bool:
        """Leave. torch calls this in a `finally`: an exception under way tells how it ended."""
        self._leave(ended_well=sys.exc_info()[0] is None)
        self.reporter.close(timeout_s=LOOK_S)
        self.watch.stop()
        self._store = None
        self.release()
        return True

    def obey(self, plan: Plan) -> None:
        """Refuse from now on whatever is older than this plan."""
        self.fence = PlanFence(plan.attempt, plan.epoch)
        self.reporter.say(plan=self.watch.plan_text)

    def leave_if_unled(self, barrier: ExitBarrier) -> None:
        """While no rank lives here: raise Unled once nobody has led for as long as nodes wait for
        each other, and for the length of a pause besides."""
        plan, why = self.watch.plan, self.watch.why_unled
        pause = None if plan is None else plan.pause
        paused_s = 0.0 if pause is None else pause.until_unix_s - pause.since_unix_s
        after_s = self.join_timeout_s + max(0.0, paused_s)
        if barrier.is_over(why, time.monotonic(), after_s):
            raise self._unled(after_s)

    def _unled(self, after_s: float) -> Unled:
        logger.warning(
            "no rank lives here, and for %g s %s: leaving with %d, to be started again",
            after_s,
            self.watch.why_unled,
            EXIT_REQUEUE,
        )
        return Unled()

    def _leave(self, ended_well: bool) -> None:
        if ended_well and self.assignment is not None and self.reporter.report.state == "running":
            self.reporter.say(state="succeeded")
            self.watch.wait_for(self._is_over, self.join_timeout_s)
        elif self.reporter.report.state != "succeeded":
            self.reporter.say(state="left")

    def _let_the_attempt_end(self) -> None:
        """Under torch's own agent, coming here while the attempt lives means that ranks failed."""
        if self.assignment is None or self._is_over():
            return
        if self.reporter.report.state == "running":
            self.reporter.say(state="failed")
        barrier = ExitBarrier()
        while self.watch.wait_for(self._is_over, LOOK_S) is None:
            self.leave_if_unled(barrier)

    def _is_over(self) -> bool | None:
        assert self.assignment is not None
        standing = while_running(self.watch.plan, self.assignment.plan.attempt, self.fence)
        return None if standing is AttemptState.WAIT else True

    def _join(self) -> Assignment:
        if self._known is None:
            self._first_reading()
        self._store = None
        if self.assignment is not None:
            self._known = max(self._known or -1, self.assignment.plan.attempt)
        steps = {} if self.assignment is None else self.completed(self.assignment)
        # What it said of the ranks of this very attempt stays: some of it may be news.
        has_run = self.assignment is not None and self.assignment.plan.attempt == self._known
        exits = self.reporter.report.exits if has_run else []
        self.reporter.say(state="joining", attempt=self._known, exits=exits, steps=steps)
        return self._assign(self._wait_for_a_place())

    def _first_reading(self) -> None:
        """What was over before this launcher came must not end it, so reporting begins after."""
        has_read = self.watch.wait_for(lambda: self.watch.view, self.join_timeout_s)
        if has_read is None:
            raise RendezvousTimeoutError("the coordination server did not answer")
        self._known = known_end(self.watch.plan, self.reporter.report.incarnation)
        self.reporter.say(attempt=self._known)
        self.reporter.start()

    def _wait_for_a_place(self) -> Plan:
        words, barrier = plan_state.WaitingWords(time.monotonic()), ExitBarrier()
        deadline = words.since + self.join_timeout_s
        while True:
            standing = self.watch.wait_for(lambda: self._news(words), LOOK_S)
            plan = self.watch.plan
            if self.reporter.has_namesake:
                raise self._too_late(
                    f"another launcher of job {self.run_id} is called "
                    f"{self.reporter.report.node}: give --node"
                )
            if standing in (None, AttemptState.WAIT) or plan is None:
                deadline = self._stay(plan, deadline, barrier)
                self._tell_waiting(words, plan, deadline)
                continue
            self.obey(plan)
            if standing is AttemptState.RUN:
                return plan
            if not plan.exit_code and self.is_new:
                self._leave_unused(plan)
            if standing is AttemptState.DONE:
                raise RendezvousGracefulExitError("the job is done")
            raise JobStopped(plan)

    def _stay(self, plan: Plan | None, deadline: float, barrier: ExitBarrier) -> float:
        """Wait on, unless that is in vain; until when."""
        self._look_at_seats(plan)
        if plan is not None and plan.state in LIVE:
            self.beside(plan)
        elif not self.is_new or not self.watch.is_up:
            self.leave_if_unled(barrier)
        if self._is_hopeful(plan):
            return time.monotonic() + self.join_timeout_s
        if time.monotonic() > deadline:
            if self.watch.why_unled and not self.is_new:
                raise self._unled(self.join_timeout_s)
            raise self._too_late(self._who_is_missing())
        return deadline

    def _leave_unused(self, plan: Plan) -> None:
        """Say that this node ran nothing, and refuse to end well where that was not its job."""
        own, seen = self.reporter.report, self._seen
        agents = {agent.node: agent for agent in self.watch.read_agents()}
        if not agents and seen is not None:
            agents = seen.agents
        if not may_leave_unused(plan, own, agents):
            raise BadInput(
                f"job {self.run_id} is {plan.state}, and this node never had a place in it"
            )
        if not own.spares:
            why = why_unused(plan, own, self._unfit().get(own.node))
            logger.warning("job %s is %s; this node ran nothing: %s", self.run_id, plan.state, why)

    def _look_at_seats(self, plan: Plan | None) -> None:
        """Refuse a newcomer that no attempt would take in, once all members were seen to live."""
        if plan is None or plan.state not in LIVE or not self.is_new:
            self._seen = None
            return
        now, seen = time.monotonic(), self._seen
        is_same = seen is not None and seen.attempt == plan.attempt
        if plan.attempt == self._admitted or not self.watch.is_up:
            return
        if is_same and seen is not None and now - seen.at_s < SEATS_LOOK_S:
            return
        agents = {agent.node: agent for agent in self.watch.read_agents()}
        self._seen = _Seen(plan.attempt, now, agents)
        if is_same and seen is not None and all_live(plan, seen.agents, agents):
            if why := why_not_admitted(self.run_id, plan, self.reporter.report, agents):
                raise BadInput(why)
            self._admitted = plan.attempt

    def _tell_unlike(self, assignment: Assignment) -> None:
        """Say once which nodes were started differently; one of them says so."""
        if assignment.member.node_rank != 0:
            return
        members = {member.incarnation for member in assignment.plan.members}
        agents = [agent for agent in self.watch.read_agents() if agent.incarnation in members]
        line = unlike_commands(agents)
        if line and line != self._told:
            self._told = line
            logger.warning("%s", line)

    def _tell_waiting(
        self, words: plan_state.WaitingWords, plan: Plan | None, deadline: float
    ) -> None:
        now, pause = time.monotonic(), _pause(plan)
        if not self.watch.is_up or not (words.is_unsaid(pause) or words.is_due(now)):
            return
        if words.is_unsaid(pause):
            line = words.say(pause, now, repeats=False)
        elif plan is not None and plan.state in LIVE:
            # It may be hours: said once for each attempt.
            own = self.reporter.report
            verdict = self._unfit().get(own.node)
            waits = self.watch.read_leader_waits()
            told = plan_state.beside(plan, own, verdict, waits, self.run_id)
            line = words.say(told, now, repeats=False)
        else:
            agents = self.watch.read_agents()
            own = self.reporter.report
            left_s, outside = deadline - now, () if plan is None else plan.outside
            told = plan_state.for_an_attempt(own, agents, left_s, self._never_taken(), outside)
            line = words.say(told, now, repeats=True)
        if line is not None:
            # Plain torchrun shows warnings only, and a silence of minutes deserves one.
            logger.warning("%s", line)

    def _unfit(self) -> dict[str, GateVerdict]:
        """Nodes that wait because their gates find them unfit."""
        return self.watch.read_unfit() if self.gate_acts else {}

    def _never_taken(self) -> dict[str, GateVerdict]:
        """Those of them that no attempt takes in, however few others there are."""
        return {node: verdict for node, verdict in self._unfit().items() if not verdict.works}

    def _too_late(self, message: str) -> Exception:
        """Before a node's first attempt its input may be to blame, later it can't be."""
        return RendezvousTimeoutError(message) if self.is_new else NotFormedAgain(message)

    @property
    def is_new(self) -> bool:
        """Whether this node has had no place in any attempt yet."""
        return self.assignment is None

    def _is_hopeful(self, plan: Plan | None) -> bool:
        """Beside a live attempt a spare waits as long as that lasts, in a pause all do, and without
        a store."""
        lasts = plan is not None and (plan.state in LIVE or plan.pause is not None)
        return lasts or not self.watch.is_up

    def _news(self, words: plan_state.WaitingWords) -> AttemptState | None:
        """What there is to do, or WAIT where there is only something to say."""
        standing = self._joining_standing()
        if standing is not AttemptState.WAIT:
            return standing
        has_news = self.watch.is_up and words.is_unsaid(_pause(self.watch.plan))
        return standing if has_news else None

    def _joining_standing(self) -> AttemptState:
        incarnation = self.reporter.report.incarnation
        known = -1 if self._known is None else self._known
        return while_joining(self.watch.plan, incarnation, known, self.fence)

    def _who_is_missing(self) -> str:
        own = self.reporter.report
        view = self.watch.view
        if view is not None and not view.lease.candidate:
            return (
                f"no sidecar leads job {self.run_id}: none could be started or reached "
                f"within {self.join_timeout_s:g} s"
            )
        joining = [agent for agent in self.watch.read_agents() if agent.state == "joining"]
        here = [agent.node for agent in joining if agent.launch_key == own.launch_key]
        unfit = self._never_taken()
        ill = [f"{node}: {'; '.join(unfit[node].reasons)}" for node in here if node in unfit]
        if ill and len(here) >= own.min_nodes:
            return (
                f"too few fit nodes joined job {self.run_id} within {self.join_timeout_s:g} s; "
                f"unfit are {', '.join(ill)} (gate.mode=observe takes them in all the same)"
            )
        return (
            f"{len(here)} of the {own.min_nodes} nodes that --nnodes needs joined job "
            f"{self.run_id} within {self.join_timeout_s:g} s (here: {', '.join(sorted(here))})"
            f"{plan_state.strangers(own, joining)}"
        )

    def _assign(self, plan: Plan) -> Assignment:
        member = seat(plan, self.reporter.report.incarnation)
        assert member is not None
        return Assignment(plan, member)

    def _meet(self, assignment: Assignment) -> TCPStore | None:
        """Open or find the attempt's store; None when the attempt ended meanwhile."""
        plan = assignment.plan
        if assignment.member.node_rank == 0:
            store = self._open_store(self._own_host(plan))
            endpoint = attempt_store.Endpoint(assignment.member.incarnation, store.host, store.port)
            self.reporter.publish_endpoint(plan.attempt, str(endpoint))
            return store
        first = next(m for m in plan.members if m.node_rank == 0)
        if (store := self._find_store(plan, first)) is not None:
            return store
        # The attempt is known now, and over: the next one has to be a later one.
        self._known = plan.attempt
        return None

    def _find_store(self, plan: Plan, first: Member) -> TCPStore | None:
        """Connect to the store of the attempt's first node; None when the attempt ended meanwhile.

        One that is published and cannot be reached is said and reported: the leader ends the
        attempt then, whose other ranks would wait for these until a timeout of torch's.
        """
        connecting: attempt_store.Connecting | None = None
        barrier = ExitBarrier()
        since_s: float | None = None

        def is_over() -> bool | None:
            standing = while_running(self.watch.plan, plan.attempt, self.fence)
            return None if standing is AttemptState.WAIT else True

        while not is_over():
            self.leave_if_unled(barrier)
            found = self.watch.wait_for(lambda: self._endpoint(plan.attempt, first), LOOK_S)
            if found is None:
                continue
            since_s = time.monotonic() if since_s is None else since_s
            if connecting is None or connecting.endpoint != found:
                connecting = attempt_store.Connecting(found)
            answers = attempt_store.is_reachable(found, REACH_S)
            if answers and (store := connecting.wait()) is not None:
                self.reporter.say(unreachable="", unreachable_in=-1)
                return store
            if time.monotonic() - since_s >= UNREACHABLE_S:
                self._tell_unreachable(plan.attempt, f"{found.host}:{found.port}", first.node)
            self.watch.wait_for(is_over, RETRY_S)
        return None

    def _tell_unreachable(self, attempt: int, where: str, node: str) -> None:
        if self.reporter.report.unreachable_in != attempt:
            logger.warning("cannot reach the attempt's store at %s of node %s", where, node)
            self.reporter.say(unreachable=where, unreachable_in=attempt)

    def _open_store(self, host: str) -> TCPStore:
        try:
            return attempt_store.open_store(host, self.master_port)
        except OSError as error:
            line = (
                f"the attempt's store can't listen on {host}, port {self.master_port or 'any'}: "
                f"{error.strerror}; choose another --master-port, or none for a free one"
            )
            raise (BadInput if self.is_new else NotFormedAgain)(line) from error

    def _own_host(self, plan: Plan) -> str:
        if self.master_address:
            return self.master_address
        own = self.reporter.report
        nodes = {member.node for member in plan.members} - {own.node}
        if not nodes or not is_loopback(own.address):
            return own.address
        agents = self.watch.read_agents()
        return advertised(own.address, [a.address for a in agents if a.node in nodes])

    def _endpoint(self, attempt: int, first: Member) -> attempt_store.Endpoint | None:
        view = self.watch.view
        fields = {} if view is None else view.section(Section.ENDPOINTS)
        endpoint = attempt_store.parse_endpoint(fields.get(str(attempt)))
        if endpoint is None or endpoint.incarnation != first.incarnation:
            return None
        return endpoint


def _pause(plan: Plan | None) -> str:
    """What the leader says of the pause before the next attempt; empty: there is none."""
    return plan.waits if plan is not None and plan.state == "ended" else ""
