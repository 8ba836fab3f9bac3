"""/metrics: the newest picture, drawn when somebody asks."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_sidecar.metrics.drawing import draw
from holdfast_sidecar.metrics.exposition import expose
from holdfast_sidecar.picture import Picture
from holdfast_sidecar.serving.route import Answer, Request


@dataclass(frozen=True)
class MetricsRoute:
    """In Prometheus' text format, or in OpenMetrics for who asks for it."""

    job: str
    path: str = "/metrics"
    is_open: bool = False

    def answer(self, request: Request, picture: Picture | None) -> Answer:
        """An empty page before the first tick: there is nothing to tell, and nothing is wrong."""
        samples = [] if picture is None else draw(picture, self.job)
        body, content_type = expose(samples, request.accept)
        return Answer(body, content_type)
