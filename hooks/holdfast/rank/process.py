"""This process's recorder: the one place that holds it. A forked child is not the rank."""

from __future__ import annotations

import os
from collections.abc import Callable

from holdfast.recording.recorder import Recorder

_held: _Held | None = None
_watches_forks = False


class _Held:
    def __init__(self, recorder: Recorder, let_go: Callable[[], None]) -> None:
        self.recorder = recorder
        self.let_go = let_go


def current() -> Recorder | None:
    """The recorder of this rank; None without Holdfast, in helpers and in forked children."""
    return None if _held is None else _held.recorder


def hold(recorder: Recorder, let_go: Callable[[], None] = lambda: None) -> None:
    """Make this the process's recorder. A forked child calls `let_go` for its copy of the page."""
    global _held, _watches_forks
    _held = _Held(recorder, let_go)
    if not _watches_forks:
        os.register_at_fork(after_in_child=disown)
        _watches_forks = True


def disown() -> None:
    """Stop being the rank. Hooks that hold on to the recorder write into nothing from now on.

    The page's lock is shared with a forked child as long as the child keeps the descriptors, so it
    closes them: a DataLoader worker that outlives its rank must not pass for it.
    """
    global _held
    if _held is not None:
        held, _held = _held, None
        held.recorder.detach()
        held.let_go()
