"""Who tells about the whole job, and until when."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.export.picture import VIEW, picture

from holdfast_sidecar.export.catalogue import CATALOGUE
from holdfast_sidecar.export.http_server import HttpRequest
from holdfast_sidecar.export.routes import Exporter, MetricsRoute
from holdfast_sidecar.store.orders import Orders
from holdfast_sidecar.store.protocol import Lease

OF_THE_JOB = {entry.name for entry in CATALOGUE if entry.leader_only}


def tells(orders: Orders, now_s: float = 100.0) -> bool:
    exporter = Exporter((MetricsRoute("job"),), orders=lambda: orders, clock=lambda: now_s)
    exporter.tell(picture())
    lines = exporter.answer(HttpRequest("/metrics")).body.decode().splitlines()
    told = {line.partition("{")[0] for line in lines if not line.startswith("#")}
    assert "holdfast_rank_step" in told
    return bool(told & OF_THE_JOB)


LEADS = Orders(is_leader=True, lease=VIEW.lease, leads_until_s=101.0)


def test_the_leader_tells_of_the_job_for_as_long_as_nobody_else_may_lead() -> None:
    assert tells(LEADS)
    assert not tells(LEADS, 101.0), "its loop or the store hangs, another one may lead by now"


def test_who_lost_the_lease_since_the_last_tick_tells_no_more() -> None:
    assert not tells(replace(LEADS, is_leader=False))
    assert not tells(replace(LEADS, lease=Lease(5, "a/x"))), "what it saw is of another time"
