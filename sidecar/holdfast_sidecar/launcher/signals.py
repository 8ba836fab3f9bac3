"""Signals to the launcher become one exception, as in torch's agent, but from the very start.

SIGHUP that is ignored already stays so: that is what nohup does.
"""

from __future__ import annotations

import signal
from types import FrameType

from torch.distributed.elastic.multiprocessing import SignalException

from holdfast_sidecar.config.settings import BadInput


def heeded(names: str) -> str:
    """Those of these names that are to be handled here."""
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        return names
    return ",".join(name for name in names.split(",") if name.strip() != signal.SIGHUP.name)


def handle(names: str) -> None:
    """Raise SignalException in the main thread for each of these (comma-separated) signals."""
    for name in names.split(","):
        number = getattr(signal.Signals, name.strip(), None)
        if number is None or number in (signal.SIGKILL, signal.SIGSTOP):
            raise BadInput(f"--signals-to-handle: {name.strip()!r} is no signal to be handled")
        signal.signal(number, _raise)


def ignore(names: str) -> None:
    """Nothing may interrupt what is left to do: a few seconds of tidying up."""
    for name in names.split(","):
        signal.signal(signal.Signals[name.strip()], signal.SIG_IGN)


def _raise(number: int, frame: FrameType | None) -> None:
    received = signal.Signals(number)
    raise SignalException(f"received {received.name}", sigval=received)
