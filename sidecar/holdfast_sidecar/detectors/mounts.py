"""A file system that the job uses and that does not answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from holdfast_sidecar.readings.host import HostReading, Storage
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.findings import Finding, Kind

SILENT_S = 15.0
"""Without an answer to anything. A busy server answers late, but one after the other; a local disk
gives up on a command after 30 s and answers others meanwhile. It is told, and nothing is done."""


def find_stalled_storage(host: HostReading, moment: Moment) -> Iterator[Finding]:
    """By what clients tell of their servers, and by rooms that can't be measured."""
    stalled = {
        purpose: f"its file system has not answered for {silent_s:.0f} s"
        for purpose, silent_s in host.silent_rooms.items()
        if silent_s >= SILENT_S
    }
    stalled |= {one.purpose: text for one in host.storage if (text := _trouble(one))}
    for purpose, text in sorted(stalled.items()):
        yield Finding(
            kind=Kind.STORAGE_STALLED,
            node=moment.node,
            since_unix_s=moment.now_unix_s,
            confidence=0.9,
            evidence=[f"{purpose}: {text}"],
            what=purpose,
        )


def is_stalled(storage: Storage, silent_rooms: Mapping[str, float]) -> bool:
    """Whether it is in such trouble."""
    return bool(_trouble(storage)) or silent_rooms.get(storage.purpose, 0.0) >= SILENT_S


def _trouble(storage: Storage) -> str:
    """Empty: it fares well."""
    where = f"{storage.kind} at {storage.point}"
    if storage.silent_s >= SILENT_S:
        return f"{where} has not answered for {storage.silent_s:.0f} s"
    return f"{where}: {storage.state}" if storage.state else ""
