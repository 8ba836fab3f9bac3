"""Two network namespaces joined by a cable that can be cut: a partition on one machine.

Cutting changes neither end's interface: frames are sent and nobody takes them, so that both sides
hear nothing at all, and no error, as across a broken switch.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from tests.servers import required

INTERFACE = "cable"
NOBODY = "02:00:00:00:00:99"
"""A hardware address that no interface has."""


@dataclass(frozen=True)
class TwoNetworks:
    """Namespaces `a` and `b`; each has one address on the cable, and a loopback."""

    mark: str

    def name(self, side: str) -> str:
        return f"{self.mark}{side}"

    def address(self, side: str) -> str:
        return {"a": "10.77.0.1", "b": "10.77.0.2"}[side]

    def inside(self, side: str) -> list[str]:
        """What a command is prefixed with to run there."""
        return ["ip", "netns", "exec", self.name(side)]

    def cut(self) -> None:
        """From now on nothing that one side sends arrives."""
        for side, other in ("ab", "ba"):
            self._neighbour(side, "replace", other, "lladdr", NOBODY, "nud", "permanent")

    def mend(self) -> None:
        for side, other in ("ab", "ba"):
            self._neighbour(side, "del", other)

    def _neighbour(self, side: str, action: str, other: str, *rest: str) -> None:
        neighbour = [self.address(other), *rest, "dev", INTERFACE]
        run(*self.inside(side), "ip", "neigh", action, *neighbour)


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=20)


@contextmanager
def two_networks() -> Iterator[TwoNetworks]:
    """Both, joined; skipped where that may not be done, which is a failure in CI."""
    required("ip")
    networks = TwoNetworks(f"hf{os.getpid()}")
    made = []
    try:
        for side in "ab":
            try:
                run("ip", "netns", "add", networks.name(side))
            except subprocess.CalledProcessError as error:
                if os.environ.get("CI") == "true":
                    raise
                pytest.skip(f"no network namespace can be made: {error.stderr.decode().strip()}")
            made.append(networks.name(side))
        ends = [f"{networks.mark}{side}" for side in "ab"]
        run("ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for side, end in zip("ab", ends, strict=True):
            run("ip", "link", "set", end, "netns", networks.name(side), "name", INTERFACE)
            inside = networks.inside(side)
            run(*inside, "ip", "address", "add", f"{networks.address(side)}/30", "dev", INTERFACE)
            for device in (INTERFACE, "lo"):
                run(*inside, "ip", "link", "set", device, "up")
        yield networks
    finally:
        for name in made:
            run("ip", "netns", "delete", name)
