"""What a sidecar obeys in a job that somebody else launched, where nobody writes a plan."""

from __future__ import annotations

import dataclasses

from holdfast_sidecar.decisions.cluster import parse_cluster
from holdfast_sidecar.decisions.observing import attached_plan
from holdfast_sidecar.store.orders import Orders


def obeyed(orders: Orders) -> Orders:
    """The orders, with what is to be done about an open incident in the plan's place."""
    if orders.view is None or orders.plan is not None:
        return orders
    cluster = parse_cluster(orders.view)
    return dataclasses.replace(orders, plan=attached_plan(cluster, orders.lease.epoch))
