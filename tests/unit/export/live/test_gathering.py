from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.export.picture import picture as known_picture
from tests.unit.export.picture import ranks
from tests.unit.ranks.large_job import ATTEMPT, Job, picture
from tests.unit.ranks.scene import history, look, steps

from holdfast.contract.page import Phase
from holdfast_sidecar.export.live.build import context_of, gather, of_store
from holdfast_sidecar.export.live.view import INCIDENTS, LiveView
from holdfast_sidecar.export.state import TickState
from holdfast_sidecar.records.account import parse_account
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.plan import Incident, PauseWindow
from holdfast_sidecar.store.protocol import Section


def seen(shown: TickState, away_since_unix_s: float | None = None) -> LiveView:
    return gather(context_of(shown, "llm", away_since_unix_s))


def test_a_leader_tells_of_all_ranks_and_nodes() -> None:
    view = seen(picture(Job(64)))
    assert (view.run, view.node, view.is_leader, view.leader_node) == (
        "llm",
        "node-0",
        True,
        "node-0",
    )
    assert [rank.rank for rank in view.ranks] == list(range(64))
    assert view.ranks[63].node == "node-7"
    assert [node.node for node in view.nodes] == [f"node-{number}" for number in range(8)]
    assert view.nodes[7].ranks == list(range(56, 64))
    assert {node.state for node in view.nodes} == {"member"}
    assert (view.state, view.attempt, view.world_size, view.restarts) == ("running", ATTEMPT, 64, 3)


def test_the_jobs_figures_are_those_of_its_ranks() -> None:
    view = seen(picture(Job(64), now_s=10.0))
    assert view.step == 1170
    assert view.step_s == 0.12
    assert view.tokens_per_s == 64 * 2000.0
    assert view.mfu == 0.382


def test_waiting_is_what_a_step_has_besides_own_work() -> None:
    rank = seen(picture(Job(8))).ranks[3]
    assert rank.own_s is not None
    assert rank.wait_s == pytest.approx(0.12 - rank.own_s)


def test_who_is_slow_is_told_with_cause_and_advice() -> None:
    view = seen(picture(Job(64, slow=13)))
    (one,) = view.slow
    assert (one.rank, one.node, one.percent, one.cause) == (13, "node-1", 31.0, "cpu_quota")
    assert one.why
    assert one.advice
    assert (view.ranks[13].slowdown, view.ranks[13].cause) == (0.31, "cpu_quota")
    assert view.ranks[12].slowdown is None


def test_a_ranks_own_node_sees_it_as_it_is_now() -> None:
    newest = history(look(10.0, Phase.DATA, since_s=9.0, step=99, records=steps(20, forward=30)))
    shown = replace(known_picture(), ranks=ranks(newest))
    own, other = seen(shown).ranks
    assert (own.rank, own.node, own.step, own.phase) == (0, "a", 99, "data")
    assert own.phase_since_unix_s == 1_000_009.0
    assert (other.rank, other.node, other.step, other.phase) == (1, "b", 44, "forward")
    assert own.gpu is not None
    assert own.gpu.busy is not None
    assert own.gpu.temperature_c is not None


def test_of_gpus_elsewhere_is_told_what_their_ranks_say() -> None:
    gpu = seen(picture(Job(64))).ranks[63].gpu
    assert gpu is not None
    assert (gpu.power_w, gpu.memory_size_bytes) == (513.0, 85e9)
    assert gpu.busy is None


def test_while_redis_is_away_a_node_tells_what_it_sees_and_since_when() -> None:
    newest = history(look(10.0, Phase.DATA, since_s=9.0, step=99))
    shown = replace(known_picture(), ranks=ranks(newest))
    shown = replace(shown, orders=replace(shown.orders, store_up=False, is_leader=False))
    view = seen(shown, away_since_unix_s=1_000_000.0)
    assert (view.store_up, view.store_away_since_unix_s) == (False, 1_000_000.0)
    assert view.headline == "stall on a"
    assert view.warnings[0].startswith("Redis has been away for 10.0 s")
    assert [rank.step for rank in view.ranks] == [99, 44]


def test_a_sidecar_that_never_reached_redis_tells_its_own_ranks() -> None:
    shown = known_picture()
    orders = replace(shown.orders, plan=None, view=None, store_up=False, is_leader=False)
    view = seen(replace(shown, orders=orders), away_since_unix_s=999_000.0)
    assert [rank.rank for rank in view.ranks] == [0]
    assert view.nodes == []
    assert view.state == ""


def test_who_does_not_lead_says_who_does_and_where() -> None:
    view = seen(picture(Job(64, leader="node-3"), is_leader=False))
    assert (view.is_leader, view.leader_node) == (False, "node-3")
    assert view.leader_address == "127.0.0.1:9753"
    assert [node.node for node in view.nodes if node.is_leader] == ["node-3"]
    assert len(view.ranks) == 64


def test_incidents_come_newest_first_with_their_stories() -> None:
    view = seen(picture(Job(8)))
    assert [one.identifier for one in view.incidents] == ["i2", "i3", "i1"]
    hang = view.incidents[-1]
    assert hang.is_over
    assert (hang.lost_s, hang.lost_steps) == (4.5, 10)
    assert hang.story[0].startswith("+0 ms: first sign of trouble")
    assert any(line.startswith("next: ") for line in view.incidents[1].story)
    assert "restarted" in hang.title


def test_of_many_incidents_the_newest_are_told() -> None:
    many = {f"i{n}": Incident(f"i{n}", 1, "crash", detected_unix_s=float(n)) for n in range(80)}
    view = seen(picture(Job(8, incidents=many)))
    assert len(view.incidents) == INCIDENTS
    assert view.incidents[0].identifier == "i79"


def test_a_long_traceback_is_cut() -> None:
    long = Incident("i", 1, "crash", detected_unix_s=5.0, evidence=["x " * 5000] * 50)
    (told,) = seen(picture(Job(8, incidents={"i": long}))).incidents
    assert sum(map(len, told.story)) < 5000


def test_lost_nodes_are_told_as_lost() -> None:
    lost = Finding(Kind.NODE_LOST, "node-2", 5.0, 1.0, evidence=["silent for 3 s"])
    view = seen(picture(Job(64, findings=(lost,))))
    states = {node.node: node.state for node in view.nodes}
    assert states["node-2"] == "lost"
    assert [(one.kind, one.node) for one in view.findings] == [("node_lost", "node-2")]
    assert next(node for node in view.nodes if node.node == "node-2").findings == 1


def test_nodes_that_wait_outside_come_last() -> None:
    view = seen(known_picture())
    assert [(node.node, node.state) for node in view.nodes] == [
        ("a", "member"),
        ("b", "member"),
        ("c", "spare"),
    ]


def test_what_is_saved_is_told() -> None:
    saved = seen(known_picture()).checkpoint
    assert (saved.durable_step, saved.durable_unix_s) == (40, 90.0)
    assert saved.writing_step == 60
    assert saved.interval_s is not None


def test_a_pause_is_told_with_who_asked_for_it() -> None:
    paused = {"pause": PauseWindow("ada", "a new switch", 0.0, 2e9)}
    view = seen(picture(Job(8, incidents={}, slow=None, plan=paused)))
    assert view.paused_by == "ada"
    assert view.headline == "paused by ada: a new switch"


def test_the_account_is_empty_until_it_is_known() -> None:
    view = seen(picture(Job(8)))
    assert (view.account, view.lost_s, view.goodput, view.ettr) == ({}, None, None, None)


def test_where_the_time_went_is_told_with_what_waits_to_be_split() -> None:
    view = seen(known_picture())
    known = known_picture().orders.view
    assert known is not None
    account = parse_account(known.section(Section.ACCOUNT))
    assert account is not None
    assert sum(view.account.values()) == pytest.approx(account.total_us / 1e6)
    assert view.account["pending"] == account.pending_us / 1e6
    assert view.lost_s == account.lost_us / 1e6
    assert view.goodput is not None
    assert 0 < view.goodput < 1


def test_the_store_alone_tells_all_but_the_past() -> None:
    shown = picture(Job(64))
    assert shown.orders.view is not None
    view = of_store("llm", shown.orders.view, 1_000_010.0)
    assert [rank.rank for rank in view.ranks] == list(range(64))
    assert view.leader_node == "node-0"
    assert view.heat.rows == {}
    assert {node.heartbeat_unix_s for node in view.nodes} == {None}


def test_ranks_of_an_attempt_that_is_over_are_not_told() -> None:
    view = seen(picture(Job(8, plan={"attempt": ATTEMPT + 1})))
    assert view.ranks == []
    assert view.step is None
