"""Everything that GPUs are judged by, from one fresh reading and what went before."""

from __future__ import annotations

from holdfast_sidecar.detectors.gpus.links import find_degraded_links
from holdfast_sidecar.detectors.gpus.lost import find_lost_gpus, find_wanted_recoveries
from holdfast_sidecar.detectors.gpus.memory import find_error_storms, find_failing_memory
from holdfast_sidecar.detectors.gpus.sharing import find_shared_gpus
from holdfast_sidecar.detectors.gpus.throttling import find_throttled_gpus
from holdfast_sidecar.gpus.scene import GpuScene
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.findings import Finding


def judge_states(scene: GpuScene, moment: Moment) -> list[Finding]:
    """What a GPU says of itself now: judged with every reading."""
    return [
        *find_lost_gpus(scene, moment),
        *find_wanted_recoveries(scene, moment),
        *find_failing_memory(scene, moment),
        *find_shared_gpus(scene, moment),
    ]


def judge_rates(scene: GpuScene, moment: Moment) -> list[Finding]:
    """What shows over half a minute and more: judged now and then."""
    return [
        *find_error_storms(scene, moment),
        *find_throttled_gpus(scene, moment),
        *find_degraded_links(scene, moment),
    ]
