"""A node with eight GPUs and eight RDMA ports that are none, and a real sidecar that watches it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType

import psutil
from testing.fake_node import build_node
from testing.fake_nvml.driver import CompilerMissingError, build

from bench.benchmark import NotRun
from bench.launch.redis_server import RedisServer
from bench.telemetry.names import GPUS, PORTS

NODE = "node"
EVERY_S = 1.0
START_LIMIT_S = 30.0
SETTINGS = (f"gpu.every_s={EVERY_S:g}",)
"""All else at its default, which reads RDMA ports as often."""

Line = tuple[float, str]
"""CLOCK_MONOTONIC at which a line of the log was read, and the line."""


class Fakes:
    """The node's hardware, and what makes processes see it."""

    def __init__(self, directory: Path) -> None:
        try:
            library = build(directory / "lib")
        except CompilerMissingError as error:
            raise NotRun(str(error)) from None
        self.node = build_node(directory / "root", library, gpus=GPUS, ports=PORTS)
        self.nvml = self.node.nvml
        self.environment = self.node.environment
        self.settings = (*SETTINGS, f"paths.machine_root={self.node.root}")


class WatchedNode:
    """A context: fakes, a Redis-compatible server and `holdfast sidecar` as in a DaemonSet."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
        self.job = f"bench-{uuid.uuid4().hex[:8]}"
        self.lines: SimpleQueue[Line] = SimpleQueue()
        self.address = ""
        self._server: RedisServer | None = None
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> WatchedNode:
        try:
            self.fakes = Fakes(self.directory)
            self._server = RedisServer(self.directory)
            self._start(self._server.url)
        except BaseException:
            self._clean()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._clean()

    @property
    def sidecar(self) -> psutil.Process:
        """Its process."""
        assert self._process is not None
        return psutil.Process(self._process.pid)

    def page(self) -> str:
        """What /metrics says now."""
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=10) as answer:
            text: str = answer.read().decode()
        return text

    def wait_for_line(self, is_it: Callable[[str], bool], within_s: float) -> float | None:
        """When such a line was logged, CLOCK_MONOTONIC; None: it was not."""
        end_s = time.monotonic() + within_s
        while (left_s := end_s - time.monotonic()) > 0:
            with contextlib.suppress(Empty):
                at_s, line = self.lines.get(timeout=left_s)
                if is_it(line):
                    return at_s
        return None

    def wait_for_page(self, is_it: Callable[[str], bool], what: str) -> None:
        """Look until the page says so; NotRun when it never does."""
        end_s = time.monotonic() + START_LIMIT_S
        while time.monotonic() < end_s:
            with contextlib.suppress(OSError, urllib.error.URLError):
                if self.address and is_it(self.page()):
                    return
            self._find_address()
            time.sleep(0.1)
        raise NotRun(f"{what}: not within {START_LIMIT_S:g} s")

    def _start(self, redis: str) -> None:
        settings = [f"--set={setting}" for setting in self._settings()]
        command = [sys.executable, "-m", "holdfast_sidecar.cli.main", "sidecar"]
        command += [f"--job={self.job}", f"--node={NODE}", f"--redis={redis}", *settings]
        kept = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
        self._process = subprocess.Popen(
            command,
            env={**kept, **self.fakes.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        threading.Thread(target=self._read, args=[self._process], daemon=True).start()
        self.wait_for_page(lambda page: "holdfast_gpu_power_watts{" in page, "readings of GPUs")

    def _settings(self) -> tuple[str, ...]:
        own = (f"paths.state_dir={self.directory / 'state'}", f"paths.shm_dir={self.directory}")
        return (*self.fakes.settings, *own)

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            self.lines.put((time.monotonic(), line.rstrip()))

    def _find_address(self) -> None:
        record = self.directory / "state" / self.job / NODE / "sidecar.json"
        with contextlib.suppress(OSError, ValueError, KeyError):
            self.address = str(json.loads(record.read_text())["metrics_address"])

    def _clean(self) -> None:
        if self._process is not None and self._process.poll() is None:
            family = [self.sidecar, *self.sidecar.children(recursive=True)]
            self._process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=10)
            for one in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
            self._process.wait(timeout=10)
        if self._server is not None:
            self._server.stop()
        shutil.rmtree(self.directory, ignore_errors=True)
