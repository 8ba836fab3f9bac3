"""What the sidecar tells about itself, about coordination as it sees it, and its findings."""

from __future__ import annotations

import json
import resource
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

from holdfast_sidecar import __version__
from holdfast_sidecar.components.gpu.metrics import REASONS, SHOWN, labelled
from holdfast_sidecar.components.gpu.ownership import GpuOwnership
from holdfast_sidecar.components.gpu.readings import (
    Gpu,
    GpuReading,
    NvmlSilence,
    Signal,
    leave_out_garbage,
)
from holdfast_sidecar.components.machine import MachineReading
from holdfast_sidecar.components.xid.events import GpuEvents
from holdfast_sidecar.export.state import TickState
from holdfast_sidecar.records.findings import Kind, Moment
from holdfast_sidecar.records.metric import Labels, Sample
from holdfast_sidecar.records.reports import RankEnergy

# Which commit this installation was made from, where that is known: pip notes it for what it
# installed from a repository (PEP 610), and for nothing else.


@cache
def read_revision(package: str = "holdfast") -> str:
    """The commit; empty where nobody noted it."""
    try:
        noted = metadata.distribution(package).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return ""
    return parse_revision(noted or "")


def parse_revision(direct_url: str) -> str:
    """The commit in pip's note; empty: there is none in it."""
    try:
        return str(json.loads(direct_url)["vcs_info"]["commit_id"])
    except (ValueError, KeyError, TypeError):
        return ""


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


def draw_sidecar(picture: TickState, told: Labels) -> Iterator[Sample]:
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


def _draw_findings(picture: TickState, told: Labels) -> Iterator[Sample]:
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


# What is told about how NVIDIA's driver answers.


def draw_nvml(machine: MachineReading, moment: Moment, told: Labels) -> Iterator[Sample]:
    """Nothing where there is no driver."""
    if machine.gpu is not None and (machine.gpu.is_present or machine.gpu.silence is not None):
        yield from _draw_readings(machine.gpu, moment, told)
    if machine.gpu_events is not None:
        yield from _draw_events(machine.gpu_events, moment, told)


def _draw_readings(reading: GpuReading, moment: Moment, told: Labels) -> Iterator[Sample]:
    is_stale = reading.stale_since_s is not None
    yield from told("gpu_readings_stale", is_stale)
    yield from told("gpu_reading_duration_seconds", None if is_stale else reading.took_s)
    yield from _draw_child("poll", reading.silence, reading.stuck, moment, told)


def _draw_events(events: GpuEvents, moment: Moment, told: Labels) -> Iterator[Sample]:
    yield from told("gpu_events_watched", events.listening_to)
    for event, count in sorted(events.counts.items()):
        yield from told("gpu_events_total", count, event=event)
    if events.listening_to is not None or events.silence is not None:
        yield from _draw_child("events", events.silence, events.stuck, moment, told)


def _draw_child(
    child: str, silence: NvmlSilence | None, stuck: int, moment: Moment, told: Labels
) -> Iterator[Sample]:
    yield from told("nvml_stuck_children", stuck, child=child)
    if silence is not None:
        since_unix_s = moment.unix_s(silence.since_s)
        yield from told("nvml_silent_since_timestamp_seconds", since_unix_s, child=child)


# What is told about GPUs, and about what ranks spend on them.

SET = {True: "on", False: "off", None: ""}
"""How a mode is set; empty: the driver does not say."""


def draw_gpus(picture: TickState, told: Labels) -> Iterator[Sample]:
    """Every GPU, and how many there are. Stale values are not told: who they are is."""
    reading = picture.machine.gpu
    if reading is None:
        return
    yield from told("node_gpus_expected", reading.expected)
    if not reading.is_present:
        return
    is_fresh = reading.stale_since_s is None
    if is_fresh:
        yield from told("node_gpus", len([gpu for gpu in reading.gpus if not gpu.lost]))
    read_s = reading.read_at_s
    yield from told(
        "gpu_last_reading_timestamp_seconds", picture.moment.unix_s(read_s) if read_s else None
    )
    for name, gpu in labelled(leave_out_garbage(reading).gpus):
        about = told.about(gpu=name)
        yield from about(
            "gpu_info",
            1,
            uuid=gpu.uuid,
            model=gpu.model,
            pci=gpu.pci,
            driver=reading.driver,
            mig="on" if gpu.is_mig else "off",
            ecc=SET[gpu.is_ecc_on],
            persistence=SET[gpu.is_persistent],
        )
        yield from _draw_ranks(gpu, picture.gpus.ownership, about)
        if is_fresh:
            yield from about("gpu_up", not gpu.lost)
            yield from _draw_values(gpu, about)


def _draw_ranks(gpu: Gpu, ownership: GpuOwnership, told: Labels) -> Iterator[Sample]:
    for tie in ownership.of_gpu(gpu.uuid):
        yield from told(
            "gpu_rank_info",
            1,
            rank=str(tie.rank),
            local_rank=str(tie.local_rank),
            known_by=tie.source.value,
        )


def _draw_values(gpu: Gpu, told: Labels) -> Iterator[Sample]:
    for shown in SHOWN:
        value = gpu.values.get(shown.signal)
        if value is not None:
            yield from told(shown.name, value, **shown.labels)
    bits = gpu.values.get(Signal.THROTTLE_REASONS)
    if bits is not None:
        for reason, bit in REASONS.items():
            yield from told("gpu_throttled", bool(int(bits) & bit), reason=reason)


def draw_energy(energy: RankEnergy, tokens: int, told: Labels) -> Iterator[Sample]:
    """One rank's."""
    yield from told("rank_energy_joules_total", energy.joules)
    yield from told("rank_power_watts", energy.power_w)
    yield from told("rank_step_energy_joules", energy.step_joules)
    yield from told("rank_token_energy_joules", energy.token_joules)
    yield from told("rank_tokens_total", tokens or None)
