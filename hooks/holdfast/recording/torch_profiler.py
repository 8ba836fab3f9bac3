"""torch's profiler as a trace on request needs it, without ever standing in the script's own way.

Only one profiler can record in a process: where the script has one, none is begun, and where it
begins one meanwhile, ours gives way first (else torch would silently end ours with it, and either
could lose what it recorded).
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import os
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.contract.owned import owned_file
from holdfast.contract.removing import unlink
from holdfast.guard import Guard

BEGINNINGS = ("__enter__", "_prepare_trace", "_start_trace")
"""Methods of torch.autograd.profiler.profile in one of which every profiler of a script begins."""

COMPRESSION = 1
"""A trace is text of a few words: the quickest level makes a tenth of it, the best a twelfth at
six times the work, on cores that the ranks need."""

SCRIPTS_OWN = "the script's own profiler is active"


class KnownProfilers:
    """The profilers that were made in this process since it was, and are still there.

    To look for them among all objects when a trace is asked for would take a tenth of a second.
    """

    def __init__(self, kind: Any, guard: Guard) -> None:
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()
        note = guard.wrap("profiler is made", self._known.add, None)
        make = kind.__init__

        @functools.wraps(make)
        def __init__(profiler: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it is one
            make(profiler, *args, **kwargs)
            note(profiler)

        kind.__init__ = __init__

    def forget(self, profiler: Any) -> None:
        """It is none of the script's."""
        self._known.discard(profiler)

    def is_any_under_way(self) -> bool:
        """Whether one is prepared, as a schedule's warm-up does, or records."""
        return any(one.entered and one.kineto_results is None for one in list(self._known))


class TorchProfiler:
    """One trace of this thread, and of what autograd and the devices do for it."""

    def __init__(self, torch: Any, guard: Guard, others: KnownProfilers) -> None:
        self.taken_by = ""
        self._torch = torch
        self._others = others
        self._guard = guard
        self._profile: Any = None
        self._is_recording = False
        self._step: Any = None
        self._lets_go: Callable[[], None] = lambda: None

    def obstacle(self) -> str:
        """Why no trace may begin now; empty: it may."""
        if not self._torch.profiler.kineto_available():
            return "this torch was built without Kineto, which makes traces"
        if self._torch.autograd._profiler_enabled() or self._others.is_any_under_way():
            return SCRIPTS_OWN
        return ""

    def warm_up(self) -> None:
        """Load and prepare Kineto (and CUPTI)."""
        activity, cuda = self._torch.profiler.ProfilerActivity, self._torch.cuda
        activities = [activity.CPU]
        if cuda.is_available() and cuda.is_initialized():
            activities.append(activity.CUDA)
        self._profile = self._torch.profiler.profile(activities=activities)
        self._profile.prepare_trace()
        self._others.forget(self._profile.profiler)
        kind = self._torch.autograd.profiler.profile
        give_way = self._guard.wrap("profiler gives way", self._give_way, None)
        self._lets_go = _watch(kind, self._profile.profiler, give_way)

    def begin(self) -> None:
        """Record from now on."""
        if self._torch.autograd._profiler_enabled():
            self.taken_by = SCRIPTS_OWN
            raise RuntimeError(SCRIPTS_OWN)
        self._profile.start_trace()
        self._is_recording = True

    def mark(self, step: int) -> None:
        """Name the step as torch's own schedule would, for tools that look for it."""
        self._end_mark()
        self._step = self._torch.autograd.profiler.record_function(f"ProfilerStep#{step}")
        self._step.__enter__()

    def end(self) -> None:
        """Record no longer."""
        self._lets_go()
        self._end_mark()
        self._is_recording = False
        self._profile.stop_trace()

    def write(self, path: Path) -> int:
        """Write the trace, packed; its size in bytes."""
        plain = path.with_name(f".{path.name}.plain")
        draft = path.with_name(f".{path.name}.part")
        try:
            self._profile.export_chrome_trace(str(plain))
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with (
                plain.open("rb") as source,
                os.fdopen(descriptor, "wb") as file,
                gzip.GzipFile("", "wb", COMPRESSION, file) as packed,
            ):
                shutil.copyfileobj(source, packed, 1 << 20)
            draft.replace(path)
        finally:
            unlink(owned_file(plain), missing_ok=True)
            unlink(owned_file(draft), missing_ok=True)
            self._profile = None
        return path.stat().st_size

    def drop(self) -> None:
        """Give up; nothing of it is left."""
        self._lets_go()
        if self._is_recording:
            self._is_recording = False
            with contextlib.suppress(RuntimeError):
                self._end_mark()
                self._profile.stop_trace()
        self._profile = self._step = None

    def _give_way(self) -> None:
        self.taken_by = "the script began a profiler of its own"
        self.drop()

    def _end_mark(self) -> None:
        mark, self._step = self._step, None
        if mark is not None:
            mark.__exit__(None, None, None)


def _watch(kind: Any, ours: Any, give_way: Callable[[], None]) -> Callable[[], None]:
    """Call `give_way` before any other profiler than ours begins; answers what ends that."""
    originals = {name: vars(kind)[name] for name in BEGINNINGS if name in vars(kind)}

    def begin_with(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def begin(profiler: Any, *args: Any, **kwargs: Any) -> Any:
            if profiler is not ours:
                give_way()
            return original(profiler, *args, **kwargs)

        return begin

    for name, original in originals.items():
        setattr(kind, name, begin_with(original))

    def let_go() -> None:
        while originals:
            setattr(kind, *originals.popitem())

    return let_go
