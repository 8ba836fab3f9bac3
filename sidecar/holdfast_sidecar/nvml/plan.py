"""What to ask a GPU together: the fields of many signals in one batch, and each call once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast_sidecar.nvml.calls import Call
from holdfast_sidecar.nvml.fields import FieldBatch
from holdfast_sidecar.nvml.signals import Field, LinkField
from holdfast_sidecar.nvml.standing import Standing


@dataclass(frozen=True)
class Plan:
    """For signals that are due together, each by the way that it is asked now."""

    batch: FieldBatch | None
    fields: tuple[tuple[Standing, Field, int], ...]
    """Signal, field, and its place in the batch."""
    links: tuple[tuple[Standing, LinkField, slice], ...]
    """Signal, field, and the places of all links in the batch."""
    calls: tuple[tuple[Call, tuple[Standing, ...]], ...]


def planned(nvml: Any, links: int, due: Sequence[Standing]) -> Plan:
    """For a GPU with so many NVLinks."""
    entries: list[tuple[int, int]] = []
    fields: list[tuple[Standing, Field, int]] = []
    of_links: list[tuple[Standing, LinkField, slice]] = []
    calls: dict[Call, list[Standing]] = {}
    for one in due:
        way = one.way
        begin = len(entries)
        if isinstance(way, Call):
            calls.setdefault(way, []).append(one)
            continue
        entries += entries_of(way, links)
        if isinstance(way, Field):
            fields.append((one, way, begin))
        else:
            of_links.append((one, way, slice(begin, len(entries))))
    return Plan(
        batch=FieldBatch(nvml, entries) if entries else None,
        fields=tuple(fields),
        links=tuple(of_links),
        calls=tuple((call, tuple(ones)) for call, ones in calls.items()),
    )


def entries_of(way: Field | LinkField, links: int) -> list[tuple[int, int]]:
    """What to put into a batch for it: (field, scope)."""
    if isinstance(way, LinkField):
        return [(way.id, link) for link in range(links)]
    return [(way.id, way.scope)]
