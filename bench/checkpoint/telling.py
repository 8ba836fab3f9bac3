"""Lines that ranks leave for whoever measures: one file a rank, JSON, whole lines or none."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

OUT = "HOLDFAST_BENCH_OUT"
"""Directory of the lines."""


def tell(**facts: Any) -> None:
    """Add a line, with who says it in which attempt, and when."""
    rank = int(os.environ["RANK"])
    attempt = int(os.environ.get("HOLDFAST_ATTEMPT", "0"))
    line = {"rank": rank, "attempt": attempt, "at_ns": time.monotonic_ns(), **facts}
    path = Path(os.environ[OUT], f"rank-{rank}.jsonl")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, json.dumps(line).encode() + b"\n")
    os.close(descriptor)


def read_lines(directory: Path) -> list[dict[str, Any]]:
    """All lines of all ranks, in order of time; one cut off by its rank's death is left out."""
    found = []
    for path in directory.glob("rank-*.jsonl"):
        for line in path.read_text().split("\n")[:-1]:
            found.append(json.loads(line))
    return sorted(found, key=lambda line: int(line["at_ns"]))
