"""Nodes of which nothing is heard: their last words are not what their ranks do now."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.export.picture import ranks
from tests.unit.ranks.large_job import ATTEMPT, Job, picture
from tests.unit.ranks.scene import history, look

from holdfast_sidecar.export.live.build import (
    GONE,
    LOST_PHASE,
    PHASE_NAMES,
    context_of,
    gather,
    told_now,
)
from holdfast_sidecar.export.live.routes import LiveTelling
from holdfast_sidecar.export.live.view import LiveView
from holdfast_sidecar.export.state import TickState
from holdfast_sidecar.records.findings import Finding, Kind

NOW = 1_000_040.0
DIED = 1_000_008.0


def seen(shown: TickState, away_since_unix_s: float | None = None) -> LiveView:
    return gather(context_of(shown, "llm", away_since_unix_s))


def unheard(*found: Finding, since: float = DIED, per_node: int = 8, **orders: Any) -> TickState:
    """Two nodes as node-0 sees them; of node-1 nothing is heard since it died."""
    job = Job(2 * per_node, per_node, 13, incidents={}, findings=found)
    shown = picture(job, now_s=40.0, **orders)
    return replace(shown, heartbeats={"node-0": NOW, "node-1": since})


def lost() -> Finding:
    return Finding(Kind.NODE_LOST, "node-1", DIED - 0.2, 0.95, evidence=["silent for 32 s"])


def test_the_ranks_of_a_lost_node_are_dead_since_it_was_heard_last() -> None:
    view = seen(unheard(lost()))
    for rank in view.ranks[8:]:
        assert (rank.alive, rank.silence, rank.heard_unix_s) == (False, "lost", DIED)
        assert (rank.step_s, rank.own_s, rank.slowdown, rank.gpu) == (None, None, None, None)
    assert all(rank.alive and not rank.silence for rank in view.ranks[:8])


def test_a_lost_node_is_the_worst_that_is_wrong() -> None:
    crash = Finding(Kind.CRASH, "node-0", 9.0, 1.0, [0], acts=True)
    view = seen(unheard(crash, lost()))
    assert (view.light, view.headline) == ("red", "node node-1 is lost")
    assert view.warnings[0] == "crash on node-0"


@pytest.mark.parametrize("found", [[], [Finding(Kind.SIDECAR_LOST, "node-1", DIED, 0.95)]])
def test_of_a_node_that_only_says_nothing_is_told_what_it_said_last(found: list[Finding]) -> None:
    view = seen(unheard(*found))
    rank = view.ranks[15]
    assert (rank.alive, rank.silence, rank.heard_unix_s) == (True, "silent", DIED)
    assert rank.phase
    assert rank.step_s is None
    assert view.nodes[1].state == ("unattended" if found else "silent")


def test_a_node_whose_sidecar_is_heard_tells_of_its_ranks_itself() -> None:
    view = seen(unheard(lost(), since=NOW - 0.3))
    assert {rank.silence for rank in view.ranks} == {""}


def test_a_rank_that_was_done_before_its_node_fell_silent_stays_done() -> None:
    shown = unheard(lost())
    nodes = dict(shown.orders.nodes or {})
    done = [replace(one, alive=False, ending=1, phase="finished") for one in nodes["node-1"].ranks]
    nodes["node-1"] = replace(nodes["node-1"], ranks=done)
    view = seen(replace(shown, orders=replace(shown.orders, nodes=nodes)))
    assert [(rank.alive, rank.silence) for rank in view.ranks[8:]] == [(True, "")] * 8


def test_the_jobs_figures_are_of_those_that_are_heard() -> None:
    shown = unheard(lost())
    nodes = dict(shown.orders.nodes or {})
    told = [replace(one, step=5, step_s=9.0) for one in nodes["node-1"].ranks]
    nodes["node-1"] = replace(nodes["node-1"], ranks=told)
    view = seen(replace(shown, orders=replace(shown.orders, nodes=nodes)))
    assert (view.step, view.step_s, view.tokens_per_s) == (1380, 0.12, 8 * 2000.0)
    assert told_now(replace(shown, orders=replace(shown.orders, nodes=nodes))).step == 1380


def test_while_redis_is_away_the_others_words_are_marked_as_old() -> None:
    shown = unheard(per_node=1, store_up=False, is_leader=False)
    own = replace(ranks(history(look(10.0, step=5000))), attempt=ATTEMPT)
    view = seen(replace(shown, ranks=own), away_since_unix_s=DIED)
    by_rank = view.by_rank
    assert (by_rank[0].silence, by_rank[0].step) == ("", 5000)
    other = by_rank[1]
    assert (other.alive, other.silence, other.heard_unix_s) == (True, "old", DIED)
    assert view.step == 5000
    heard = {node.node: node.heartbeat_unix_s for node in view.nodes}
    assert heard == {"node-0": NOW, "node-1": DIED}


def test_what_redis_being_away_means_stands_before_what_a_narrow_screen_cuts() -> None:
    away = seen(unheard(store_up=False, is_leader=False), away_since_unix_s=DIED).headline
    assert away.startswith("Redis has been away for 32.0 s: only node-0 is seen, all else")
    assert "as last heard" in away[:78]


def test_the_map_has_no_cells_of_health_for_a_lost_node_and_keeps_the_survivors() -> None:
    told = {one.rank: one for one in told_now(unheard(lost())).ranks}
    assert all(told[rank].own_s > 0 for rank in range(8))
    assert {(told[rank].own_s, told[rank].phase) for rank in range(8, 16)} == {(0.0, LOST_PHASE)}
    assert (PHASE_NAMES[GONE], PHASE_NAMES[LOST_PHASE]) == ("gone", "lost")


def test_the_map_has_nothing_of_a_node_that_only_says_nothing() -> None:
    told = told_now(unheard())
    assert [one.rank for one in told.ranks] == list(range(8))
    assert told.world_size == 16


def test_who_begins_to_lead_paints_no_health_from_a_dead_leaders_last_report() -> None:
    """It saw its own ranks until then; what the dead one said last is no news. A lease lasts two
    seconds."""
    telling = LiveTelling("llm")
    for second in range(2):
        follower = picture(Job(16, slow=None), now_s=float(second), is_leader=False)
        telling.hear(replace(follower, heartbeats=dict.fromkeys(follower.heartbeats, 1_000_000.0)))
    for second in range(2, 6):
        leader = picture(Job(16, slow=None, findings=(lost(),)), now_s=float(second))
        beats = {"node-0": leader.moment.now_unix_s, "node-1": 1_000_000.0}
        telling.hear(replace(leader, heartbeats=beats))
    heat = telling._memory.heat(PHASE_NAMES)
    assert None not in heat.rows[0]
    assert set(heat.rows[8]) == {None}
    assert heat.phases[8][-3:] == [LOST_PHASE] * 3
