"""All that concerns process groups, hooked together: they share which group has which slot."""

from __future__ import annotations

from functools import partial
from typing import Any

from holdfast.contract import switches
from holdfast.guard import Guard
from holdfast.patches import collectives, functional, group, reducer, waiting
from holdfast.patches.grouped import Groups
from holdfast.recording.recorder import Recorder

PARTS = (
    ("collectives", collectives.install),
    ("waiting", waiting.install),
    ("functional-collectives", functional.install),
    ("reducer", reducer.install),
    ("group", group.install),
)


def install(torch: Any, recorder: Recorder, guard: Guard) -> None:
    """Hook them, each for itself: one that fails leaves the others."""
    groups = Groups.of(recorder, torch)
    for name, install_part in PARTS:
        if not switches.is_on(name):
            continue
        guard.run(name, partial(install_part, torch, recorder, guard, groups))
