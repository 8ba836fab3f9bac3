from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast_sidecar.config.paths import Paths
from holdfast_sidecar.config.settings import PathSettings, Settings
from holdfast_sidecar.linux import cgroups
from holdfast_sidecar.startup import Site
from holdfast_sidecar.wiring import assemble


def test_the_kernel_s_log_is_that_of_the_machine_that_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "dev/kmsg"
    log.parent.mkdir()
    log.write_text("6,1,1,-;of the other machine\n")
    monkeypatch.setattr(cgroups, "INITIAL_NAMESPACE", os.readlink("/proc/self/ns/pid"))
    opened: list[str] = []
    really_open = os.open

    def note(path: Any, *how: Any, **more: Any) -> int:
        opened.append(str(path))
        return really_open(path, *how, **more)

    settings = Settings(paths=PathSettings(machine_root=str(tmp_path)))
    site = Site("job", "a", Paths(tmp_path, tmp_path), settings)
    nobody: Any = None
    silent: Any = SimpleNamespace(changed=threading.Event())
    loop = assemble(site, silent, nobody, nobody, "")
    monkeypatch.setattr(os, "open", note)
    loop.ranks_probe.read(0.0)
    assert loop.machine.kernel is not None
    loop.machine.kernel.read(0.0)
    loop.machine.kernel.close()
    assert loop.deeds.bundles.read_kernel_lines(0.0) == ["[0.000001] info: of the other machine"]
    assert {path for path in opened if path.endswith("kmsg")} == {str(log)}
    assert sum(path == str(log) for path in opened) >= 3
