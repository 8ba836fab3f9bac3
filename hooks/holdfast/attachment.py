"""Attaching to a training process without touching its script.

The launcher puts `python_path()` on the PYTHONPATH of its ranks; the interpreter finds the
`sitecustomize` there, which calls `arm`. Nothing of weight is imported until torch is.
"""

from __future__ import annotations

import os
import sys

from holdfast import environment, exit_code, importing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.guard import Guard
    from holdfast.page import Identity


def python_path() -> str:
    """The directory to put first on a rank's PYTHONPATH."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "bootstrap")  # noqa: PTH100,PTH118,PTH120 - pathlib costs milliseconds at every interpreter start


def worker_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """What makes an interpreter attach, given the environment it would inherit."""
    paths = [python_path(), *filter(None, [inherited.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths)}


def is_wanted(environ: Mapping[str, str]) -> bool:
    """Whether this process is a rank whose page nobody among its ancestors has claimed."""
    claimed_pid = environ.get(environment.CLAIMED, "").partition(":")[0]
    return (
        bool(environ.get(environment.PAGE_DIR))
        and bool(environ.get("LOCAL_RANK"))
        and environ.get(environment.HOOKS) != "0"
        and claimed_pid in ("", str(os.getpid()))  # our own: this program replaced itself (exec)
    )


def arm() -> None:
    """Attach once torch is imported; at once where it is already (a warm interpreter)."""
    if not is_wanted(os.environ):
        return
    exit_code.watch()
    if "torch" in sys.modules:
        _claim_page()
        _patch_torch()
    else:
        importing.watch("torch", before=_claim_page, after=_patch_torch)


def _claim_page() -> None:
    from holdfast import process
    from holdfast.guard import Guard

    if process.current() is None:
        guard = Guard(lambda: None)
        guard.run("claim", lambda: _become_the_rank(guard))


def _become_the_rank(guard: Guard) -> None:
    from holdfast import early_environment, last_words, process
    from holdfast.claim import claim
    from holdfast.page import Flag
    from holdfast.recorder import Recorder

    identity = _identity(os.environ)
    claimed = claim(os.environ[environment.PAGE_DIR], identity)
    if claimed is None:
        return
    os.environ[environment.CLAIMED] = f"{identity.pid}:{identity.start_ticks}"
    recorder = Recorder(claimed.memory, identity.attempt)
    process.hold(recorder, claimed.let_go)
    if early_environment.read_is_changed(os.environ):
        recorder.add_flag(Flag.NEEDS_COLD_START)
    guard.run("last words", lambda: last_words.install(identity.local_rank))


def _patch_torch() -> None:
    from holdfast import process
    from holdfast.guard import Guard
    from holdfast.page import Flag, Word

    recorder = process.current()
    if recorder is None:
        return
    recorder.add_flag(Flag.TORCH_IMPORTED)
    guard = Guard(lambda: recorder.count(Word.HOOK_ERRORS))
    guard.run("patches", lambda: _apply_patches(guard))


def _apply_patches(guard: Guard) -> None:
    from holdfast import process
    from holdfast.patches import PATCHES

    recorder = process.current()
    assert recorder is not None
    torch = sys.modules["torch"]
    for name, install in PATCHES:
        guard.run(name, lambda install=install: install(torch, recorder, guard))  # type: ignore[misc]


def _identity(environ: Mapping[str, str]) -> Identity:
    import time

    from holdfast.identity import read_identity
    from holdfast.page import Identity

    me = read_identity()
    assert me is not None
    local_rank = int(environ["LOCAL_RANK"])
    return Identity(
        pid=me.pid,
        start_ticks=me.start_ticks,
        attempt=int(environ.get(environment.ATTEMPT, "0")),
        epoch=int(environ.get(environment.EPOCH, "0")),
        rank=int(environ.get("RANK", local_rank)),
        local_rank=local_rank,
        world_size=int(environ.get("WORLD_SIZE", "1")),
        claimed_ns=time.monotonic_ns(),
        node=environ.get(environment.NODE, ""),
        job=environ.get(environment.JOB, ""),
    )
