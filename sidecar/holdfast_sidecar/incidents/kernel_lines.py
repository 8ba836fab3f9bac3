"""The lines of the kernel's log of late, as they are kept of an incident."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path

from holdfast_sidecar.linux.kmsg import (
    KMSG,
    LEVELS,
    KernelRecord,
    open_log,
    parse_records,
    read_chunks,
)

LINES_KEPT = 2000


def read_kernel_lines(since_s: float, path: Path = KMSG) -> list[str]:
    """Lines logged since then (seconds of the kernel's clock, which starts at boot), the newest
    `LINES_KEPT` of them. Raises OSError where the log may not be read."""
    lines: deque[str] = deque(maxlen=LINES_KEPT)
    descriptor = open_log(path)
    try:
        for chunk in read_chunks(descriptor):
            records = parse_records(chunk or b"")
            lines.extend(draw_line(record) for record in records if record.at_s >= since_s)
    finally:
        os.close(descriptor)
    return list(lines)


def draw_line(record: KernelRecord) -> str:
    """`[seconds] level: text`."""
    return f"[{record.at_s:.6f}] {LEVELS[record.level]}: {record.text}"
