"""Attaching to a training process without touching its script.

The launcher puts our bootstrap directory on the PYTHONPATH of its ranks; the interpreter finds the
`sitecustomize` there, which calls `arm`. Nothing of weight is imported until torch is.
"""

from __future__ import annotations

import os
import sys

from holdfast.contract import environment, foreign_launch
from holdfast.rank import exit_code, importing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.contract.page import Identity
    from holdfast.guard import Guard
    from holdfast.recording.recorder import Recorder


def worker_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """What makes an interpreter attach, given the environment it would inherit."""
    paths = [environment.python_path(), *filter(None, [inherited.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths)}


def is_wanted(environ: Mapping[str, str]) -> bool:
    """Whether this process is a rank whose page nobody among its ancestors has claimed."""
    claimed_pid = environ.get(environment.CLAIMED, "").partition(":")[0]
    return (
        bool(environ.get(environment.PAGE_DIR))
        and foreign_launch.find_seat(environ) is not None
        and environ.get(environment.HOOKS) != "0"
        and claimed_pid in ("", str(os.getpid()))  # our own: this program replaced itself (exec)
    )


def is_free_threaded() -> bool:
    """Whether this Python runs without a GIL: words in the page are then not counted safely."""
    has_gil = getattr(sys, "_is_gil_enabled", None)
    return has_gil is not None and not has_gil()


def arm() -> None:
    """Attach once torch is imported; at once where it is already (a warm interpreter)."""
    if not is_wanted(os.environ) or _is_armed():
        return
    if is_free_threaded():
        sys.stderr.write("holdfast: this rank is not watched: its Python is free-threaded\n")
        return
    if os.environ.get(environment.ATTACH):
        if foreign_launch.is_launcher(sys.orig_argv):
            return
        try:
            foreign_launch.settle(os.environ)
        except OSError as error:
            sys.stderr.write(f"holdfast: this rank is not watched: {error}\n")
            return
    exit_code.watch()
    if "torch" in sys.modules:
        _claim_page()
        _patch_torch()
    else:
        importing.watch("torch", before=_claim_page, after=_patch_torch)


def _is_armed() -> bool:
    """Whether it was called before: two paths to one directory on PYTHONPATH have it called twice,
    and every patch twice would count everything twice."""
    process = sys.modules.get("holdfast.rank.process")
    return importing.is_watched("torch") or (process is not None and process.current() is not None)


def _claim_page() -> None:
    from holdfast.guard import Guard
    from holdfast.rank import process

    if process.current() is None:
        guard = Guard(lambda: None)
        guard.run("claim", lambda: _become_the_rank(guard))


def _become_the_rank(guard: Guard) -> None:
    from holdfast.contract import switches
    from holdfast.contract.page import Flag
    from holdfast.rank import early_environment, exit_report, process
    from holdfast.rank.claim import claim
    from holdfast.recording.recorder import Recorder

    identity = _identity(os.environ)
    # Starts by others carry no number of ours: what the one before left is not this one's.
    is_foreign = bool(os.environ.get(environment.ATTACH))
    if is_foreign:
        # Whoever watched the start before may have cleared up since.
        foreign_launch.make_private(os.environ[environment.PAGE_DIR])
    claimed = claim(os.environ[environment.PAGE_DIR], identity, replaces_dead=is_foreign)
    if claimed is None:
        return
    os.environ[environment.CLAIMED] = f"{identity.pid}:{identity.start_ticks}"
    recorder = Recorder(claimed.memory, identity.attempt)
    process.hold(recorder, claimed.let_go)
    if early_environment.read_is_changed(os.environ):
        recorder.add_flag(Flag.NEEDS_COLD_START)
    if switches.is_on("death-watch"):
        guard.run("death watch", lambda: _hold_for_life(claimed.descriptor, recorder))
    if not is_foreign and switches.is_on("tracing"):
        guard.run("tracing", _let_see)
    if switches.is_on("last-words"):
        guard.run("last words", lambda: exit_report.install(identity.local_rank))


def _hold_for_life(descriptor: int, recorder: Recorder) -> None:
    from holdfast.rank import death_watch  # needs ctypes, which not every Python has

    death_watch.hold(descriptor, recorder)


def _let_see() -> None:
    from holdfast.rank import ptrace  # needs ctypes as well

    ptrace.let_see()


def _patch_torch() -> None:
    from holdfast.contract.page import Flag, Word
    from holdfast.guard import Guard
    from holdfast.rank import process

    recorder = process.current()
    if recorder is None:
        return
    recorder.add_flag(Flag.TORCH_IMPORTED)
    guard = Guard(lambda: recorder.count(Word.HOOK_ERRORS))
    guard.run("patches", lambda: _apply_patches(guard))


def _apply_patches(guard: Guard) -> None:
    from holdfast.contract import switches
    from holdfast.patches import PATCHES
    from holdfast.rank import process

    recorder = process.current()
    assert recorder is not None
    torch = sys.modules["torch"]
    for name, install in PATCHES:
        if not switches.is_on(name):
            continue
        guard.run(name, lambda install=install: install(torch, recorder, guard))  # type: ignore[misc]


def _identity(environ: Mapping[str, str]) -> Identity:
    import time

    from holdfast.contract.identity import read_identity
    from holdfast.contract.page import Identity

    me = read_identity()
    assert me is not None
    seat = foreign_launch.find_seat(environ)
    assert seat is not None
    return Identity(
        pid=me.pid,
        start_ticks=me.start_ticks,
        attempt=int(environ.get(environment.ATTEMPT, "0")),
        epoch=int(environ.get(environment.EPOCH, "0")),
        rank=seat.rank,
        local_rank=seat.local_rank,
        world_size=seat.world_size,
        claimed_ns=time.monotonic_ns(),
        node=environ.get(environment.NODE, ""),
        job=environ.get(environment.JOB, ""),
    )
