"""Keeps what the driver says of GPUs' faults: hears both inputs, remembers a day, has it judged."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from holdfast_sidecar.components.gpu.readings import Gpu, GpuReading, Signal
from holdfast_sidecar.components.xid.catalog import NOTHING
from holdfast_sidecar.components.xid.checks import (
    Key,
    Known,
    XidReading,
    key_of,
    tally_sxids,
    tally_xids,
)
from holdfast_sidecar.components.xid.engine import judge
from holdfast_sidecar.components.xid.events import XidEvent, parse_line
from holdfast_sidecar.components.xid.history import (
    History,
    forget_old,
    has_heard,
    last_word,
    of_these_gpus,
    take_in,
    take_reading,
)
from holdfast_sidecar.components.xid.rules import (
    TEARDOWN_S,
    GpuState,
    XidContext,
    parse_driver_branch,
    take_energy,
)
from holdfast_sidecar.components.xid.storage import read_boot, read_history, write_history
from holdfast_sidecar.linux.kmsg import KernelReading
from holdfast_sidecar.ranks.observation import RankHistory
from holdfast_sidecar.records.findings import Moment

logger = logging.getLogger(__name__)


# What goes on around the GPUs: the attempt, the ends of its ranks, what the GPUs say. Pure.

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

    def scene(self, reading: GpuReading | None, boot: str) -> XidContext:
        """What XIDs are judged by."""
        scene = XidContext(
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


WRITE_EVERY_S = 2.0
"""What else is heard within this time shares one write; what a sidecar that dies meanwhile had not
written is in the kernel's log still."""

JUDGE_EVERY_S = 1.0
"""As often as GPUs are read. With a day of trouble in the history, as after a storm, a judgement
costs a millisecond: a fifth of the sidecar's whole budget, were it made at each tick."""

SEEN_AT_ONCE_S = 5.0
"""What is heard of later, as by a sidecar that starts anew, says nothing of the step at which it
happened. NVML's events and the log's lines come within a tick; on a loaded machine ticks are late.
"""


@dataclass
class XidAttention:
    """What one sidecar knows; `hear`, then `follow` at each tick."""

    path: Path | None = None
    """Where the history is kept; None: nowhere."""
    boot: str = field(default_factory=read_boot)
    history: History = field(default_factory=History)
    _known: dict[str, Known] = field(default_factory=dict)
    _steps: dict[tuple[str, str, float], Mapping[int, int]] = field(default_factory=dict)
    _lacks_gpus: bool = False
    _attempt: int = -1
    _seen: Counter[Key] = field(default_factory=Counter)
    _taken: GpuReading | None = None
    _judged: XidContext | None = None
    _judged_history: History = field(default_factory=History)
    _settled: History = field(default_factory=History)
    _settled_by: dict[str, str] = field(default_factory=dict)
    _reading: XidReading = field(default_factory=XidReading)
    _written: History = field(default_factory=History)
    _written_s: float = float("-inf")
    _is_read: bool = False
    _last_error: str = ""

    def hear(self, kernel: KernelReading | None, told: Iterable[XidEvent]) -> None:
        """Take in what came since the tick before, by the log and by NVML: it comes but once."""
        self._begin()
        for record in () if kernel is None else kernel.records:
            event = parse_line(record.text.replace("\\x0a", "\n"), record.at_unix_s)
            if event is None or has_heard(self.history, self.boot, record.sequence):
                continue
            self._take(event, is_new_here=not record.is_backlog)
            self.history = replace(self.history, log_boot=self.boot, log_sequence=record.sequence)
        for event in told:
            self._take(event, is_new_here=True)

    def follow(
        self,
        gpus: GpuReading | None,
        owners: Mapping[str, int],
        sureness: Mapping[str, float],
        around: Around,
    ) -> XidReading:
        """What is so now. owners: UUID or PCI address of a GPU -> its rank; sureness: UUID -> how
        sure that is."""
        self._begin()
        self._know(gpus, owners, sureness, around.attempt)
        scene = around.scene(gpus, self.boot)
        if gpus is not self._taken:
            self._take_reading(scene)
            self._taken = gpus
        self._leave_out_others()
        self.history = forget_old(self.history, scene.now_s)
        if self._is_to_be_judged(scene):
            self._judge(scene)
        self._keep(scene.now_s)
        self._note_steps(around)
        return replace(
            self._reading,
            gpus=dict(self._known),
            steps={(pci, name): steps for (pci, name, _), steps in self._steps.items()},
            lacks_gpus=self._lacks_gpus,
        )

    def _note_steps(self, around: Around) -> None:
        """How far ranks were when something happened to them; they may go on after it."""
        since_s, now_s = around.attempt_since_s, around.moment.now_unix_s
        self._steps = {
            key: self._steps.get(key, around.steps)
            for one in self._reading.verdicts
            if since_s is not None and one.first_s >= since_s
            for key in [(one.pci, one.name, one.first_s)]
            if key in self._steps or now_s - one.first_s <= SEEN_AT_ONCE_S
        }

    def _leave_out_others(self) -> None:
        uuids = {pci: known.uuid for pci, known in self._known.items()}
        if self.history is not self._settled or uuids != self._settled_by:
            self.history = self._settled = of_these_gpus(self.history, uuids, self.boot)
            self._settled_by = uuids

    def _take_reading(self, scene: XidContext) -> None:
        actions = {pci: gpu.action for pci, gpu in scene.gpus.items() if gpu.action is not None}
        read_s = max((gpu.read_s for gpu in scene.gpus.values()), default=scene.now_s)
        history = take_reading(self.history, actions, read_s, self.boot)
        self.history = take_energy(history, scene.gpus, self.boot)

    def _is_to_be_judged(self, scene: XidContext) -> bool:
        """At once where something happened; else now and then, since time alone changes verdicts
        too."""
        judged = self._judged
        if judged is None or self.history is not self._judged_history:
            return True
        is_due = not 0.0 <= scene.now_s - judged.now_s < JUDGE_EVERY_S
        return is_due or (judged.teardowns, _flags(judged)) != (scene.teardowns, _flags(scene))

    def _judge(self, scene: XidContext) -> None:
        judgement = judge(self.history, scene)
        self.history = self._judged_history = judgement.history
        self._judged = scene
        self._reading = XidReading(
            judgement.verdicts,
            xids=tally_xids(self.history, self._seen),
            sxids=tally_sxids(self.history, self._seen),
            asked_since=dict(self._asked_since(scene)),
        )

    def _asked_since(self, scene: XidContext) -> Iterator[tuple[str, float]]:
        for pci, known in self._known.items():
            gpu = scene.gpus.get(pci)
            word = last_word(self.history, pci, self.boot) if gpu and gpu.action else None
            if word is not None and word.action != NOTHING:
                yield known.uuid, word.since_s

    def _begin(self) -> None:
        if not self._is_read and self.path is not None:
            self.history = self._written = read_history(self.path, self.boot)
        self._is_read = True

    def _know(
        self,
        reading: GpuReading | None,
        owners: Mapping[str, int],
        sureness: Mapping[str, float],
        attempt: int,
    ) -> None:
        """Remember which GPUs there are, and whose: within an attempt no GPU changes hands."""
        if attempt != self._attempt:
            self._attempt = attempt
            self._known = {
                pci: Known(known.uuid, known.index) for pci, known in self._known.items()
            }
        if reading is not None and reading.stale_since_s is None:
            self._lacks_gpus = len(reading.gpus) < (reading.expected or 0)
        for gpu in () if reading is None else reading.gpus:
            before = self._known.get(gpu.pci)
            rank = owners.get(gpu.uuid, owners.get(gpu.pci))
            known = Known(gpu.uuid, gpu.index, rank, sureness.get(gpu.uuid, 0.0))
            if rank is None and before is not None and before.uuid == gpu.uuid:
                known = replace(known, rank=before.rank, sureness=before.sureness)
            self._known[gpu.pci] = known

    def _take(self, event: XidEvent, is_new_here: bool) -> None:
        """What the log held before was seen, and counted, by whoever ran then."""
        self.history, is_new = take_in(self.history, event, self.boot)
        if is_new and is_new_here:
            self._seen[key_of(self.history.occurrences[-1])] += 1

    def _keep(self, now_s: float) -> None:
        if self.path is None or self.history == self._written:
            return
        if now_s - self._written_s < WRITE_EVERY_S:
            return
        self._written_s = now_s
        try:
            write_history(self.path, self.history, self.boot, now_s)
        except BlockingIOError:
            return  # another sidecar writes, and both have time: it is tried again
        except OSError as error:
            if str(error) != self._last_error:
                logger.warning("what happened to the GPUs can't be kept: %s", error)
            self._last_error = str(error)
        else:
            self._written, self._last_error = self.history, ""


def _flags(scene: XidContext) -> tuple[object, ...]:
    """What the GPUs say of themselves, without the time, and since when there are ranks: to a tenth
    of a second, since the two clocks that it is worked out from differ a little at each tick."""
    since_s = scene.attempt_since_s
    gpus = [(pci, gpu.action, gpu.remap_failed) for pci, gpu in scene.gpus.items()]
    return (None if since_s is None else round(since_s, 1), scene.driver_branch, *gpus)
