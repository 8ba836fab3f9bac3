"""What goes on around the GPUs: the attempt, the ends of its ranks, what the GPUs say. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from holdfast_sidecar.ranks.observation import RankHistory
from holdfast_sidecar.readings.gpu import Gpu, GpuReading, Signal
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.xids.scene import GpuState, Scene, parse_driver_branch
from holdfast_sidecar.xids.sympathy import TEARDOWN_S

REMEMBERED_S = 10 * TEARDOWN_S
"""What followed from an end is told for five minutes, and judged anew all the while."""


@dataclass(frozen=True)
class Around:
    """At one tick. Times are Unix seconds."""

    moment: Moment
    attempt: int = -1
    attempt_since_s: float | None = None
    steps: Mapping[int, int] = field(default_factory=dict)
    """Rank -> how many it has done."""
    teardowns: Mapping[tuple[int, int], float] = field(default_factory=dict)
    """(attempt, rank; -1: all of them) -> since when it has been ended."""

    def scene(self, reading: GpuReading | None, boot: str) -> Scene:
        """What XIDs are judged by."""
        scene = Scene(
            now_s=self.moment.now_unix_s,
            boot=boot,
            teardowns=tuple(sorted(self.teardowns.values())),
            attempt_since_s=self.attempt_since_s,
        )
        if reading is None:
            return scene
        read_s = self.moment.unix_s(reading.read_at_s) if reading.read_at_s else scene.now_s
        is_fresh = reading.stale_since_s is None
        gpus = {gpu.pci: state_of(gpu, read_s, is_fresh) for gpu in reading.gpus}
        return replace(scene, gpus=gpus, driver_branch=parse_driver_branch(reading.driver))


def look_around(
    before: Around | None,
    attempt: int,
    histories: Mapping[int, RankHistory],
    is_going_on: bool,
    moment: Moment,
) -> Around:
    """What is so a tick later. is_going_on: the plan means the ranks to run.

    A rank that ends takes the others with it: its launcher sends them its signals, whatever the
    plan says by then.
    """
    since = [history.look.identity.claimed_ns / 1e9 for history in histories.values()]
    old_s = moment.now_unix_s - REMEMBERED_S
    known = {} if before is None else before.teardowns
    teardowns = {key: at_s for key, at_s in known.items() if at_s > old_s}
    for rank, history in histories.items():
        if history.gone_since_s is not None:
            teardowns.setdefault((attempt, rank), moment.unix_s(history.gone_since_s))
    if not is_going_on and histories:
        teardowns.setdefault((attempt, -1), moment.now_unix_s)
    began_s = moment.unix_s(min(since)) if since else None
    steps = {rank: history.look.step for rank, history in histories.items()}
    return Around(moment, attempt, began_s, steps, teardowns)


def state_of(gpu: Gpu, read_s: float, is_fresh: bool = True) -> GpuState:
    """What of a GPU's reading XIDs are judged by; of a stale one, which GPU it is."""
    if not is_fresh or gpu.lost:
        return GpuState(gpu.model, gpu.is_mig, read_s=read_s)
    action, failed = gpu.value(Signal.RECOVERY_ACTION), gpu.value(Signal.REMAP_FAILURE)
    return GpuState(
        model=gpu.model,
        is_mig=gpu.is_mig,
        action=None if action is None else int(action),
        remap_failed=None if failed is None else bool(failed),
        energy_joules=gpu.value(Signal.ENERGY),
        read_s=read_s,
    )
