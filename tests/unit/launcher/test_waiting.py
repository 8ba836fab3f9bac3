"""What is said while nodes wait, and when."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch


from torch.distributed.elastic.rendezvous import (  # noqa: E402
    RendezvousError,
    RendezvousGracefulExitError,
)

from holdfast_sidecar.config.settings import BadInput  # noqa: E402
from holdfast_sidecar.launcher import plan_state, rendezvous  # noqa: E402
from holdfast_sidecar.launcher.plan_state import AttemptState  # noqa: E402
from holdfast_sidecar.records.plan import Member, PauseWindow, Plan, Quarantine  # noqa: E402
from holdfast_sidecar.records.reports import (  # noqa: E402
    AgentReport,
    GateVerdict,
)


def agent(node: str, state: str = "joining", nodes: tuple[int, int] = (3, 3)) -> AgentReport:
    return AgentReport(
        node=node,
        incarnation=f"{node}-1",
        state=state,
        attempt=-1,
        beat=1,
        slots=1,
        address="127.0.0.1",
        min_nodes=nodes[0],
        max_nodes=nodes[1],
        spares=1,
    )


def test_who_is_here_and_how_long_the_others_are_waited_for_is_said() -> None:
    line = plan_state.for_an_attempt(agent("c"), [agent("c"), agent("b", "left")], 597.0)
    assert line == "waiting for nodes: 1 of 3 is here (c); up to 10 min"
    line = plan_state.for_an_attempt(agent("c", nodes=(3, 4)), [agent("a")], 42.5)
    assert line == "waiting for nodes: 2 of 3 to 4 are here (a, c); up to 43 s"


def test_who_waits_with_another_command_is_not_counted_and_named() -> None:
    own = dataclasses.replace(agent("c"), launch_command="x", command={"script": "s"})
    other = dataclasses.replace(agent("b"), launch_command="y", command={"script": "t"})
    line = plan_state.for_an_attempt(own, [own, other], 597.0)
    assert line.startswith("waiting for nodes: 1 of 3 is here (c); up to 10 min; not with b, of ")
    assert "another command, which differs in: script (choose another --job" in line
    stranger = dataclasses.replace(other, launch="slurm-7")
    assert "not with b, of another launch (" in plan_state.for_an_attempt(own, [stranger], 597.0)


def test_with_enough_nodes_it_is_the_leader_that_is_waited_for() -> None:
    line = plan_state.for_an_attempt(agent("a", nodes=(1, 2)), [agent("a", nodes=(1, 2))], 500.0)
    assert line == "waiting for the job's leader: enough nodes are here, 1 of 2 (a)"


def test_the_first_words_come_soon_and_then_now_and_then() -> None:
    words = plan_state.WaitingWords(since=100.0)
    said = []
    for now in range(100, 170):
        if words.is_due(float(now)) and words.say("waiting", float(now), repeats=True):
            said.append(now)
    assert said == [103, 133, 163]


def test_a_line_that_does_not_repeat_is_said_when_it_is_new() -> None:
    words = plan_state.WaitingWords(since=0.0)
    said = [words.say(line, 0.0, repeats=False) for line in ("one", "one", "two")]
    assert said == ["one", None, "two"]


FOR_EVER_S = 100_000.0


@dataclass
class Clock:
    now: float = 0.0

    def monotonic(self) -> float:
        return self.now


@dataclass
class Watch:
    """A plan watch to which nothing ever happens but that time passes."""

    clock: Clock
    plan: Plan | None = None
    ends_at: float = float("inf")
    is_up: bool = True
    why_unled: str = ""
    plan_text: str = ""
    view: None = None
    agents: list[AgentReport] = field(default_factory=list)
    unfit: dict[str, GateVerdict] = field(default_factory=dict)

    def wait_for(self, answer: Callable[[], Any], timeout_s: float) -> Any:
        if (at_once := answer()) is not None:
            return at_once
        self.clock.now += timeout_s
        assert self.clock.now < FOR_EVER_S, "it waits for ever"
        if self.clock.now >= self.ends_at:
            self.plan = Plan(attempt=9, epoch=9, state="stopped")
        return answer()

    def read_agents(self) -> list[AgentReport]:
        return self.agents

    def read_unfit(self) -> dict[str, GateVerdict]:
        return self.unfit

    def read_leader_waits(self) -> str:
        return ""


@dataclass
class Reporter:
    report: AgentReport
    has_namesake: bool = False

    def say(self, **changes: Any) -> None:
        pass


def waits(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> list[str]:
    """The lines of a wait of 70 s that ends in nothing."""
    monkeypatch.setattr(rendezvous, "time", watch.clock)
    handler = rendezvous.HoldfastRendezvous(
        reporter=cast("Any", Reporter(agent("c"))),
        watch=cast("Any", watch),
        run_id="job",
        join_timeout_s=70.0,
    )
    with caplog.at_level(logging.WARNING), pytest.raises(RendezvousError):
        handler._wait_for_a_place()
    return [record.getMessage() for record in caplog.records]


def test_a_wait_for_nodes_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lines = waits(Watch(Clock()), monkeypatch, caplog)
    assert lines == [
        f"waiting for nodes: 1 of 3 is here (c); up to {left}" for left in ("2 min", "37 s", "7 s")
    ]


def test_a_spare_says_once_that_it_is_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    members = [Member("a", "a-1", 0, 0, 1), Member("b", "b-1", 1, 1, 1)]
    plan = Plan(1, 1, "running", members=members)
    lines = waits(Watch(Clock(), plan, ends_at=70.0), monkeypatch, caplog)
    assert lines == ["waiting as a spare: attempt 1 runs on a, b"]


def test_an_unfit_node_says_once_that_it_is_not_taken_in(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plan = Plan(1, 1, "running", members=[Member("a", "a-1", 0, 0, 1)])
    watch = Watch(Clock(), plan, ends_at=70.0, unfit={"c": UNFIT})
    (line,) = waits(watch, monkeypatch, caplog)
    assert line.startswith("this node is not taken in, its health gate finds it unfit: gpus: 7 of")


def test_a_node_that_works_all_the_same_just_waits_for_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lame = GateVerdict("unfit", ["pcie: GPU 0 is slow"], works=True)
    lines = waits(Watch(Clock(), unfit={"c": lame}), monkeypatch, caplog)
    assert lines[0] == "waiting for nodes: 1 of 3 is here (c); up to 2 min"


def test_nothing_is_said_about_nodes_while_the_store_is_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watch = Watch(Clock(), is_up=False, ends_at=70.0)
    assert waits(watch, monkeypatch, caplog) == []


def test_a_pause_before_the_next_attempt_is_told_at_once_and_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pause = "waiting 4.2 s before attempt 2: restarted 4 times for crash within 3600 s"
    lines = waits(Watch(Clock(), Plan(1, 1, "ended", waits=pause)), monkeypatch, caplog)
    assert lines[0] == pause
    assert [line[:17] for line in lines[1:]] == ["waiting for nodes"] * 2


def test_what_was_waited_for_before_an_attempt_is_not_told_while_it_runs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plan = Plan(2, 1, "running", members=[Member("a", "a-1", 0, 0, 1)], waits="waiting 4.2 s")
    lines = waits(Watch(Clock(), plan, ends_at=70.0), monkeypatch, caplog)
    assert lines == ["waiting as a spare: attempt 2 runs on a"]


def test_a_node_that_is_kept_outside_says_why_until_when_and_how_it_comes_in() -> None:
    machine = dataclasses.replace(agent("c"), machine="m1")
    why = ["3 failures within 24 h are blamed on it", "rank 2: ended by SIGKILL"]
    plan = Plan(4, 1, "running", outside=[Quarantine("m1", "c", 0.0, 2e9, why)])
    line = plan_state.beside(plan, machine)
    assert line.startswith("this node is kept outside until 2033-05-")
    assert line.endswith(
        ": 3 failures within 24 h are blamed on it (holdfast node return c lets it in)"
    )
    other = dataclasses.replace(machine, machine="m2")
    assert plan_state.beside(plan, other).startswith("waiting as a spare")


UNFIT = GateVerdict("unfit", ["gpus: 7 of 8 are there", "room: full"])


def test_an_unfit_node_is_told_so_with_every_reason() -> None:
    line = plan_state.for_an_attempt(agent("c"), [agent("a")], 42.5, {"c": UNFIT})
    assert line.startswith(
        "this node is not taken in, its health gate finds it unfit: gpus: 7 of 8 are there; room: "
        "full (holdfast nodes); waiting for nodes: 2 of 3 are here"
    )
    plan = Plan(1, 1, "running", members=[Member("a", "a-1", 0, 0, 1)])
    assert plan_state.beside(plan, agent("c"), UNFIT).startswith("this node is not taken in")
    assert plan_state.beside(plan, agent("c")) == "waiting as a spare: attempt 1 runs on a"


def test_with_too_few_fit_nodes_the_others_are_told_who_is_not() -> None:
    here = [agent(node, nodes=(2, 2)) for node in "ab"]
    line = plan_state.for_an_attempt(here[0], here, 42.5, {"b": UNFIT})
    assert line == (
        "waiting for nodes: 1 of the 2 nodes that are here may come in, 2 are needed; unfit: b "
        "(gpus: 7 of 8 are there); up to 43 s"
    )
    three = [*here, agent("c", nodes=(2, 2))]
    assert "leader" in plan_state.for_an_attempt(three[0], three, 42.5, {"b": UNFIT})


def test_who_is_drained_is_not_here_for_those_that_wait() -> None:
    here = [dataclasses.replace(agent(node, nodes=(2, 2)), machine=f"m-{node}") for node in "abc"]
    drained = Quarantine("m-c", "c", 0.0, 2e9, ["drained by ann: its fan"], "ann", is_drained=True)
    line = plan_state.for_an_attempt(here[0], here, 42.5, {"b": UNFIT}, [drained])
    assert line == (
        "waiting for nodes: 1 of the 3 nodes that are here may come in, 2 are needed; unfit: b "
        "(gpus: 7 of 8 are there); kept outside: c (drained by ann: its fan); up to 43 s"
    )
    own = plan_state.for_an_attempt(here[2], here, 42.5, {}, [drained])
    assert own.startswith("this node is kept outside until 2033-05-")
    assert "drained by ann: its fan (holdfast node return c lets it in); waiting for" in own


def test_a_quarantine_that_is_lifted_for_want_of_nodes_is_not_told() -> None:
    here = [dataclasses.replace(agent(node, nodes=(2, 2)), machine=f"m-{node}") for node in "ab"]
    blamed = Quarantine("m-b", "b", 0.0, 2e9, ["3 failures"])
    assert "leader" in plan_state.for_an_attempt(here[0], here, 42.5, {}, [blamed])


def test_a_node_that_comes_in_once_it_was_mended_is_told_so() -> None:
    machine = dataclasses.replace(agent("c"), machine="m1")
    ill = Quarantine("m1", "c", 0.0, 2e9, ["GPU 1 needs a reset"], gpu="G", remedy="reset_gpu")
    line = plan_state.beside(Plan(4, 1, "running", outside=[ill]), machine)
    assert re.match(
        r"this node is kept outside until its GPU was reset \(checked by \d\d:\d\d:00\), "
        "at the latest until 2033-05-",
        line,
    )
    reboot = dataclasses.replace(ill, remedy="reboot_node")
    line = plan_state.beside(Plan(4, 1, "running", outside=[reboot]), machine)
    assert "until it was rebooted, at the latest until 2033-05-" in line


def test_beside_an_attempt_whose_nodes_are_not_heard_of_it_is_said_what_is_waited_for() -> None:
    plan = Plan(1, 1, "running", [Member("a", "i", 0, 0, 2), Member("b", "i", 1, 2, 2)])
    few = "0 of the attempt's 2 nodes are here, not more than half"
    line = plan_state.beside(plan, agent("c"), None, few, "llama")
    assert line.startswith(f"waiting: attempt 1 ran on a, b; {few}.")
    assert "60 s" in line
    assert "holdfast stop --job llama" in line
    calm = plan_state.beside(plan, agent("c"), None, "waiting for evidence from a", "llama")
    assert calm.startswith("waiting as a spare")


@pytest.mark.parametrize(
    ("spares", "code", "raised"),
    [
        (0, 0, BadInput),
        (1, 0, rendezvous.JobStopped),
        (0, 75, rendezvous.JobStopped),
    ],
    ids=["a newcomer", "a spare", "a job that failed"],
)
def test_after_a_stop_that_was_asked_for_a_newcomer_does_not_leave_with_0(
    spares: int, code: int, raised: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never ran anything."""
    watch = Watch(Clock(), Plan(1, 1, "stopped", [Member("a", "a-1", 0, 0, 1)], exit_code=code))
    monkeypatch.setattr(rendezvous, "time", watch.clock)
    handler = rendezvous.HoldfastRendezvous(
        reporter=cast("Any", Reporter(dataclasses.replace(agent("c"), spares=spares))),
        watch=cast("Any", watch),
        run_id="job",
        join_timeout_s=70.0,
    )
    monkeypatch.setattr(handler, "_news", lambda words: AttemptState.STOPPED)
    with pytest.raises(raised):
        handler._wait_for_a_place()


def test_a_node_that_the_job_did_without_says_so_and_ends_as_the_job_does(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    member = dataclasses.replace(agent("a", "left", nodes=(1, 2)), launch="slurm-7")
    watch = Watch(Clock(), Plan(1, 1, "done", [Member("a", "a-1", 0, 0, 1)]), agents=[member])
    monkeypatch.setattr(rendezvous, "time", watch.clock)
    own = dataclasses.replace(agent("c", nodes=(1, 2)), spares=0, launch="slurm-7")
    handler = rendezvous.HoldfastRendezvous(
        reporter=cast("Any", Reporter(own)),
        watch=cast("Any", watch),
        run_id="job",
        join_timeout_s=70.0,
    )
    with pytest.raises(RendezvousGracefulExitError):
        handler._wait_for_a_place()
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("job job is done; this node ran nothing: it came when the last attempt")


AWAY = "the coordination server is away"
NONE_LEADS = "no sidecar leads the job"
MINE = [Member("c", "c-1", 0, 0, 1)]
PAUSE = PauseWindow("ann", "a switch", 1000.0, 1500.0)


def unled(watch: Watch, monkeypatch: pytest.MonkeyPatch, ran: bool = True) -> Any:
    """The rendezvous of a node whose ranks have ended, under torch's own agent."""
    monkeypatch.setattr(rendezvous, "time", watch.clock)
    own = dataclasses.replace(agent("c"), incarnation="c-1")
    handler: Any = rendezvous.HoldfastRendezvous(
        reporter=cast("Any", Reporter(own)),
        watch=cast("Any", watch),
        run_id="job",
        join_timeout_s=70.0,
    )
    if ran:
        handler.assignment = rendezvous.Assignment(Plan(0, 1, "running", MINE), MINE[0])
        handler._known = 0
    return handler


@pytest.mark.parametrize(
    ("why", "is_up", "pause", "left_at"),
    [(AWAY, False, None, 70), (NONE_LEADS, True, None, 70), (AWAY, False, PAUSE, 570)],
    ids=["no server", "no sidecar", "a pause that nobody ends"],
)
@pytest.mark.parametrize("state", ["running", "ended"])
def test_a_node_whose_ranks_ended_waits_so_long_without_a_leader_and_leaves_with_75(
    state: str,
    why: str,
    is_up: bool,
    pause: PauseWindow | None,
    left_at: float,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    plan = Plan(0, 1, state, MINE, pause=pause)
    watch = Watch(Clock(), plan, is_up=is_up, why_unled=why)
    handler = unled(watch, monkeypatch)
    wait = handler._let_the_attempt_end if state == "running" else handler._wait_for_a_place
    with pytest.raises(SystemExit) as left:
        wait()
    assert left.value.code == 75
    assert left_at <= watch.clock.now <= left_at + 2
    (line,) = [r.getMessage() for r in caplog.records if "leaving" in r.getMessage()]
    assert f"{why}: leaving with 75" in line


def test_a_node_that_ran_nothing_yet_leaves_with_75_where_the_server_stays_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch = Watch(Clock(), is_up=False, why_unled=AWAY)
    with pytest.raises(SystemExit) as left:
        unled(watch, monkeypatch, ran=False)._wait_for_a_place()
    assert left.value.code == 75


def test_a_node_that_looks_for_the_attempts_store_does_not_look_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    members = [Member("a", "a-1", 0, 0, 1), Member("c", "c-1", 1, 1, 1)]
    watch = Watch(Clock(), Plan(1, 1, "running", members), is_up=False, why_unled=AWAY)
    with pytest.raises(SystemExit):
        unled(watch, monkeypatch)._find_store(watch.plan, members[0])


def test_a_spare_waits_on_beside_ranks_that_may_live(monkeypatch: pytest.MonkeyPatch) -> None:
    others = Plan(0, 1, "running", [Member("a", "a-1", 0, 0, 1)])
    watch = Watch(Clock(), others, is_up=False, why_unled=AWAY, ends_at=5_000.0)
    handler = unled(watch, monkeypatch, ran=False)
    with pytest.raises(rendezvous.JobStopped):
        handler._wait_for_a_place()
