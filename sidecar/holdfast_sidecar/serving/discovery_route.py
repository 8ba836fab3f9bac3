"""/sd: where the job's sidecars are, for Prometheus' HTTP service discovery.

Any sidecar of a job knows all of them, so that one address leads Prometheus to every node.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from http import HTTPStatus

from holdfast_sidecar.picture import Picture
from holdfast_sidecar.serving.route import JSON, Answer, Request
from holdfast_sidecar.serving.target_file import TargetFile
from holdfast_sidecar.serving.targets import Targets, as_discovered

logger = logging.getLogger(__name__)

UNKNOWN = Answer(
    b"no reading of the store yet\n",
    status=HTTPStatus.SERVICE_UNAVAILABLE,
)
"""Prometheus keeps the list it has when it gets an error; an empty one it would believe."""


@dataclass
class DiscoveryRoute:
    """Follows who is there, tick by tick, and lists them for whoever asks."""

    job: str
    targets: Targets
    file: TargetFile
    path: str = "/sd"
    is_open: bool = False
    _read: object = None
    _missed: frozenset[str] = frozenset()
    """Nodes of which it was said that they can't be listed."""

    def hear(self, picture: Picture) -> None:
        """Take in a new reading of the store, where this picture has one."""
        orders = picture.orders
        if not orders.store_up or orders.nodes is None:
            self.targets.pause()
            return
        if orders.nodes is self._read:
            return
        self._read = orders.nodes
        self.targets.read(orders.nodes, picture.moment.now_s)
        self.file.keep(self.targets.by_node, picture.moment.now_unix_s)

    def answer(self, request: Request, picture: Picture | None) -> Answer:
        """The list, also while Redis is away; an error while nothing is known."""
        if not self.targets.is_known:
            return UNKNOWN
        self._say_who_is_left_out(self.targets.left_out)
        listed = self.targets.listed().items()
        return Answer(json.dumps(as_discovered(listed, self.job)).encode(), JSON)

    def _say_who_is_left_out(self, nodes: frozenset[str]) -> None:
        """Once for each, and only to those who have a Prometheus: it asks."""
        if nodes <= self._missed:
            return
        self._missed |= nodes
        logger.warning(
            "/sd leaves out %s: their sidecars listen for their own machines alone, and Prometheus"
            " would not find them; give them sidecar.listen = 0.0.0.0:PORT (docs/prometheus.md)",
            ", ".join(sorted(nodes)),
        )
