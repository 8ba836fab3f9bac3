"""A node's test as a child of the sidecar: started, listened to, ended when its time is over.

Nothing here waits: whoever asks looks again at the next tick.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from dataclasses import dataclass

from holdfast import environment
from holdfast.ending_processes import signal_group
from holdfast.permit import own_group
from holdfast_sidecar.gate.errand import Errand, Result
from holdfast_sidecar.records.codec import decode, encode
from holdfast_sidecar.records.formatting import how_it_ended

COMMAND = (sys.executable, "-m", "holdfast_sidecar.gate.exertion")


@dataclass
class TestProcess:
    """One test under way."""

    __test__ = False  # for pytest: it is none of its own

    process: subprocess.Popen[bytes]
    ends_s: float
    """CLOCK_MONOTONIC when its time is over."""
    patience_s: float
    at: str = "starting"
    """What it is doing, in its own words."""
    _heard: bytes = b""

    @classmethod
    def start(
        cls, errand: Errand, now_s: float, patience_s: float, command: tuple[str, ...] = COMMAND
    ) -> TestProcess:
        """Start one in a session of its own, so that all of it can be ended. OSError if it can't
        be."""
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_surroundings(),
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(encode(errand).encode() + b"\n")
            process.stdin.flush()
        return cls(process, now_s + patience_s, patience_s)

    def look(self, now_s: float) -> Result | None:
        """The result, once there is one, good or bad."""
        # In this order: of one that has ended nothing more comes than is heard after that.
        code = self.process.poll()
        if (result := self._listen()) is not None:
            self.end()
            return result
        if code is not None:
            self.end()
            return Result(error=f"the test {how_it_ended(code)}")
        if now_s < self.ends_s:
            return None
        self.end()
        return Result(error=f"it was not over within {self.patience_s:g} s (last: {self.at})")

    def end(self) -> None:
        """End it and all that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal_group(own_group(self.process))
        # One that hangs in the kernel stays; nobody waits for it.
        self.process.poll()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _listen(self) -> Result | None:
        assert self.process.stdout is not None
        with contextlib.suppress(OSError):
            while chunk := os.read(self.process.stdout.fileno(), 1 << 16):
                self._heard += chunk
        *lines, self._heard = self._heard.split(b"\n")
        for line in lines:
            text = line.decode(errors="replace").strip()
            if text.startswith("{"):
                return decode(Result, text) or Result(error=f"the test said {text[:80]!r}")
            self.at = text or self.at
        return None


def _surroundings() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in environment.NEVER_FOR_RANKS}
    return {**kept, "PYTHONSAFEPATH": "1"}
