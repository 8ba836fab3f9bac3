"""What of the page goes over the wire, and how soon a browser shows anything, at 1,024 ranks."""

from __future__ import annotations

import gzip
import time
import urllib.request

from bench.benchmark import Sample
from bench.oncall.first_paint import visits
from bench.oncall.fleet import serving
from bench.oncall.names import DATA, PAINT, STATIC

FULL_MAP = ("--leader", "--still", "--past=119")
"""A leader that has watched for as many seconds as the map has columns, and sees nothing new."""
LIMIT_S = 30.0


def measure_bytes(ranks: int) -> list[Sample]:
    """The page as it comes, and its data with a full map."""
    with serving(ranks, *FULL_MAP) as fleet:
        static = _sizes(f"http://{fleet.leader}/")
        data = _sizes(f"http://{fleet.leader}/live.json")
    return [
        {"ranks": ranks, "what": STATIC, **static},
        {"ranks": ranks, "what": DATA, **data},
    ]


def measure_paint(ranks: int) -> list[Sample]:
    """In headless Chromium, by turns with an empty page of the same server."""
    with serving(ranks, *FULL_MAP) as fleet:
        return [{"ranks": ranks, "what": PAINT, **visits(f"http://{fleet.leader}")}]


def _sizes(address: str) -> Sample:
    """Bytes, packed as they travel and whole, and how long the first who asks waits."""
    request = urllib.request.Request(address, headers={"Accept-Encoding": "gzip"})
    started = time.perf_counter()
    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
        body: bytes = answer.read()
        is_packed = answer.headers.get("Content-Encoding", "") == "gzip"
    took_ms = (time.perf_counter() - started) * 1e3
    whole = gzip.decompress(body) if is_packed else body
    return {"packed_bytes": len(body), "bytes": len(whole), "ms": took_ms}
