"""/metrics: the newest picture, drawn when somebody asks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast_sidecar.metrics.drawing import draw
from holdfast_sidecar.metrics.exposition import expose
from holdfast_sidecar.picture import Picture
from holdfast_sidecar.serving.last_words import LastWords
from holdfast_sidecar.serving.route import Answer, Request


@dataclass(frozen=True)
class MetricsRoute:
    """In Prometheus' text format, or in OpenMetrics for who asks for it."""

    job: str
    path: str = "/metrics"
    is_open: bool = False
    last_words: LastWords = field(default_factory=LastWords)
    clock: Callable[[], float] = time.monotonic

    def answer(self, request: Request, picture: Picture | None) -> Answer:
        """An empty page before the first tick: there is nothing to tell, and nothing is wrong."""
        samples = [] if picture is None else draw(picture, self.job)
        body, content_type = expose(samples, request.accept)
        if request.is_scrape:
            self.last_words.told(picture, self.clock(), request.caller)
        return Answer(body, content_type)
