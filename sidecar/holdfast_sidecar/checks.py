"""Everything a node is judged by, in the order in which it is read."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from holdfast_sidecar.components.gpu.checks import find_wedged_nvml
from holdfast_sidecar.components.host.host import find_host_troubles
from holdfast_sidecar.components.machine import MachineReading
from holdfast_sidecar.components.network.checks import (
    find_drifting_errors,
    find_link_troubles,
    find_missing_ports,
    find_troubled_adapters,
)
from holdfast_sidecar.components.network.pcie import find_pci_errors
from holdfast_sidecar.components.network.round_trip_checks import find_slow_peers
from holdfast_sidecar.config.settings import FabricSettings, Settings
from holdfast_sidecar.ranks.arrival import settle
from holdfast_sidecar.ranks.checks import find_absences, find_bad_numbers, find_crashes
from holdfast_sidecar.ranks.observation import Ranks
from holdfast_sidecar.ranks.stall import find_stalls
from holdfast_sidecar.records.findings import Finding, Moment


def judge_ranks(ranks: Ranks, settings: Settings, moment: Moment) -> list[Finding]:
    """All findings about the ranks of this node."""
    return [
        *find_crashes(ranks, moment),
        *settle(find_stalls(ranks, settings.stall, moment), ranks, settings.stall, moment),
        *find_bad_numbers(ranks, settings.numbers, moment),
    ]


def judge_machine(
    machine: MachineReading,
    launcher_alive: bool,
    store_answered_s: float,
    settings: Settings,
    moment: Moment,
) -> list[Finding]:
    """All findings about the node itself and what it needs."""
    return [
        *find_host_troubles(machine.host, moment, machine.kernel_events),
        *judge_fabric(machine, settings.fabric, moment),
        *find_wedged_nvml(machine, moment),
        *find_absences(machine.failing, launcher_alive, store_answered_s, moment),
    ]


def judge_fabric(
    machine: MachineReading, settings: FabricSettings, moment: Moment
) -> list[Finding]:
    """All findings about links and what hangs on them."""
    ports = {} if machine.fabric is None else machine.fabric.links
    interfaces = {} if machine.network is None else machine.network.links
    return [
        *find_link_troubles([*ports.values(), *interfaces.values()], settings, moment),
        *find_missing_ports(machine.fabric, settings, moment),
        *find_drifting_errors(machine.fabric, moment),
        *find_pci_errors(machine.pci, moment),
        *find_troubled_adapters(machine.kernel_events, moment),
        *find_slow_peers(machine.round_trips, moment),
    ]


# Since when a finding stands: the same trouble seen again keeps its first time.


def keep_onsets(findings: Iterable[Finding], before: Sequence[Finding]) -> list[Finding]:
    """The findings with the earliest `since_unix_s` known for each of them."""
    known = {_trouble(finding): finding.since_unix_s for finding in before}
    return [
        dataclasses.replace(
            finding,
            since_unix_s=min(
                finding.since_unix_s, known.get(_trouble(finding), finding.since_unix_s)
            ),
        )
        for finding in findings
    ]


def _trouble(finding: Finding) -> tuple[object, ...]:
    """A GPU's is the same whosever rank it is: an attempt that goes on in spite of it has other
    ranks, or none yet."""
    if finding.gpu:
        return finding.kind, finding.node, finding.gpu, finding.what
    return finding.key


def newly_found(findings: Iterable[Finding], before: Sequence[Finding]) -> list[Finding]:
    """Those that were not there a moment ago."""
    known = {finding.key for finding in before}
    return [finding for finding in findings if finding.key not in known]


def no_longer_found(findings: Iterable[Finding], before: Sequence[Finding]) -> list[Finding]:
    """Those that were there a moment ago and are not any more."""
    return newly_found(before, list(findings))
