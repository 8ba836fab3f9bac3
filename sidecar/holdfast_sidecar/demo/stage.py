"""What every demonstration begins and ends with."""

from __future__ import annotations

import logging
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.demo.rehearsal import rehearse
from holdfast_sidecar.demo.screen import Screen, screen


@contextmanager
def stage(keep: Path | None, as_json: bool) -> Iterator[tuple[Screen, float]]:
    """The screen, and when it began, monotonic. BadInput where nothing can be performed.

    keep: a directory that must not be there yet. as_json: stdout is for the result alone.
    """
    if find_spec("torch") is None:
        raise BadInput("the demonstration trains: pip install 'holdfast[train,server]'")
    if keep is not None and keep.exists():
        raise BadInput(f"{keep} exists already; --keep wants a new directory")
    rehearse()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    # As Ctrl-C does: leave through every `finally`, so that nothing stays behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    started = time.monotonic()
    shown = screen(sys.stderr if as_json else sys.stdout, started)
    try:
        yield shown, started
    finally:
        shown.close()
