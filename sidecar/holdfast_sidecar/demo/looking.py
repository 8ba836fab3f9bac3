"""Looks at the job that a demonstration runs, and waits for what is to come of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from holdfast_sidecar.demo import watching
from holdfast_sidecar.demo.nodes import Nodes
from holdfast_sidecar.demo.screen import Screen
from holdfast_sidecar.demo.stopped import DemonstrationStopped
from holdfast_sidecar.policy.cluster import Cluster, parse_cluster
from holdfast_sidecar.store.protocol import Store, StoreUnavailable

T = TypeVar("T")

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.2
PATIENCE_S = 90.0
"""For each thing waited for: some ten times what it takes on two cores."""


def look(nodes: Nodes, store: Store, screen: Screen, before: Cluster) -> Cluster:
    """The job now, once its news are told; as it was before while the server does not answer.

    Raises DemonstrationStopped where a node has ended by itself, and not well.
    """
    if (failed := nodes.look()) is not None:
        raise DemonstrationStopped(
            f"node {failed.name} ended with exit code {failed.launcher.returncode}", failed.log
        )
    try:
        cluster = parse_cluster(store.read())
    except StoreUnavailable as error:
        log.warning("the server did not answer: %s", error)
        return before
    for line in watching.news(before, cluster):
        screen.tell(line)
    return cluster


def find_within(
    limit_s: float, look_anew: Callable[[], None], store: Store, find: Callable[[], T | None]
) -> T | None:
    """Look until `find` answers; None when it takes longer than `limit_s`."""
    deadline = time.monotonic() + limit_s
    while True:
        look_anew()
        if (found := find()) is not None:
            return found
        if time.monotonic() > deadline:
            return None
        store.wait(LOOK_EVERY_S)
