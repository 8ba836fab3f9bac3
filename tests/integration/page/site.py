"""The sidecar's real server with the page and the data that it asks for."""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.unit.ranks.large_job import Job, picture

from holdfast_sidecar.export.access import Protection
from holdfast_sidecar.export.http_server import Server
from holdfast_sidecar.export.live.routes import LivePage, LiveTelling
from holdfast_sidecar.export.routes import Exporter
from holdfast_sidecar.export.state import TickState

RUN = "llm"


class Site:
    """One node's."""

    def __init__(self, protection: Protection | None = None) -> None:
        telling = LiveTelling(RUN)
        server = Server("127.0.0.1:0", protection)
        self.exporter = Exporter((LivePage(), telling), (telling,), server=server)
        self.host = f"127.0.0.1:{server.port}"
        self.address = f"http://{self.host}/"
        self.exporter.serve()
        self.now_s = 0.0

    def live(self, job: Job, seconds: int = 30, **orders: Any) -> None:
        """Let the job go on for so long, a tick each second."""
        for _ in range(seconds):
            self.now_s += 1.0
            self.exporter.tell(picture(job, self.now_s, **orders))

    def tell(self, job: Job, **changes: Any) -> TickState:
        """One more tick, of a picture that is otherwise."""
        self.now_s += 1.0
        shown = dataclasses.replace(picture(job, self.now_s), **changes)
        self.exporter.tell(shown)
        return shown

    def close(self) -> None:
        self.exporter.close()
