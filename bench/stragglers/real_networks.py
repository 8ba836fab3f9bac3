"""Two network namespaces joined by a cable whose rate can be limited, in both directions."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from bench.benchmark import NotRun

INTERFACE = "cable"
ADDRESSES = {"a": "10.78.0.1", "b": "10.78.0.2"}


@dataclass(frozen=True)
class Cable:
    """The namespaces' names begin with `mark`."""

    mark: str

    def inside(self, side: str) -> list[str]:
        """What a command is prefixed with to run there."""
        return ["ip", "netns", "exec", f"{self.mark}{side}"]

    def limit(self, bits_per_s: int, queue_bytes: int) -> None:
        """From now on no more gets through, either way; what finds no room to wait is dropped."""
        for side in ADDRESSES:
            bucket = ["burst", "16kb", "limit", f"{queue_bytes}b"]
            discipline = ["root", "tbf", "rate", f"{bits_per_s}bit", *bucket]
            _run(*self.inside(side), "tc", "qdisc", "replace", "dev", INTERFACE, *discipline)

    def free(self) -> None:
        """No limit any more."""
        for side in ADDRESSES:
            with contextlib.suppress(NotRun):
                _run(*self.inside(side), "tc", "qdisc", "del", "dev", INTERFACE, "root")


@contextlib.contextmanager
def cable() -> Iterator[Cable]:
    """Joined; NotRun where that may not be done."""
    if shutil.which("ip") is None or shutil.which("tc") is None:
        raise NotRun("network namespaces need ip and tc")
    made = Cable(f"hfb{os.getpid()}")
    names = {side: f"{made.mark}{side}" for side in ADDRESSES}
    try:
        for name in names.values():
            _run("ip", "netns", "add", name)
        ends = list(names.values())
        _run("ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for side, name in names.items():
            _run("ip", "link", "set", name, "netns", name, "name", INTERFACE)
            inside = made.inside(side)
            _run(*inside, "ip", "address", "add", f"{ADDRESSES[side]}/30", "dev", INTERFACE)
            for device in (INTERFACE, "lo"):
                _run(*inside, "ip", "link", "set", device, "up")
        yield made
    finally:
        for name in names.values():
            with contextlib.suppress(NotRun):
                _run("ip", "netns", "delete", name)


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=20, text=True)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", "") or str(error)
        raise NotRun(f"{command[0]}: {said.strip()}") from None
