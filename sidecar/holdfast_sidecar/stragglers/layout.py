"""Where a rank says it stands, and in which process groups: from its two small files to the short
texts that its report carries, and back. Pure.

A layout reads `pp=0/2 dp=1/2 tp=0/2 micro_batches=8 role=trainer`: of each dimension where, and of
how many; into how many micro-batches the pipeline cuts a batch; and last what the script calls its
part in the job, which may have blanks in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from holdfast.page import GROUPS_TIMED
from holdfast_sidecar.stragglers.place import Group

PIPELINE = "pp"
"""What the dimension along which stages lie is called here; scripts have more names for it."""

_PIPELINES = frozenset({PIPELINE, "pipe", "pipeline", "pipeline_parallel", "stage", "stages"})

_MICRO_BATCHES = "micro_batches="

_ROLE = "role="


class Layout(NamedTuple):
    """Parsed."""

    coordinate: Mapping[str, int]
    shape: Mapping[str, int]
    role: str
    micro_batches: int = 0
    """Into so many a pipeline cuts a batch; 0: not known."""


def spell_layout(text: str) -> str:
    """What a `.layout` file says; empty where it says nothing that can be understood."""
    told = _parse(text)
    try:
        sizes = list(zip(told["dims"], told["coordinate"], told["shape"], strict=True))
    except (KeyError, TypeError, ValueError):
        sizes = []
    words = [_spell(name, at, size) for name, at, size in sizes]
    if not any(word.startswith(f"{PIPELINE}=") for word in words):
        words += [_spell(PIPELINE, told.get("stage"), told.get("stages"))]
    micro_batches = told.get("micro_batches")
    if isinstance(micro_batches, int) and micro_batches > 0:
        words.append(f"{_MICRO_BATCHES}{micro_batches}")
    role = told.get("role")
    words += [f"{_ROLE}{' '.join(role.split())}"] if isinstance(role, str) and role.strip() else []
    return " ".join(filter(None, words))


def parse_layout(text: str) -> Layout:
    """A layout as a report tells it."""
    dimensions, _, role = f" {text}".partition(f" {_ROLE}")
    coordinate, shape, micro_batches = dict[str, int](), dict[str, int](), 0
    for word in dimensions.split():
        name, _, where = word.partition("=")
        at, _, size = where.partition("/")
        if at.isdecimal() and size.isdecimal():
            coordinate[name], shape[name] = int(at), int(size)
        elif f"{name}=" == _MICRO_BATCHES and where.isdecimal():
            micro_batches = int(where)
    return Layout(coordinate, shape, role, micro_batches)


def spell_groups(text: str) -> list[str]:
    """Of a `.groups` file those groups whose waits are told apart, in their order; empty where none
    is known."""
    told = ["" for _ in range(GROUPS_TIMED)]
    for slot, group in _slots(_parse(text)):
        told[slot] = group
    return told if any(told) else []


def parse_groups(told: list[str]) -> tuple[Group | None, ...]:
    """The same as a report tells them."""
    groups = [_parse_group(text) for text in told[:GROUPS_TIMED]]
    return (*groups, *[None] * (GROUPS_TIMED - len(groups)))


def _slots(groups: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    for group in groups.values():
        try:
            slot, digest, size = group["slot"], str(group["digest"]), len(group["ranks"])
            title = str(group["title"])
        except (KeyError, TypeError):
            continue
        if isinstance(slot, int) and 0 <= slot < GROUPS_TIMED:
            yield slot, f"{title}/{digest}/{size}"


def _parse_group(text: str) -> Group | None:
    """A title may have a stroke in it, the others have none."""
    front, _, size = text.rpartition("/")
    title, _, digest = front.rpartition("/")
    return Group(title, digest, int(size)) if digest and size.isdecimal() else None


def _parse(text: str) -> dict[str, Any]:
    try:
        told = json.loads(text)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _spell(name: Any, at: Any, size: Any) -> str:
    """A rank that holds several stages stands where the first of them does."""
    at = at[0] if isinstance(at, list) and at else at
    if not isinstance(name, str) or not isinstance(at, int) or not isinstance(size, int):
        return ""
    name = "_".join(name.split()) or "dim"
    return f"{PIPELINE if name in _PIPELINES else name}={at}/{size}"
