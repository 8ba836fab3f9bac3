"""Does it to the fake hardware: each fault as its signals show it on real GPUs."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from holdfast_sidecar.components.gpu.readings import Signal
from holdfast_sidecar.demo.fake_node import FakeNode
from holdfast_sidecar.demo.fake_sysfs import ACTIVE, DOWN
from holdfast_sidecar.demo.hardware.scenario import Fault

PORT = "mlx5_2"
FLAP_S = 2.5
"""Longer than two looks at the port, far shorter than what makes a link lost."""
BEAT_S = 0.1
HOT_SHARE = 0.7
"""Of the time the GPU's clock is held down by its heat."""
STORM_PER_S = 6000.0
"""Corrected errors; a report from the field tells of 4,600 a second before the GPU was lost."""
FALLEN_XID = 79
SEEN_S = 2.5
"""The driver is asked once a second which processes use a GPU."""


@dataclass
class Hurt:
    """A fault that goes on until `heal`."""

    heal: Callable[[], None] = lambda: None


@dataclass
class Faults:
    """What is done to one node. `pid_of` finds the process of a rank."""

    node: FakeNode
    pid_of: Callable[[int], int]
    _users: list[int] = field(default_factory=list)
    _stops: list[threading.Event] = field(default_factory=list)

    def tell_users(self, gpus: int) -> None:
        """Let the driver name rank n's process on GPU n, as it does for ranks that use CUDA, and
        let that be seen: no rank is ended for a GPU that is only guessed to be its own."""
        users = [self.pid_of(gpu) for gpu in range(gpus)]
        if users == self._users:
            return
        for gpu, pid in enumerate(users):
            self.node.nvml.users(gpu, [pid])
        self._users = users
        threading.Event().wait(SEEN_S)

    def begin(self, fault: Fault, gpu: int) -> Hurt:
        """Let it happen; some of it goes on in a thread that ends by itself after `heal`."""
        begin = {
            Fault.LINK_FLAP: self._flap,
            Fault.HEAT: self._heat,
            Fault.WEDGE: self._wedge,
            Fault.ECC_STORM: self._storm,
            Fault.XID_79: self._fall,
        }[fault]
        return begin(gpu)

    def close(self) -> None:
        """End what still goes on."""
        for stop in self._stops:
            stop.set()

    def _flap(self, _gpu: int) -> Hurt:
        self.node.sysfs.set_state(PORT, DOWN)
        up = threading.Timer(FLAP_S, lambda: self.node.sysfs.set_state(PORT, ACTIVE))
        up.daemon = True
        up.start()
        return Hurt()

    def _heat(self, gpu: int) -> Hurt:
        nvml, pid = self.node.nvml, self.pid_of(gpu)
        usual_clock = nvml.get(gpu, Signal.SM_CLOCK_MOST)
        usual_margin = nvml.get(gpu, Signal.TEMPERATURE_MARGIN)
        nvml.set(gpu, Signal.TEMPERATURE_MARGIN, 0)
        nvml.set(gpu, Signal.SM_CLOCK, 0.4 * usual_clock)

        def beat() -> None:
            nvml.add(gpu, Signal.THROTTLED_HARDWARE_THERMAL, HOT_SHARE * BEAT_S)
            _pause(pid, BEAT_S / 2)  # a slow GPU keeps its rank waiting

        def heal() -> None:
            nvml.set(gpu, Signal.TEMPERATURE_MARGIN, usual_margin)
            nvml.set(gpu, Signal.SM_CLOCK, usual_clock)

        return self._go_on(beat, heal)

    def _wedge(self, _gpu: int) -> Hurt:
        self.node.nvml.hang("nvmlDeviceGetFieldValues")
        return Hurt(self.node.nvml.release)

    def _storm(self, gpu: int) -> Hurt:
        grow = STORM_PER_S * BEAT_S
        return self._go_on(lambda: self.node.nvml.add(gpu, Signal.ECC_CORRECTED, grow))

    def _fall(self, gpu: int) -> Hurt:
        self.node.nvml.raise_xid(gpu, FALLEN_XID)
        self.node.nvml.lose(gpu)
        with suppress(ProcessLookupError):
            os.kill(self.pid_of(gpu), signal.SIGSTOP)  # its kernels never end
        return Hurt()

    def _go_on(self, beat: Callable[[], None], heal: Callable[[], None] = lambda: None) -> Hurt:
        stop = threading.Event()
        self._stops.append(stop)

        def run() -> None:
            while not stop.wait(BEAT_S):
                beat()
            heal()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()

        def end() -> None:
            stop.set()
            thread.join()

        return Hurt(end)


def _pause(pid: int, seconds: float) -> None:
    """Keep a process from running for a while."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        threading.Event().wait(seconds)
        os.kill(pid, signal.SIGCONT)
