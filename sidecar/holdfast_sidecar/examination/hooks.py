"""Whether the commands exist that are to be run for nodes."""

from __future__ import annotations

import shutil

from holdfast_sidecar.config import timeouts
from holdfast_sidecar.config.settings import NodesSettings
from holdfast_sidecar.examination.check import OK, WARN, Check


def check_hooks(settings: NodesSettings) -> list[Check]:
    """Look for their programs here, where this node may lead. Those that are not well formed are
    told of with the other settings that can't work."""
    commands = {"on_quarantine": settings.on_quarantine, "on_return": settings.on_return}
    return [
        _check(f"nodes.{name}", timeouts.program(command))
        for name, command in commands.items()
        if command and not timeouts.problem(command)
    ]


def _check(what: str, program: str) -> Check:
    if program and shutil.which(program) is None:
        line = f"there is no program {program!r} here: the command would fail when it is wanted"
        return Check(what, WARN, line)
    return Check(what, OK, program or "its program depends on what it is run for")
