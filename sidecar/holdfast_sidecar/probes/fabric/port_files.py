"""What the files of one RDMA port say: `state`, `phys_state`, `rate`, counters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from holdfast_sidecar.linux.files import KeptFiles, list_names, read_text
from holdfast_sidecar.probes.fabric.counters import parse_counter

_STATE = re.compile(r"\s*(\d+)\s*:")
MOST_STATE = 5
"""ACTIVE_DEFER; the kernel has no name for any above (ib_verbs.h, enum ib_port_state)."""

_RATE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*Gb/sec")


def parse_state(text: str) -> int | None:
    """The number in `4: ACTIVE` and `5: LinkUp`; None when there is none."""
    found = _STATE.match(text)
    return int(found[1]) if found else None


def parse_rate(text: str) -> float | None:
    """Bytes per second of `400 Gb/sec (4X NDR)`; None when it says none, or 0 (no link)."""
    found = _RATE.match(text)
    return float(found[1]) * 1e9 / 8 or None if found else None


def parse_lifespan_s(text: str) -> float:
    """Seconds for which hw_counters keep what they said; 0: unknown. The file has milliseconds."""
    word = text.strip()
    return int(word) / 1000 if word.isascii() and word.isdecimal() else 0.0


def read_state(directory: str) -> int:
    """The logical state now. Raises OSError when it can't be read: the device may be gone;
    ValueError when it says none."""
    text = read_text(f"{directory}/state")
    state = parse_state(text)
    if state is None or state > MOST_STATE:
        raise ValueError(f"its state reads {text.strip()[:40]!r}")
    return state


def read_physical_state(directory: str, files: KeptFiles) -> int | None:
    """The physical state: polling is a missing cable, disabled somebody's will."""
    return parse_state(files.read_if_any(f"{directory}/phys_state"))


def read_rate(directory: str, files: KeptFiles) -> float | None:
    """The rate that was agreed with the other end, bytes per second."""
    return parse_rate(files.read_if_any(f"{directory}/rate"))


def present(directory: str, names: Iterable[str]) -> tuple[str, ...]:
    """Which of these counters the driver has; none where there is no such directory."""
    there = set(list_names(directory))
    return tuple(name for name in names if name in there)


def read_counters(directory: str, names: Iterable[str], files: KeptFiles) -> Mapping[str, int]:
    """Counters by name; those that can't be read, or say no number, are left out."""
    read = {name: parse_counter(name, files.read_if_any(f"{directory}/{name}")) for name in names}
    return {name: value for name, value in read.items() if value is not None}
