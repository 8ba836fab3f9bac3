"""Sums up one trace file on stdout: a child of the sidecar, since a trace may be large.

`python -m holdfast_sidecar.tracing FILE` answers JSON: the operators, or an error.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import zlib
from pathlib import Path

from holdfast_sidecar.tracing.operators import count_steps, sum_up

MOST_BYTES = 256 << 20
"""Unpacked. Parsing takes ten times as much memory; a step of a large model is a tenth of it."""

NICE = 19
"""The ranks need the cores more."""


def main() -> None:
    """Answer for the file that is named."""
    os.nice(NICE)
    print(answer(Path(sys.argv[1])))


def answer(path: Path) -> str:
    """What is to be told of the file."""
    try:
        with gzip.open(path) as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            return json.dumps({"error": f"more than {MOST_BYTES >> 20} MiB: not summed up"})
        events = json.loads(text)["traceEvents"]
        return json.dumps({"operators": [vars(one) for one in sum_up(events, count_steps(events))]})
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        return json.dumps({"error": " ".join(f"{type(error).__name__}: {error}".split())})


if __name__ == "__main__":
    main()
