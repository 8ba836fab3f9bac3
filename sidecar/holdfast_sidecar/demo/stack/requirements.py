"""The programs that the stack needs beside ours, and where to get them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Requirement:
    """A program, by any of its names."""

    called: str
    names: tuple[str, ...]
    package: str
    """Debian's and Ubuntu's."""

    @property
    def how_to_get_it(self) -> str:
        """One line for people."""
        return (
            f"{self.called} is not installed: apt-get install {self.package} (Debian, Ubuntu), "
            "or https://prometheus.io/download/"
        )


PROMETHEUS = Requirement("Prometheus", ("prometheus",), "prometheus")
ALERTMANAGER = Requirement(
    "Alertmanager", ("prometheus-alertmanager", "alertmanager"), "prometheus-alertmanager"
)
"""Debian's name first: there a program called `alertmanager` would be another one."""

ALL = (PROMETHEUS, ALERTMANAGER)


def find_programs(which: Callable[[str], str | None]) -> dict[Requirement, str]:
    """Path of each one that is here. which: as `shutil.which`."""
    found = {one: next(filter(None, map(which, one.names)), None) for one in ALL}
    return {one: path for one, path in found.items() if path is not None}


def missing(found: Mapping[Requirement, str]) -> list[str]:
    """A line for each one that is not."""
    return [one.how_to_get_it for one in ALL if one not in found]
