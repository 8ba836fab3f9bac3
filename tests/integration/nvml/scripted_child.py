"""A child that does as its first argument says; started as `gpu.nvml.process` starts children."""

from __future__ import annotations

import os
import signal
import sys
import time

sys.path[:] = sys.argv[-1].split(os.pathsep)

from holdfast_sidecar.components.gpu.nvml import child_io  # noqa: E402
from holdfast_sidecar.components.gpu.nvml.child_io import FrameWriter, SharedStatus, frame  # noqa: E402
from holdfast_sidecar.components.gpu.nvml.wire import spell_reading  # noqa: E402
from holdfast_sidecar.components.gpu.readings import Gpu, GpuReading, GpuUser, Signal  # noqa: E402

GPU = Gpu(0, "GPU-0", "Twin", "0000:17:00.0", {Signal.POWER: 300.0}, {"x": "y"}, (GpuUser(1),))
READING = f"{child_io.READING} {spell_reading(GpuReading(True, '570.1', (GPU,), read_at_s=1.0))}"

board, pipe = SharedStatus(int(sys.argv[-3])), FrameWriter(1)
os.close(int(sys.argv[-3]))  # mapped by now, as in the real one


def read() -> None:
    pipe.say(*READING.split(" ", 1))
    board.alive()


def hang() -> None:
    board.about_to("nvmlDeviceGetFieldValues of GPU 0")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(600)


def answer() -> None:
    while True:
        read()
        time.sleep(0.02)


def answer_once_and_hang() -> None:
    read()
    hang()


def answer_once_and_die() -> None:
    read()
    os.kill(os.getpid(), signal.SIGSEGV)


def write_garbage() -> None:
    os.write(1, b"driver says hello\n")
    hang()


def write_half_and_die() -> None:
    os.write(1, frame(READING.encode())[:-9])


def write_nonsense() -> None:
    pipe.say(child_io.READING, '{"gpus": 3}')
    hang()


def be_absent() -> None:
    pipe.say(child_io.ABSENT, "no library")


def fail() -> None:
    pipe.say(child_io.FAILED, "Unknown Error")


def tell() -> None:
    """Descriptors that were inherited, by the text of an answer."""
    pipe.say(child_io.FAILED, ",".join(sorted(os.listdir("/proc/self/fd"), key=int)))


def hang_unless() -> None:
    """Until the file is there."""
    if not os.path.exists(sys.argv[2]):
        hang()
    answer()


globals()[sys.argv[1]]()
