"""What the sidecar tells about itself, about coordination as it sees it, and its findings."""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from holdfast_sidecar import __version__
from holdfast_sidecar.components.machine import MachineReading
from holdfast_sidecar.picture import Picture
from holdfast_sidecar.records.findings import Kind
from holdfast_sidecar.records.metric import Sample, Told
from holdfast_sidecar.revision import read_revision

ACTIONS = (
    "arm_checkpoint",
    "withdraw_checkpoint",
    "arm_trace",
    "withdraw_trace",
    "arm_peer",
    "order_snapshots",
    "order_stop",
    "release_ranks",
    "keep_evidence",
    "keep_aftermath",
    "pack_bundle",
    "keep_incidents",
    "keep_job_record",
    "end_culprits",
    "end_leftovers",
    "remove_server_files",
    "remove_shared_memory",
    "on_quarantine",
    "on_return",
)


def draw_sidecar(picture: Picture, told: Told) -> Iterator[Sample]:
    """Its own cost and health, the store and the leader, probes, actions and findings."""
    cost, orders = picture.cost, picture.orders
    about = {"version": __version__, "revision": read_revision(), "mode": picture.mode}
    yield from told("sidecar_info", 1, **about)
    yield from told("sidecar_start_timestamp_seconds", picture.started_unix_s)
    yield from told("sidecar_ticks_total", cost.ticks)
    yield from told("sidecar_tick_seconds_total", cost.tick_s)
    yield from told("sidecar_failed_ticks_total", cost.failed_ticks)
    yield from told("sidecar_last_tick_timestamp_seconds", picture.moment.now_unix_s)
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield from told("sidecar_cpu_seconds_total", used.ru_utime + used.ru_stime)
    yield from told("sidecar_resident_memory_bytes", read_resident_bytes())
    yield from told("store_up", orders.store_up)
    yield from told("leader_epoch", orders.lease.epoch or None)
    yield from told("node_is_leader", orders.is_leader)
    yield from told("node_launcher_up", picture.launcher_alive if picture.launcher_pid else None)
    is_told_to_end = picture.is_told_to_end if picture.launcher_pid else None
    yield from told("node_launcher_told_to_end", is_told_to_end)
    silent = _unanswered(picture.machine)
    for health in picture.probes:
        is_up = health.is_up and health.name not in silent
        yield from told("probe_up", is_up, probe=health.name)
        yield from told("probe_failures_total", health.failures, probe=health.name)
        yield from told("probe_duration_seconds", health.duration_s, probe=health.name)
    for action in ACTIONS:
        for outcome, counts in (("done", picture.actions_done), ("failed", picture.actions_failed)):
            yield from told("actions_total", counts.get(action, 0), action=action, outcome=outcome)
    yield from _draw_findings(picture, told)


def _unanswered(machine: MachineReading) -> set[str]:
    """Probes that work and have nothing new to tell: the driver does not answer their children,
    which is a finding of its own."""
    silent = set()
    if machine.gpu is not None and machine.gpu.stale_since_s is not None:
        silent.add("gpu")
    if machine.gpu_events is not None and machine.gpu_events.silence is not None:
        silent.add("gpu_events")
    return silent


def _draw_findings(picture: Picture, told: Told) -> Iterator[Sample]:
    standing = Counter(finding.kind for finding in picture.findings)
    acting = {finding.kind for finding in picture.findings if finding.acts}
    for kind, count in standing.items():
        yield from told("findings_active", count, kind=kind.value)
        yield from told("finding_acts", kind in acting, kind=kind.value)
    for kind in Kind:
        yield from told("findings_total", picture.cost.found.get(kind, 0), kind=kind.value)


def read_resident_bytes(status: Path = Path("/proc/self/status")) -> int | None:
    """Resident memory of this process; None where /proc doesn't say."""
    for line in status.read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return None
