"""Serves a made-up job of so many ranks by real exporters, each on a port of its own:

`python -m bench.oncall.programs.serve_fleet RANKS FOLDER [--leader] [--past COUNT] [--still]`

Prints one line of JSON, node -> address, once all answer; ends when its standard input does.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from bench.oncall.made_fleet import MadeFleet
from bench.oncall.made_job import LASTED_S, RUN, MadeJob

from holdfast_sidecar.export.http_server import HttpRequest, Response, Route, Server
from holdfast_sidecar.export.live.routes import LivePage, LiveTelling
from holdfast_sidecar.export.routes import (
    DiscoveryRoute,
    Exporter,
    MetricsRoute,
    TargetFile,
    Targets,
)
from holdfast_sidecar.export.state import TickState

TICK_S = 10.0
"""Sooner than the next scrape: what grows has grown, and one process has the time for 128 nodes."""
TURN_S = 8.0
"""As long as a page waits for its turn: not quite as long as Prometheus waits for the page."""
LIVES_S = 3600.0
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class EmptyPage:
    """A word on nothing, to compare the page with."""

    path: str = "/empty"
    is_open: bool = True

    def answer(self, request: HttpRequest, picture: TickState | None) -> Response:
        """The same for everybody."""
        return Response(b"<!doctype html><title>.</title><p>.", "text/html; charset=utf-8")


@dataclass(frozen=True)
class InTurn:
    """Of all nodes' pages, one at a time is drawn. Each would have a machine of its own; here, so
    many threads that want the interpreter at once would cost more than the pages do."""

    route: Route
    turn: threading.Lock

    @property
    def path(self) -> str:
        """As it is."""
        return self.route.path

    @property
    def is_open(self) -> bool:
        """As it is."""
        return self.route.is_open

    def answer(self, request: HttpRequest, picture: TickState | None) -> Response:
        """Nothing when the turn comes too late; Prometheus counts that as not answered."""
        if not self.turn.acquire(timeout=TURN_S):
            return Response(b"", status=HTTPStatus.SERVICE_UNAVAILABLE)
        try:
            return self.route.answer(request, picture)
        finally:
            self.turn.release()


def exporter_of(node: str, server: Server, folder: Path, turn: threading.Lock) -> Exporter:
    """With the routes of a sidecar."""
    address = f"{LOOPBACK}:{server.port}"
    file = TargetFile(folder / f"{node}.json")
    discovery = DiscoveryRoute(RUN, Targets(node, address), file)
    live = LiveTelling(RUN)
    metrics = InTurn(MetricsRoute(RUN), turn)
    routes = (LivePage(), live, metrics, discovery, EmptyPage())
    return Exporter(routes, (discovery, live), server=server)


class Served:
    """The exporters, and the job that they tell of."""

    def __init__(self, ranks: int, leader_alone: bool, folder: Path) -> None:
        self._leader_alone = leader_alone
        nodes = MadeJob(ranks, 0.0).nodes
        servers = {node: Server(f"{LOOPBACK}:0") for node in self._served(nodes)}
        self.addresses = {node: f"{LOOPBACK}:{one.port}" for node, one in servers.items()}
        turn = threading.Lock()
        self._fleet = MadeFleet(MadeJob(ranks, time.time() - LASTED_S, self.addresses))
        self._exporters = {n: exporter_of(n, one, folder, turn) for n, one in servers.items()}

    def tell(self, now_s: float, now_unix_s: float) -> None:
        """What is at this moment, on the monotonic clock and on the wall's."""
        if self._leader_alone:
            (leader,) = self._exporters.values()
            leader.tell(self._fleet.leader(now_s, now_unix_s))
            return
        for node, picture in self._fleet.pictures(now_s, now_unix_s).items():
            self._exporters[node].tell(picture)

    def serve(self) -> None:
        """Begin to answer."""
        for one in self._exporters.values():
            one.serve()

    def _served(self, nodes: tuple[str, ...]) -> Iterable[str]:
        return nodes[:1] if self._leader_alone else nodes


def main() -> None:
    """Serve for a while at most; whoever started it ends it sooner."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ranks", type=int)
    parser.add_argument("folder", type=Path, help="for what a sidecar writes down")
    parser.add_argument("--leader", action="store_true", help="its exporter alone")
    parser.add_argument("--past", type=int, default=0, help="seconds told before it serves")
    parser.add_argument("--still", action="store_true", help="nothing more after that")
    options = parser.parse_args()
    threading.Thread(target=_end_with_input, daemon=True).start()
    served = Served(options.ranks, options.leader, options.folder)
    now_s, now_unix_s = time.monotonic(), time.time()
    for ago_s in range(options.past, -1, -1):
        served.tell(now_s - ago_s, now_unix_s - ago_s)
    served.serve()
    print(json.dumps(served.addresses), flush=True)
    end_s = time.monotonic() + LIVES_S
    while time.monotonic() < end_s:
        time.sleep(TICK_S)
        if not options.still:
            served.tell(time.monotonic(), time.time())


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
