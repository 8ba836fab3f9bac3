"""Whose it is to judge who is slow, what the judge is given, and what becomes of its word."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.unit.ranks.scene import history, identity, look, record
from tests.unit.records.slow_job import SLOW, slow

from holdfast_sidecar.components.gpu.ownership import GpuOwnership
from holdfast_sidecar.components.machine import MachineReading
from holdfast_sidecar.config.settings import StragglerSettings
from holdfast_sidecar.performance.slowness import OwnNode, SlownessAttention
from holdfast_sidecar.performance.stragglers.placement import RankPlace
from holdfast_sidecar.records.findings import Finding, Kind, Moment
from holdfast_sidecar.records.reports import NodeReport, RankReport
from holdfast_sidecar.records.steps import Slowness, SlownessReport, StepLine, parse
from holdfast_sidecar.store.orders import Orders
from holdfast_sidecar.store.protocol import Lease


@dataclass
class Twin:
    """Judges as the test says, and notes what it was given."""

    answers: list[Any] = field(default_factory=list)
    given: list[list[tuple[int, int]]] = field(default_factory=list)
    places: list[set[int]] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)
    resumed: list[float] = field(default_factory=list)

    def make(self) -> Twin:
        return self

    def follow(
        self,
        lines: Iterable[StepLine],
        places: Mapping[int, RankPlace],
        reports: Mapping[int, RankReport],
        findings: Sequence[Finding],
        attempt: int,
        moment: Moment,
    ) -> SlownessReport | None:
        self.given.append([(line.rank, line.step) for line in lines])
        self.places.append(set(places))
        self.attempts.append(attempt)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def resume(self, standing: SlownessReport) -> None:
        self.resumed.append(standing.watched_s)


def standing(*slow: Slowness, watched_s: float = 0.0, attempt: int = 0) -> SlownessReport:
    return SlownessReport(attempt, 8, 2, 1005.0, list(slow), watched_s=watched_s)


def rank(number: int) -> RankReport:
    return RankReport(number, 0, 100, 8, "backward", 0.1, 0.1, 0.1)


LEADER = Orders(is_leader=True, store_up=True, nodes={}, lease=Lease(1, "a/i"))
FOLLOWER = Orders(is_leader=False, store_up=True, nodes={}, lease=Lease(1, "b/i"))
AWAY = Orders(store_up=False)


def other(attempt: int = 0, slow: SlownessReport | None = None, steps: Any = ()) -> NodeReport:
    return NodeReport("b", "i", 1, 0, 0, attempt, True, [rank(1)], steps=list(steps), slow=slow)


class Node:
    """Node a with rank 0, whose steps take long enough for a line each."""

    def __init__(self, twin: Twin, settings: StragglerSettings | None = None) -> None:
        self.twin = twin
        self.attention = SlownessAttention(settings or StragglerSettings(), twin.make)
        self.step = 0
        self.attempt = 0
        self.ranks = [rank(0)]

    def tick(self, now_s: float, orders: Orders, steps: int = 1) -> list[Finding]:
        moment = Moment(now_s, 1000.0 + now_s, "a")
        records = tuple(
            record(step, forward=400) for step in range(self.step + 1, self.step + steps + 1)
        )
        self.step += steps
        seen = replace(look(now_s, records=records), identity=identity(0, 2, self.attempt))
        ranks = {0: history(seen)}
        self.attention.see(ranks, MachineReading(), GpuOwnership(), moment)
        return self.attention.judge(orders, OwnNode(self.attempt, self.ranks, []), moment)


def test_who_leads_judges_all_nodes_and_tells_it_as_findings() -> None:
    twin = Twin([standing(slow(1))])
    node = Node(twin)
    lines = Node(Twin())
    lines.tick(1.0, FOLLOWER, steps=8)
    theirs = [text.replace("0", "1", 1) for text in lines.attention.steps]
    orders = replace(LEADER, nodes={"b": other(steps=theirs)})
    (finding,) = node.tick(1.0, orders, steps=8)
    assert (finding.kind, finding.node, finding.ranks) == (Kind.STRAGGLER, "b", [1])
    assert (finding.what, finding.since_unix_s, finding.acts) == ("cpu_quota", 4000.0, False)
    assert finding.evidence == [*SLOW.evidence, SLOW.advice]
    assert sorted(set(twin.given[0])) == [(r, step) for r in (0, 1) for step in range(4, 9)]
    assert twin.places == [{0, 1}]
    assert node.attention.standing == standing(slow(1))


def test_who_follows_tells_its_steps_and_judges_nobody() -> None:
    twin = Twin([standing(slow(1))])
    node = Node(twin)
    assert node.tick(1.0, FOLLOWER, steps=8) == []
    assert (twin.given, node.attention.standing) == ([], None)
    assert [line.step for text in node.attention.steps if (line := parse(text))] == [4, 5, 6, 7, 8]


def test_while_the_store_is_away_everybody_judges_its_own_ranks() -> None:
    twin = Twin()
    node = Node(twin)
    node.tick(1.0, replace(AWAY, nodes={"b": other()}), steps=8)
    assert twin.places == [{0}]


def test_findings_stand_between_judgements_and_end_with_the_attempt() -> None:
    twin = Twin([standing(slow(1)), standing(slow(1), attempt=0)])
    node = Node(twin)
    assert len(node.tick(1.0, LEADER, steps=8)) == 1
    assert len(node.tick(1.5, LEADER, steps=0)) == 1
    assert len(twin.given) == 1
    node.attempt = 1
    assert node.tick(2.0, LEADER, steps=0) == []
    assert node.attention.standing == standing(slow(1))


def test_lines_of_some_ranks_wait_a_second_and_those_of_all_are_judged_at_once() -> None:
    twin = Twin()
    node = Node(twin)
    orders = replace(LEADER, nodes={"b": other()})
    node.tick(1.0, orders, steps=8)
    node.tick(1.5, orders)
    node.tick(1.9, orders)
    assert len(twin.given) == 1
    node.tick(2.1, orders)
    assert twin.given[1:] == [[(0, 9), (0, 10), (0, 11)]]
    alone = Node(Twin())
    for tick in range(4):
        alone.tick(1.0 + tick / 10, LEADER, steps=8)
    assert len(alone.twin.given) == 4


def test_a_new_leader_goes_on_from_the_largest_totals_that_anybody_told() -> None:
    twin = Twin()
    node = Node(twin)
    node.tick(1.0, FOLLOWER, steps=8)
    told = {
        "b": other(slow=standing(watched_s=70.0)),
        "c": replace(other(slow=standing(watched_s=20.0)), node="c"),
    }
    node.tick(2.0, replace(LEADER, nodes=told))
    assert twin.resumed == [70.0]
    assert node.attention.standing == standing(watched_s=70.0)
    assert twin.given[0][:2] == [(0, 4), (0, 5)]
    node.tick(3.0, replace(LEADER, nodes=told))
    assert twin.resumed == [70.0]


def test_who_leads_no_more_tells_its_word_until_the_next_leader_tells_its_own() -> None:
    twin = Twin([standing(watched_s=9.0)])
    node = Node(twin)
    node.tick(1.0, LEADER, steps=8)
    node.tick(2.0, replace(FOLLOWER, nodes={"b": other()}))
    assert node.attention.standing == standing(watched_s=9.0)
    node.tick(3.0, replace(FOLLOWER, nodes={"b": other(slow=standing(watched_s=9.5))}))
    assert node.attention.standing is None
    assert len(twin.given) == 1


def test_a_leader_whose_store_was_away_goes_on_with_what_it_knows() -> None:
    twin = Twin()
    node = Node(twin)
    for second, orders in enumerate((LEADER, AWAY, LEADER)):
        node.tick(float(second), orders, steps=8)
    assert (len(twin.given), twin.resumed) == (3, [])


def test_who_was_alone_before_it_led_goes_on_from_what_others_told() -> None:
    twin = Twin([standing(watched_s=1.0)])
    node = Node(twin)
    node.tick(1.0, AWAY, steps=8)
    node.tick(2.0, replace(LEADER, nodes={"b": other(slow=standing(watched_s=70.0))}))
    assert twin.resumed == [70.0]


def test_an_attempt_is_judged_from_its_own_first_lines_on() -> None:
    twin = Twin([standing(watched_s=9.0)])
    node = Node(twin)
    node.tick(1.0, LEADER, steps=8)
    node.step, node.attempt = 0, 1
    node.tick(2.0, replace(LEADER, nodes={"b": other(attempt=0)}), steps=8)
    assert twin.attempts == [0, 1]
    assert sorted(set(twin.given[1])) == [(0, step) for step in range(4, 9)]
    assert twin.places == [{0}, {0}]


def test_who_leads_and_has_no_rank_in_the_attempt_judges_the_others() -> None:
    twin = Twin()
    node = Node(twin)
    node.tick(1.0, LEADER, steps=8)
    node.attempt, node.ranks = 1, []
    text = next(iter(node.attention.steps))
    theirs = "1" + text[1:]
    node.tick(2.5, replace(LEADER, nodes={"b": other(attempt=1, steps=[theirs])}), steps=0)
    assert (twin.attempts, twin.places[1:]) == ([0, 1], [{1}])
    assert twin.given[1:] == [[(1, 4)]]


def test_a_judge_that_fails_is_replaced_and_takes_no_tick_with_it() -> None:
    twin = Twin([standing(watched_s=9.0), ZeroDivisionError("planted"), standing(slow(1))])
    node = Node(twin)
    node.tick(1.0, LEADER, steps=8)
    assert node.tick(2.0, LEADER) == []
    (health,) = node.attention.health()
    assert (health.name, health.is_up, health.failures) == ("slowness", False, 1)
    assert twin.resumed == [9.0]
    assert len(node.tick(3.0, LEADER)) == 1
    assert node.attention.health()[0].is_up


def test_a_standing_that_can_not_be_told_is_not() -> None:
    twin = Twin([standing(slow(1, gain=math.nan))])
    node = Node(twin)
    assert node.tick(1.0, LEADER, steps=8) == []
    assert node.attention.standing is None
    assert not node.attention.health()[0].is_up


def test_what_slows_less_than_was_asked_for_is_no_finding() -> None:
    answer = standing(slow(1, slowdown=0.04, gain=0.01), slow(2, slowdown=0.0, gain=0.3))
    node = Node(Twin([answer]))
    assert [finding.ranks for finding in node.tick(1.0, LEADER, steps=8)] == [[2]]
    eager = Node(Twin([answer]), StragglerSettings(least_slowdown=0.03))
    assert len(eager.tick(1.0, LEADER, steps=8)) == 2


def test_nothing_is_told_or_judged_where_nobody_wants_it() -> None:
    twin = Twin([standing(slow(1))])
    node = Node(twin, StragglerSettings(enabled=False))
    assert node.tick(1.0, LEADER, steps=8) == []
    assert (twin.given, node.attention.steps) == ([], [])
