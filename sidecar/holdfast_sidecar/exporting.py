"""What one node's sidecar serves, put together: its routes, who may ask, and where it is found."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from holdfast_sidecar.config.addresses import is_loopback, parse_listen, told_address
from holdfast_sidecar.config.paths import Places
from holdfast_sidecar.config.settings import BadInput, Settings
from holdfast_sidecar.export.access import open_protection
from holdfast_sidecar.export.http_server import Server
from holdfast_sidecar.export.live.routes import LivePage, LiveTelling
from holdfast_sidecar.export.live.scene import PATIENCE_S
from holdfast_sidecar.export.routes import (
    DiscoveryRoute,
    Exporter,
    HealthRoute,
    LastWords,
    MetricsRoute,
    TargetFile,
    Targets,
)
from holdfast_sidecar.linux.files import read_boot

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Served:
    """A server that listens, and the address by which the others find it; empty: neither."""

    exporter: Exporter
    address: str
    last_words: LastWords
    unserved: str = ""
    """Why there is no server, and how to mend it; empty: there is one."""


def open_exporter(
    job: str, node: str, settings: Settings, places: Places, is_needed: bool = True
) -> Served:
    """Begin to serve; before the first tick there is little to tell. Raises BadInput where that is
    needed; else the log says so, and the job is watched without."""
    server, unserved = _open_server(settings, is_needed)
    address = ""
    if server is not None:
        address = told_address(settings.sidecar, server.port, settings.redis.url)
    discovery = _discovery(job, node, address, TargetFile(places.targets))
    live = LiveTelling(job, max(PATIENCE_S, 2 * settings.sidecar.node_timeout_s))
    last_words = LastWords()
    metrics = MetricsRoute(job, last_words=last_words)
    exporter = Exporter(
        routes=(LivePage(), live, metrics, HealthRoute(), discovery),
        listeners=(discovery, live),
        server=server,
    )
    exporter.serve()
    if address:
        _say(settings, address)
    return Served(exporter, address, last_words, unserved)


def _open_server(settings: Settings, is_needed: bool) -> tuple[Server | None, str]:
    """The server, or why there is none."""
    try:
        return Server(settings.sidecar.listen, open_protection(settings.sidecar)), ""
    except BadInput as error:
        if is_needed:
            raise
        logger.error("no metrics and no page here, the job is watched all the same: %s", error)
        return None, str(error)


def _discovery(job: str, node: str, address: str, file: TargetFile) -> DiscoveryRoute:
    left = file.read(time.time())
    targets = Targets(node, address, left, is_known=bool(left), boot=read_boot())
    return DiscoveryRoute(job, targets, file)


def _say(settings: Settings, address: str) -> None:
    host, _ = parse_listen(settings.sidecar.listen)
    if is_loopback(host):
        logger.info(
            "metrics at %s, for this machine alone: with --listen HOST:PORT others reach them",
            address,
        )
    else:
        logger.info("metrics at %s, listening on %s", address, settings.sidecar.listen)
