"""Tasks that wait in the kernel for something that does not answer."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.kernel_events import KernelEvents
from holdfast_sidecar.readings.host import HostReading, tally_before
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.findings import Finding, Kind

STUCK_S = 60.0
"""A rank's process in one wait that no signal ends. Disks give up on a command after 30 s and the
file system then answers with an error: what waits twice as long waits for a driver or a server. The
kernel itself says so after 120 s."""

LATELY_S = 600.0
"""The kernel looks every two minutes, and tells of the first ten tasks only."""


LOGGED = ("hung_task", "")


def find_hung_tasks(
    host: HostReading, moment: Moment, logged: KernelEvents | None = None
) -> Iterator[Finding]:
    """Ranks that are stuck, and whatever else the kernel found hung of late: by its count, and by
    its log, which names the last one."""
    for stuck in host.stuck:
        if stuck.for_s >= STUCK_S:
            where = f" in {stuck.where}" if stuck.where else ""
            text = f"rank {stuck.rank} has waited in the kernel{where} for {stuck.for_s:.0f} s"
            yield _finding(moment, [text], [stuck.rank])
    hung = _hung_of_late(host)
    told = [f"the kernel found {hung} hung tasks of late"] if hung else []
    newest = None if logged is None else logged.newest.get(LOGGED)
    if newest is not None and newest.at_unix_s >= moment.now_unix_s - LATELY_S:
        told.append(newest.text)
    if told:
        yield _finding(moment, told, [])


def _hung_of_late(host: HostReading) -> int:
    before = tally_before(host, LATELY_S) or next(iter(host.earlier), None)
    if before is None or before.hung_tasks is None or host.hung_tasks is None:
        return 0
    return max(0, host.hung_tasks - before.hung_tasks)


def _finding(moment: Moment, evidence: list[str], ranks: list[int]) -> Finding:
    return Finding(Kind.HUNG_TASK, moment.node, moment.now_unix_s, 0.9, ranks, evidence)
