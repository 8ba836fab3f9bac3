"""A host in trouble: everything that it is judged by, in the order in which it is read."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.detectors.clock import find_clock_troubles
from holdfast_sidecar.detectors.heat import find_heat
from holdfast_sidecar.detectors.host_memory import find_memory_errors, find_memory_pressure
from holdfast_sidecar.detectors.hung_tasks import find_hung_tasks
from holdfast_sidecar.detectors.mounts import find_stalled_storage
from holdfast_sidecar.detectors.quota import find_throttling
from holdfast_sidecar.detectors.rooms import find_full_rooms
from holdfast_sidecar.kernel_events import KernelEvents
from holdfast_sidecar.readings.host import HostReading
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.findings import Finding


def find_host_troubles(
    host: HostReading | None, moment: Moment, logged: KernelEvents | None = None
) -> Iterator[Finding]:
    """All findings about the host of this node. `logged`: what the kernel's log says."""
    if host is None:
        return
    yield from find_memory_pressure(host, moment)
    yield from find_memory_errors(host, moment)
    yield from find_full_rooms(host, moment)
    yield from find_stalled_storage(host, moment)
    yield from find_hung_tasks(host, moment, logged)
    yield from find_throttling(host, moment)
    yield from find_clock_troubles(host, moment)
    yield from find_heat(host, moment)
