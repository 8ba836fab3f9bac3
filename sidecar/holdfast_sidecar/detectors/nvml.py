"""A driver that does not answer: who looks at GPUs is blind, and jobs are likely to hang, too."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.readings.gpu import NvmlSilence
from holdfast_sidecar.readings.machine import MachineReading
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.findings import Finding, Kind

CONFIDENCE = 0.9
"""Within its deadline nothing came, twice; a machine that is starved of CPU may do the same."""

WORK = {"poll": "readings of the GPUs", "events": "events of the GPUs"}

NEXT = (
    "ranks may compute on; if it stays so, read `dmesg` there (`nvidia-smi` may hang, too), and "
    "`holdfast node drain` the node before it is rebooted"
)
"""What a person may do. There is no remedy: starved of CPU, a driver that is well is as silent."""


def find_wedged_nvml(machine: MachineReading, moment: Moment) -> Iterator[Finding]:
    """One finding for each of the children that the driver does not answer."""
    readings = None if machine.gpu is None else machine.gpu.silence
    events = None if machine.gpu_events is None else machine.gpu_events.silence
    for silence in (readings, events):
        if silence is not None:
            yield _finding(silence, moment)


def _finding(silence: NvmlSilence, moment: Moment) -> Finding:
    text = f"NVML has not answered for {moment.now_s - silence.since_s:.0f} s: no "
    text += WORK.get(silence.child, silence.child)
    evidence = [text]
    if silence.asking:
        evidence.append(f"it was asked {silence.asking}")
    if silence.stuck:
        evidence.append(f"processes that hang in the driver and can't be killed: {silence.stuck}")
    evidence.append(NEXT)
    since_unix_s = moment.unix_s(silence.since_s)
    return Finding(
        Kind.NVML_WEDGED,
        moment.node,
        since_unix_s,
        CONFIDENCE,
        evidence=evidence,
        what=silence.child,
    )
