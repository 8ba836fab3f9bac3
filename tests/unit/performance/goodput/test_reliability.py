"""How often a run fails, what that costs, and what would gain most."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast_sidecar.config.settings import CostSettings
from holdfast_sidecar.performance.goodput import costs
from holdfast_sidecar.performance.goodput.costs import burn, ettr, goodput, reliability
from holdfast_sidecar.performance.goodput.summary import LOST, gains, plain, sum_up
from holdfast_sidecar.records.account import Account, IncidentCost
from holdfast_sidecar.records.plan import Incident

S = 1_000_000
HANG = Incident(
    "i1",
    0,
    "hang",
    "b",
    [1],
    since_unix_s=1100.0,
    detected_unix_s=1102.0,
    ended_unix_s=1103.0,
    decided="restart",
    recovered_unix_s=1110.0,
    step_reached=100,
    step_resumed=80,
)
CRASH = Incident("i2", 1, "crash", "a", [0], detected_unix_s=1400.0, is_of_script=True)
GROWN = replace(HANG, identifier="i3", cause="grow", culprit_node="")

ACCOUNT = Account(
    began_us=1000 * S,
    at_us=1500 * S,
    open="restart",
    run="1000.0",
    gpus=8,
    weight=8,
    micros={"queued": 100 * S, "productive": 340 * S, "saving": 40 * S, "restart": 20 * S},
    gpu_micros={"productive": 2720 * S, "saving": 320 * S, "restart": 160 * S, "queued": 800 * S},
    stages={"i2:drain": 3 * S},
    costs={
        "i1": IncidentCost(
            {"detect": 2 * S, "drain": S, "rendezvous": 4 * S, "restore": 2 * S, "first_step": S},
            20 * S,
            160 * S,
            20,
            "hang",
            "b",
        )
    },
)


def test_goodput_is_what_was_productive_and_stands_of_all_but_waiting_for_nodes() -> None:
    assert goodput(ACCOUNT) == pytest.approx((340 - 20) / 400)
    assert ettr(ACCOUNT) == pytest.approx((380 - 20) / 400)
    assert goodput(Account(0, 0)) is None
    unseen = replace(ACCOUNT, micros={"queued": 100 * S, "unobserved": 900 * S}, costs={})
    assert (goodput(unseen), ettr(unseen)) == (None, None)
    stepless = replace(ACCOUNT, micros={"setup": 1800 * S, "unobserved": 900 * S}, costs={})
    assert (goodput(stepless), ettr(stepless)) == (None, None)


def test_the_reference_s_example_counts_half() -> None:
    """Ten hours of productive time of which five were lost."""
    lost = {"i": IncidentCost({}, 5 * 3600 * S, 0, 1, "crash")}
    account = Account(0, 0, micros={"productive": 10 * 3600 * S}, costs=lost)
    assert goodput(account) == 0.5


def test_a_failure_of_which_only_its_cost_is_known_still_counts() -> None:
    """Redis came back empty, and was told of the account alone."""
    asked = replace(ACCOUNT.costs["i1"], cause="grow")
    one = reliability(replace(ACCOUNT, costs={**ACCOUNT.costs, "i3": asked}), [])
    assert (one.failures, one.mtbf_s) == (1, 400.0)


def test_failures_are_what_broke_and_not_what_people_wanted() -> None:
    asked = replace(HANG, cause="restart")
    seen = replace(HANG, decided="observe")
    one = reliability(ACCOUNT, [HANG, GROWN, asked, seen])
    assert one.failures == 1
    assert one.mtbf_s == 400.0
    assert (one.mttd_s, one.mttr_s) == (2.0, 10.0)
    assert one.phases_s is not None
    assert sum(one.phases_s.values()) == 10.0
    assert reliability(replace(ACCOUNT, costs={}), []).mtbf_s is None


def test_the_budget_burns_as_fast_as_time_is_wasted() -> None:
    assert burn(0.9, 0.95) == pytest.approx(2.0)
    assert burn(0.95, 0.95) == pytest.approx(1.0)
    assert burn(None, 0.95) is None
    assert burn(0.9, 1.0) is None


def test_incidents_of_an_earlier_run_are_not_this_one_s() -> None:
    earlier = replace(HANG, identifier="i0", detected_unix_s=900.0)
    incidents = {one.identifier: one for one in (HANG, CRASH, earlier)}
    assert [one.identifier for one in costs.of_run(incidents, ACCOUNT)] == ["i1", "i2"]


def test_nobody_s_machine_is_billed_for_a_script_s_own_bug() -> None:
    assert costs.blamed_node(CRASH) == ""
    assert costs.blamed_node(HANG) == "b"
    lost = costs.lost_work(ACCOUNT.costs.values())
    assert lost[("hang", "b")] == costs.Lost(20.0, 160.0, 20)


def test_what_takes_most_is_told_first_and_trifles_are_not() -> None:
    told = gains(replace(ACCOUNT, micros={**ACCOUNT.micros, "data_wait": S}))
    assert [one.what for one in told] == ["saving", "restart", LOST]
    assert told[0].share == pytest.approx(40 / 401)


def test_a_summary_bills_each_incident_and_the_whole_in_hours_and_money() -> None:
    incidents = {one.identifier: one for one in (HANG, CRASH)}
    one = sum_up(ACCOUNT, incidents, CostSettings(per_gpu_hour=3.6))
    assert [billed.identifier for billed in one.billed] == ["i2", "i1"]
    assert one.billed[0].down_s is None
    assert one.billed[0].phases_s == {"detect": 0.0, "drain": 3.0}
    assert one.billed[1].gpu_hours == pytest.approx((10 * 8 + 160) / 3600)
    assert one.billed[1].money == pytest.approx(0.24)
    assert one.bad_gpu_hours == pytest.approx((480 + 160) / 3600)
    assert one.bad_money == pytest.approx(0.64)
    assert sum(spent.share for spent in one.spent) == pytest.approx(1.0)
    told = plain(one)
    assert told["spent"]["saving"]["seconds"] == 40.0
    assert told["incidents"][1]["lost_s"] == 20.0
    assert told["lost_by"] == [
        {"cause": "hang", "node": "b", "seconds": 20.0, "gpu_seconds": 160.0, "steps": 20}
    ]
