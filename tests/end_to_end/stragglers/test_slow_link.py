"""A cable between two nodes becomes slow: what is told is a link, of which nodes, and no rank."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.end_to_end.launcher import Launcher
from tests.end_to_end.run.conftest import ground  # noqa: F401 - a fixture
from tests.servers import required
from tests.two_networks import INTERFACE, TwoNetworks, run, two_networks

from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.reports import NodeReport
from holdfast_sidecar.records.steps import SlowCause, SlownessReport
from holdfast_sidecar.store.protocol import Section

if TYPE_CHECKING:
    from tests.end_to_end.run.conftest import Ground
    from tests.servers import Server

pytestmark = [pytest.mark.torch, pytest.mark.root]

TRAINING = Path(__file__).with_name("exchanging.py")
PATIENCE_S = 60.0
KNOWN_AT = 24
"""Steps after which it is known what is usual."""
RATE = "80mbit"
"""A megabyte takes a tenth of a second."""
FOUND_WITHIN = 10
TELLING = 8
"""Steps in which it becomes known here: a tick, two beats, and what a busy machine adds."""


def start(networks: TwoNetworks, side: str, ground: Ground, server: Server) -> Launcher:  # noqa: F811
    command = [
        *networks.inside(side),
        *(sys.executable, "-m", "holdfast_sidecar.cli.main", "run", "--job=j", f"--node={side}"),
        *("--nnodes=2", "--nproc-per-node=1", f"--redis={server.settings.url}"),
        *(f"--local-addr={networks.address(side)}", str(TRAINING)),
    ]
    environment = ground.environment | {"GLOO_SOCKET_IFNAME": INTERFACE}
    return Launcher.start(side, command, ground.folder, environment)


def standing(server: Server) -> SlownessReport | None:
    texts = server.store("j").read().section(Section.NODES).values()
    reports = [report for text in texts if (report := decode(NodeReport, text)) is not None]
    return next((report.slow for report in reports if report.slow is not None), None)


def await_standing(
    server: Server, holds: Callable[[SlownessReport], bool], nodes: list[Launcher]
) -> SlownessReport:
    end_s = time.monotonic() + PATIENCE_S
    while (now := standing(server)) is None or not holds(now):
        assert time.monotonic() < end_s, (now, [node.output for node in nodes])
        time.sleep(0.05)
    return now


def limit(networks: TwoNetworks, rate: str) -> None:
    for side in "ab":
        bucket = ("rate", rate, "burst", "16kb", "latency", "400ms")
        device = ("dev", INTERFACE, "root")
        run(*networks.inside(side), "tc", "qdisc", "replace", *device, "tbf", *bucket)


def free(networks: TwoNetworks) -> None:
    for side in "ab":
        run(*networks.inside(side), "tc", "qdisc", "del", "dev", INTERFACE, "root")


def test_a_cable_that_becomes_slow_is_told_as_a_link_until_it_is_mended(
    ground: Ground,  # noqa: F811
    server: Server,
) -> None:
    required("tc")
    with two_networks() as networks:
        nodes = [start(networks, side, ground, server) for side in "ab"]
        try:
            began = await_standing(server, lambda now: now.step >= KNOWN_AT, nodes).step
            limit(networks, RATE)
            told = await_standing(server, lambda now: bool(now.slow), nodes)
            (link,) = told.slow
            assert (link.cause, link.ranks, link.group) == (SlowCause.LINK, [0, 1], "default_pg")
            assert "a, b" in link.evidence[1]
            assert 0.3 < link.slowdown < 1.5
            assert began < link.since_step <= began + TELLING
            assert told.step <= began + FOUND_WITHIN + TELLING
            free(networks)
            await_standing(server, lambda now: not now.slow, nodes)
            (ground.folder / "out" / "finish").touch()
            assert [node.wait() for node in nodes] == [0, 0]
        finally:
            for node in nodes:
                node.signal_all(signal.SIGKILL)
                node.wait()
