from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from holdfast_sidecar.coordination.keys import Section
from holdfast_sidecar.coordination.store import Lease, View
from holdfast_sidecar.decisions.warrant import Warrant, refusal
from holdfast_sidecar.deeds import have_all_kept
from holdfast_sidecar.local_state import Orders
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.node import NodeReport
from holdfast_sidecar.records.plan import Member, Pause, Plan

PLAN = Plan(
    attempt=2,
    epoch=5,
    state="evidence",
    members=[Member("a", "x", 0, 0, 1), Member("b", "y", 1, 1, 1)],
    incident="i1",
    cause="hang",
    culprit_node="a",
    culprit_ranks=[0],
)
ORDERS = Orders(plan=PLAN, lease=Lease(5, "b/y"), store_up=True)
WARRANT = Warrant(node="a", mode="act", evidence_for="i1", everyone_kept=True)


def test_a_culprit_may_be_ended_when_everything_is_so() -> None:
    assert refusal(ORDERS, WARRANT) == ""
    ended = dataclasses.replace(PLAN, state="ended")
    assert refusal(dataclasses.replace(ORDERS, plan=ended), WARRANT) == ""


@pytest.mark.parametrize(
    ("orders", "warrant", "plan", "why"),
    [
        ({"plan": None}, {}, {}, "nothing is being dealt with"),
        ({}, {}, {"state": "running"}, "nothing is being dealt with"),
        ({}, {}, {"cause": "crash"}, "nothing is being dealt with"),
        ({}, {}, {"culprit_node": "b"}, "not on this node"),
        ({}, {}, {"culprit_ranks": []}, "not on this node"),
        ({}, {}, {"pause": Pause("ann", "", 0.0, 1.0)}, "the job is paused"),
        ({"store_up": False}, {}, {}, "Redis is away"),
        ({"lease": Lease(4, "b/y")}, {}, {}, "epoch"),
        ({}, {"mode": "observe"}, {}, "mode is observe"),
        ({}, {"mode": "suggest"}, {}, "mode is suggest"),
        ({}, {"evidence_for": "i0"}, {}, "not on disk"),
        ({}, {"everyone_kept": False}, {}, "other nodes"),
    ],
)
def test_nothing_is_ended_unless(
    orders: dict[str, Any], warrant: dict[str, Any], plan: dict[str, Any], why: str
) -> None:
    given = {"plan": dataclasses.replace(PLAN, **plan), **orders}
    refused = refusal(dataclasses.replace(ORDERS, **given), dataclasses.replace(WARRANT, **warrant))
    assert why in refused


def test_everyone_has_kept_the_evidence_when_every_member_says_so() -> None:
    def orders(*kept: str) -> Orders:
        reports = {
            node: encode(NodeReport(node, "x", 1, 0, 0, 2, True, evidence_for=incident))
            for node, incident in zip("ab", kept, strict=False)
        }
        view = View(Lease(5, "b/y"), "server", {Section.NODES: reports})
        return dataclasses.replace(ORDERS, view=view)

    assert have_all_kept(PLAN, orders("i1", "i1"))
    assert not have_all_kept(PLAN, orders("i1", "i0"))
    assert not have_all_kept(PLAN, orders("i1"))
    assert not have_all_kept(PLAN, ORDERS)
