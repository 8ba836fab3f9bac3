"""A node's hardware that is none: GPUs, RDMA ports and what makes a sidecar take them for real."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from holdfast_sidecar.demo.fake_nvml.build import environment
from holdfast_sidecar.demo.fake_nvml.state import FakeNvml
from holdfast_sidecar.demo.fake_sysfs import GPU_CLASS, FakeSysfs, build_fabric

REAL = ("proc",)
"""Trees that are the machine's own: its load, its memory."""

KERNEL_LOG = "dev/kmsg"
"""Nothing was ever logged there. The machine's own may tell of GPUs at the same addresses, as where
such lines were written for a test."""

DRIVER = "dev/nvidiactl"
"""By which a launcher knows that its node's GPUs are worth a verdict."""


@dataclass(frozen=True)
class FakeNode:
    """`root` holds everything: set `paths.machine_root` to it, and let processes inherit
    `environment`."""

    root: Path
    nvml: FakeNvml
    sysfs: FakeSysfs
    environment: dict[str, str]

    def pci(self, gpu: int) -> str:
        """Where a GPU sits, as in sysfs."""
        return pci_of(self.nvml, gpu)


def build_node(root: Path, library: Path, gpus: int, ports: int) -> FakeNode:
    """A node in this directory, all of it healthy. `library`: see `fake_nvml.build`."""
    root.mkdir(parents=True)
    for tree in REAL:
        (root / tree).symlink_to(f"/{tree}")
    (root / KERNEL_LOG).parent.mkdir()
    os.mkfifo(root / KERNEL_LOG)
    if gpus:
        (root / DRIVER).touch()
    sysfs = build_fabric(root, ports)
    nvml = FakeNvml.create(root / "nvml", gpus)
    for gpu in range(gpus):
        sysfs.add_pci(pci_of(nvml, gpu), GPU_CLASS, "nvidia")
    return FakeNode(root, nvml, sysfs, environment(library, root / "nvml"))


def pci_of(nvml: FakeNvml, gpu: int) -> str:
    """Where a GPU sits, as in sysfs."""
    at = nvml.state.gpus[gpu]
    return f"{at.domain:04x}:{at.bus:02x}:{at.device:02x}.0"
