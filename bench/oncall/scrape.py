"""What a scrape of the leader takes, and how many series it tells, by the size of its job."""

from __future__ import annotations

import gzip
import statistics
import time
import urllib.request
from dataclasses import dataclass, field

from bench.benchmark import NotRun, Sample
from bench.oncall.fleet import serving
from bench.oncall.names import FORMATS, OPENMETRICS, TEXT

ROUNDS = 40
"""Of each kind, in turns, one after the other."""
QUICK_ROUNDS = 10
LIMIT_S = 30.0
ACCEPTS = {
    TEXT: "text/plain;version=0.0.4",
    OPENMETRICS: "application/openmetrics-text;version=1.0.0",
}
CONTENT_TYPES = {TEXT: "text/plain", OPENMETRICS: "application/openmetrics-text"}


@dataclass
class Kind:
    """A way to ask, and what came of it."""

    form: str
    is_packed: bool
    took_ms: list[float] = field(default_factory=list)
    body: bytes = b""

    def ask(self, address: str) -> None:
        """Once, over a connection of its own."""
        request = urllib.request.Request(f"http://{address}/metrics", headers=self._headers())
        started = time.perf_counter()
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            self.body = answer.read()
            told = answer.headers["Content-Type"]
            is_packed = answer.headers.get("Content-Encoding", "") == "gzip"
        self.took_ms.append((time.perf_counter() - started) * 1e3)
        if not told.startswith(CONTENT_TYPES[self.form]) or is_packed != self.is_packed:
            raise NotRun(f"asked for {self.form}, packed: {self.is_packed}; it sent {told}")

    def sample(self, ranks: int) -> Sample:
        """All that was measured."""
        page = gzip.decompress(self.body) if self.is_packed else self.body
        return {
            "ranks": ranks,
            "format": self.form,
            "packed": self.is_packed,
            "series": series(page.decode()),
            "bytes": len(self.body),
            "ms": statistics.median(self.took_ms),
            "all_ms": self.took_ms,
        }

    def _headers(self) -> dict[str, str]:
        encoding = "gzip" if self.is_packed else "identity"
        return {"Accept": ACCEPTS[self.form], "Accept-Encoding": encoding}


def measure(ranks: int, rounds: int) -> list[Sample]:
    """Every kind so many times; the first of each is left out: it warms up."""
    kinds = [Kind(form, is_packed) for form in FORMATS for is_packed in (False, True)]
    with serving(ranks, "--leader") as fleet:
        for number in range(rounds + 1):
            turn = number % len(kinds)
            for kind in (*kinds[turn:], *kinds[:turn]):
                kind.ask(fleet.leader)
    for kind in kinds:
        del kind.took_ms[0]
    return [kind.sample(ranks) for kind in kinds]


def series(page: str) -> int:
    """How many lines of it carry a value."""
    return sum(bool(line) and not line.startswith("#") for line in page.splitlines())
