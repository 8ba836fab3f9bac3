from __future__ import annotations

import dataclasses
import json
import signal
from typing import Any

import pytest

from holdfast.contract.permit import Handle, Licence, NotPermitted
from holdfast_sidecar.actions import have_all_kept
from holdfast_sidecar.policy.budget import Warrant, refusal, warranted
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import Member, PauseWindow, Plan
from holdfast_sidecar.records.reports import NodeReport
from holdfast_sidecar.store.orders import Orders
from holdfast_sidecar.store.protocol import Lease, Section, View

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
    without = dataclasses.replace(WARRANT, evidence_for="", is_evidence_given_up=True)
    assert refusal(ORDERS, without) == ""


@pytest.mark.parametrize(
    ("orders", "warrant", "plan", "why"),
    [
        ({"plan": None}, {}, {}, "nothing is being dealt with"),
        ({}, {}, {"state": "running"}, "nothing is being dealt with"),
        ({}, {}, {"cause": "crash"}, "nothing is being dealt with"),
        ({}, {}, {"culprit_node": "b"}, "not on this node"),
        ({}, {}, {"culprit_ranks": []}, "not on this node"),
        ({}, {}, {"pause": PauseWindow("ann", "", 0.0, 1.0)}, "the job is paused"),
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
    assert have_all_kept(PLAN, orders("i1"), but={"b"})


def test_reports_that_are_parsed_already_are_not_parsed_for_who_has_kept_what(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every tick asks, on every node, and a large job has a thousand reports."""
    reports = {n: NodeReport(n, "x", 1, 0, 0, 2, True, evidence_for="i1") for n in "ab"}
    texts = {name: encode(report) for name, report in reports.items()}
    view = View(Lease(5, "b/y"), "server", {Section.NODES: texts})
    parsed: list[str] = []
    monkeypatch.setattr(json, "loads", parsed.append)
    assert have_all_kept(PLAN, dataclasses.replace(ORDERS, view=view, nodes=reports))
    assert parsed == []


def test_a_permit_is_for_a_culprit_of_the_plans_attempt_that_is_held_open() -> None:
    given = warranted(ORDERS, WARRANT, 2, 0, 77)
    assert given.subject == Handle(77, signal.SIGKILL)
    assert given.licence is Licence.OWN_RANK
    assert given.proof == "hang, incident i1"


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ((1, 0, 77), "rank 0 of attempt 1 is no culprit"),
        ((2, 1, 77), "rank 1 of attempt 2 is no culprit"),
        ((2, 0, None), "can't be reached"),
    ],
)
def test_there_is_no_permit_for_anybody_else(asked: tuple[int, int, int | None], why: str) -> None:
    with pytest.raises(NotPermitted, match=why):
        warranted(ORDERS, WARRANT, *asked)
    with pytest.raises(NotPermitted, match="mode is observe"):
        warranted(ORDERS, dataclasses.replace(WARRANT, mode="observe"), 2, 0, 77)
