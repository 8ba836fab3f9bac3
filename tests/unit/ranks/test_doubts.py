"""A doubt anywhere makes every node ask its ranks, and what all told is judged together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.unit.pretend_pages import publish, set_word, write_page
from tests.unit.ranks.scene import record
from tests.unit.ranks.test_arrival import PAST, STEP, standing, trace
from tests.unit.test_loop import Coordination, loop

from holdfast.contract.page import Phase, Word
from holdfast_sidecar.loop import Loop
from holdfast_sidecar.ranks.observation import RankHistory
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.collectives import RankTrace
from holdfast_sidecar.records.findings import Kind
from holdfast_sidecar.records.reports import NodeReport, RankReport
from holdfast_sidecar.store.orders import LocalState, Orders
from holdfast_sidecar.store.protocol import Lease, Section, View

__all__ = ["loop"]


@dataclass
class Inquiry:
    """What the ranks of this node tell, once they are asked."""

    told: dict[int, RankTrace]
    wanted: list[bool] = field(default_factory=list)

    def follow(
        self,
        is_wanted: bool,
        overdue: Iterable[int],
        histories: Mapping[int, RankHistory],
        now_s: float,
    ) -> dict[int, RankTrace]:
        self.wanted.append(is_wanted)
        return self.told if is_wanted else {}


def other_node(doubts: bool) -> str:
    """Rank 1 waits for rank 0, which lives here."""
    waits = trace(1, standing([*PAST, STEP[0]], 12), size=2)
    peer = RankReport(1, 0, 100, 10, "backward", 3.0, 0.1, 0.1)
    return encode(
        NodeReport("b", "x", 1, 0, 0, 0, True, ranks=[peer], doubts=doubts, traces=[waits])
    )


def computing_rank(directory: Path) -> None:
    """A rank that went into its forward at second 0, as it often does for long."""
    path = write_page(directory, claimed_ns=0)
    for index in range(10):
        publish(path, index, record(step=index + 1, forward=4000))
    set_word(path, Word.STEP, 10)
    set_word(path, Word.PHASE, Phase.FORWARD)


def told(loop: Loop) -> LocalState:
    assert isinstance(loop.coordination, Coordination)
    return loop.coordination.told[-1]


def test_a_healthy_job_asks_nobody(loop: Loop, tmp_path: Path) -> None:
    loop.inquiry = Inquiry({})
    computing_rank(tmp_path)
    loop.tick(0.5, 1000.5)
    assert loop.inquiry.wanted == [False]
    assert not told(loop).doubts
    assert told(loop).traces == []


def test_another_node_s_doubt_has_our_ranks_asked_and_names_the_one_it_waits_for(
    loop: Loop, tmp_path: Path
) -> None:
    ours = trace(0, standing(PAST), size=2, is_overdue=False)
    loop.inquiry = Inquiry({0: ours})
    computing_rank(tmp_path)
    assert isinstance(loop.coordination, Coordination)
    view = View(Lease(1, "b/x"), "server", {Section.NODES: {"b": other_node(doubts=True)}})
    loop.coordination.agreed = Orders(view=view, store_up=True)
    loop.tick(0.5, 1000.5)
    assert loop.inquiry.wanted == [True]
    assert not told(loop).doubts
    assert told(loop).traces == [ours]
    (finding,) = told(loop).findings
    assert (finding.kind, finding.ranks, finding.acts) == (Kind.STALL, [0], False)
    assert "which rank 0 has not entered" in finding.evidence[-1]


def test_our_own_doubt_is_told_to_the_others_before_anything_is_found(
    loop: Loop, tmp_path: Path
) -> None:
    loop.inquiry = Inquiry({})
    computing_rank(tmp_path)
    doubted = []
    for second in range(1, 11):
        loop.tick(second, 1000.0 + second)
        doubted.append(told(loop).doubts)
        assert told(loop).findings == []
    assert doubted == [False] * 6 + [True] * 4
