"""The rendezvous against a store in memory, with the test as leader."""

from __future__ import annotations

import dataclasses
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch.distributed.elastic.rendezvous import (  # noqa: E402
    RendezvousGracefulExitError,
    RendezvousTimeoutError,
)
from torch.distributed.elastic.rendezvous.api import RendezvousInfo  # noqa: E402

from holdfast_sidecar.config.settings import BadInput  # noqa: E402
from holdfast_sidecar.launcher.join import assign_workers  # noqa: E402
from holdfast_sidecar.launcher.plan_watch import (  # noqa: E402
    PlanWatch,
    Reporter,
)
from holdfast_sidecar.launcher.rendezvous import (  # noqa: E402
    HoldfastRendezvous,
    JobStopped,
    NotFormedAgain,
)
from holdfast_sidecar.records.codec import decode, encode  # noqa: E402
from holdfast_sidecar.records.plan import Member, Plan  # noqa: E402
from holdfast_sidecar.records.reports import AgentReport  # noqa: E402
from holdfast_sidecar.store.memory_store import MemoryServer, MemoryStore  # noqa: E402
from holdfast_sidecar.store.protocol import Section  # noqa: E402

PATIENCE_S = 20.0
HEARTBEAT_S = 0.02


class Call(threading.Thread):
    """A call under way in a thread, and what came of it."""

    def __init__(self, function: Callable[[], RendezvousInfo]) -> None:
        super().__init__(daemon=True)
        self._function = function
        self.result: RendezvousInfo | None = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self._function()
        except BaseException as error:
            self.error = error

    def get(self) -> RendezvousInfo:
        self.join(PATIENCE_S)
        assert not self.is_alive(), "still waiting"
        if self.error is not None:
            raise self.error
        assert self.result is not None
        return self.result


@dataclass
class Job:
    """A job whose leader is the test."""

    server: MemoryServer = field(default_factory=MemoryServer)
    handlers: list[HoldfastRendezvous] = field(default_factory=list)
    plan: Plan | None = None

    def __post_init__(self) -> None:
        self.store = MemoryStore(self.server, "job")
        self.lease = self.store.campaign("leader", 3600.0, 0)

    def node(
        self, name: str, join_timeout_s: float = PATIENCE_S, **facts: object
    ) -> HoldfastRendezvous:
        report = AgentReport(name, f"{name}-1", "joining", -1, 0, 2, "127.0.0.1", 2, 2)
        handler = HoldfastRendezvous(
            Reporter(
                MemoryStore(self.server, "job"),
                dataclasses.replace(report, **facts),  # type: ignore[arg-type]
                HEARTBEAT_S,
            ),
            PlanWatch(MemoryStore(self.server, "job", hears_reports=False), HEARTBEAT_S),
            "job",
            join_timeout_s,
        )
        handler.watch.start()
        self.handlers.append(handler)
        return handler

    def order(self, attempt: int, state: str, *nodes: str, **more: object) -> Plan:
        members = [Member(n, f"{n}-1", i, 2 * i, 2) for i, n in enumerate(nodes)]
        plan = Plan(attempt, 1, state, members, world_size=2 * len(nodes), **more)  # type: ignore[arg-type]
        return self.write(plan)

    def write(self, plan: Plan) -> Plan:
        old = self.store.read().section(Section.PLAN).get("current")
        assert self.store.order(self.lease, Section.PLAN, "current", encode(plan), old)
        return plan

    def await_report(self, node: str, is_so: Callable[[AgentReport], bool]) -> AgentReport:
        for _ in range(2000):
            text = self.store.read().section(Section.AGENTS).get(node)
            report = None if text is None else decode(AgentReport, text)
            if report is not None and is_so(report):
                return report
            self.store.wait(0.02)
        raise AssertionError(f"{node} reports {report}")


@pytest.fixture
def job() -> Iterator[Job]:
    made = Job()
    yield made
    for handler in made.handlers:
        handler.reporter.close(1.0)
        handler.watch.stop()


def is_running(report: AgentReport) -> bool:
    return report.state == "running"


def test_a_spare_hears_of_the_attempt_beside_which_it_waits(job: Job) -> None:
    heard: list[int] = []
    spare = job.node("c")
    spare.beside = lambda plan: heard.append(plan.attempt)
    call = Call(spare.next_rendezvous)
    job.await_report("c", is_joining)
    assert heard == []
    job.order(0, "running", "a")
    for _ in range(500):
        if heard:
            break
        time.sleep(0.01)
    assert set(heard) == {0}
    job.order(1, "running", "c")
    assert call.get().rank == 0


def test_reports_of_others_do_not_wake_an_agent(job: Job) -> None:
    other = MemoryStore(job.server, "job", hears_reports=False)
    while other.wait(0.02):
        pass
    a = job.node("a", attempt=3)
    Call(a.next_rendezvous)
    job.await_report("a", is_joining)
    assert not other.wait(0)
    job.order(4, "running", "a")
    assert other.wait(5)


def sees(handler: HoldfastRendezvous, attempt: int) -> None:
    """Wait until the handler has read a plan of this attempt."""

    def answer() -> bool | None:
        plan = handler.watch.plan
        return True if plan is not None and plan.attempt == attempt else None

    assert handler.watch.wait_for(answer, PATIENCE_S)


def is_joining(report: AgentReport) -> bool:
    return report.state == "joining"


def test_members_meet_on_a_fresh_store_in_every_attempt(job: Job) -> None:
    a, b = job.node("a"), job.node("b")
    ports = []
    for attempt in (0, 1):
        calls = [Call(a.next_rendezvous), Call(b.next_rendezvous)]
        for name in ("a", "b"):
            job.await_report(name, is_joining)
        job.order(attempt, "running", "a", "b")
        first, second = (call.get() for call in calls)
        assert (first.rank, second.rank) == (0, 1)
        assert first.world_size == second.world_size == 2
        assert first.store.check(["left from before"]) is False
        first.store.set("left from before", "x")
        assert second.store.get("left from before") == b"x"
        assert first.bootstrap_store_info == second.bootstrap_store_info
        ports.append(first.bootstrap_store_info.master_port)
        assert job.await_report("b", is_running).attempt == attempt
        job.order(attempt, "ended", "a", "b")
    assert ports[0] != ports[1]


def test_a_spare_waits_through_attempts_and_leaves_when_the_job_is_done(job: Job) -> None:
    a, spare = job.node("a"), job.node("s", join_timeout_s=0.3, spares=1)
    waiting, running = Call(spare.next_rendezvous), Call(a.next_rendezvous)
    job.await_report("s", is_joining)
    job.order(0, "running", "a")
    running.get()
    waiting.join(1.5)
    assert waiting.is_alive(), "a spare has no deadline while an attempt lives"
    job.order(0, "done", "a")
    with pytest.raises(RendezvousGracefulExitError):
        waiting.get()


def test_a_spare_takes_the_seat_of_a_lost_node(job: Job) -> None:
    a, spare = job.node("a"), job.node("s")
    waiting, running = Call(spare.next_rendezvous), Call(a.next_rendezvous)
    job.await_report("s", is_joining)
    job.order(0, "running", "a", "lost")
    running.get()
    job.order(0, "ended", "a", "lost")
    running = Call(a.next_rendezvous)
    job.await_report("a", is_joining)
    job.order(1, "running", "a", "s")
    assert (running.get().rank, waiting.get().rank) == (0, 1)


def test_a_stopped_job_says_why(job: Job) -> None:
    call = Call(job.node("a").next_rendezvous)
    job.await_report("a", is_joining)
    job.order(0, "stopped", exit_code=2, message="the nodes have different versions of torch")
    with pytest.raises(JobStopped, match="different versions of torch") as stopped:
        call.get()
    assert stopped.value.plan.exit_code == 2


def test_a_job_that_was_over_before_does_not_end_its_next_run(job: Job) -> None:
    job.order(4, "done", "old")
    call = Call(job.node("a").next_rendezvous)
    assert job.await_report("a", is_joining).attempt == 4
    call.join(0.3)
    assert call.is_alive()
    job.order(5, "running", "a")
    assert call.get().rank == 0


def test_too_few_nodes_by_the_deadline_is_said_in_one_line(job: Job) -> None:
    call = Call(job.node("a", join_timeout_s=0.2).next_rendezvous)
    with pytest.raises(RendezvousTimeoutError, match=r"1 of the 2 nodes .* \(here: a\)"):
        call.get()


def test_without_any_sidecar_the_deadline_says_so(job: Job) -> None:
    job.store.resign("leader")
    call = Call(job.node("a", join_timeout_s=0.2).next_rendezvous)
    with pytest.raises(RendezvousTimeoutError, match="no sidecar leads"):
        call.get()


def test_too_few_nodes_for_a_later_attempt_is_no_bad_input(job: Job) -> None:
    a = job.node("a", join_timeout_s=0.2)
    call = Call(a.next_rendezvous)
    job.await_report("a", is_joining)
    job.order(0, "running", "a")
    call.get()
    job.order(0, "ended", "a")
    with pytest.raises(NotFormedAgain, match="1 of the 2 nodes"):
        Call(a.next_rendezvous).get()


def test_a_master_port_that_is_taken_is_said_in_one_line(job: Job) -> None:
    a = job.node("a")
    with socket.create_server(("127.0.0.1", 0)) as other:
        a.master_port = other.getsockname()[1]
        call = Call(a.next_rendezvous)
        job.await_report("a", is_joining)
        job.order(0, "running", "a")
        with pytest.raises(BadInput, match=f"port {a.master_port}: .*; choose another --master"):
            call.get()


def test_a_master_port_that_is_taken_between_attempts_is_no_bad_input(job: Job) -> None:
    a = job.node("a")
    call = Call(a.next_rendezvous)
    job.await_report("a", is_joining)
    job.order(0, "running", "a")
    call.get()
    with socket.create_server(("127.0.0.1", 0)) as other:
        a.master_port = other.getsockname()[1]
        job.order(0, "ended", "a")
        call = Call(a.next_rendezvous)
        job.await_report("a", is_joining)
        job.order(1, "running", "a")
        with pytest.raises(NotFormedAgain, match="in use"):
            call.get()


def test_a_store_that_is_away_stops_the_deadline_and_nothing_else(job: Job) -> None:
    call = Call(job.node("a", join_timeout_s=2.0).next_rendezvous)
    job.await_report("a", is_joining)
    call.join(1.2)
    job.server.pause()
    call.join(1.2)
    job.server.resume()
    call.join(0.4)
    assert call.is_alive(), "the wait for nodes begins anew"
    job.order(0, "running", "a")
    assert call.get().rank == 0


def test_a_plan_that_is_older_than_the_one_obeyed_is_not_followed(job: Job) -> None:
    a = job.node("a")
    call = Call(a.next_rendezvous)
    job.await_report("a", is_joining)
    job.order(3, "running", "a")
    call.get()
    job.order(2, "ended", "a")
    sees(a, 2)
    assert a.num_nodes_waiting() == 0
    job.order(3, "ended", "a")
    sees(a, 3)
    assert a.num_nodes_waiting() == 1


def test_an_emptied_server_learns_the_plan_from_the_agents(job: Job) -> None:
    a = job.node("a")
    call = Call(a.next_rendezvous)
    job.await_report("a", is_joining)
    plan = job.order(0, "running", "a")
    call.get()
    job.server.empty()
    report = job.await_report("a", lambda r: bool(r.plan))
    assert decode(Plan, report.plan) == plan
    assert a.num_nodes_waiting() == 0


def test_under_torchs_agent_a_second_rendezvous_in_a_living_attempt_is_a_failure(job: Job) -> None:
    a = job.node("a")
    call = Call(a.next_rendezvous)
    job.await_report("a", is_joining)
    job.order(0, "running", "a")
    call.get()
    again = Call(a.next_rendezvous)
    job.await_report("a", lambda r: r.state == "failed" and r.attempt == 0)
    job.order(0, "ended", "a")
    job.await_report("a", lambda r: r.state == "joining" and r.attempt == 0)
    job.order(1, "running", "a")
    assert again.get().rank == 0


def test_a_member_whose_attempt_ended_before_it_met_the_others_joins_again(job: Job) -> None:
    b = job.node("b")
    call = Call(b.next_rendezvous)
    job.await_report("b", is_joining)
    job.order(0, "running", "never came", "b")
    job.await_report("b", lambda r: bool(r.plan))
    job.order(0, "ended", "never came", "b")
    job.await_report("b", lambda r: r.state == "joining" and r.attempt == 0)
    job.order(1, "running", "b")
    assert call.get().rank == 0


def test_ranks_are_numbered_by_the_plan_and_inside_their_role(job: Job) -> None:
    a = job.node("a", role="actor")
    learner = job.node("b", role="learner")
    calls = [Call(h.next_rendezvous) for h in (a, learner)]
    for name in ("a", "b"):
        job.await_report(name, is_joining)
    members = [Member("a", "a-1", 0, 0, 2, "actor"), Member("b", "b-1", 1, 2, 2, "learner")]
    job.write(Plan(0, 1, "running", members, world_size=4))
    for call in calls:
        call.get()
    assert learner.assignment is not None
    workers = assign_workers(learner.assignment, "learner")
    assert [(w.global_rank, w.role_rank, w.role_world_size) for w in workers] == [
        (2, 0, 2),
        (3, 1, 2),
    ]


def test_a_store_that_cannot_be_reached_is_said_and_reported(
    job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It was waited for in silence, while the other ranks ran into torch's timeout."""
    monkeypatch.setattr("holdfast_sidecar.launcher.rendezvous.UNREACHABLE_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    joining = Call(job.node("b").next_rendezvous)
    plan = job.order(0, "running", "a", "b")
    job.store.report(Section.ENDPOINTS, "0", f"a-1 127.0.0.1 {port}")
    told = job.await_report("b", lambda report: report.unreachable_in == 0)
    assert told.unreachable == f"127.0.0.1:{port}"
    lines = [r.getMessage() for r in caplog.records if "cannot reach" in r.getMessage()]
    assert lines == [f"cannot reach the attempt's store at 127.0.0.1:{port} of node a"]
    job.write(dataclasses.replace(plan, state="stopped", message="over"))
    with pytest.raises(JobStopped):
        joining.get()
