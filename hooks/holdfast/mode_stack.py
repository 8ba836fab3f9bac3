"""One dispatch mode on torch's stack of them, put there and taken off without a `with`: at ends of
steps, which lie wherever the script has them.

By torch's own functions for its stack, which are not public. A mode's `__enter__` would also set
flags that only a `__exit__` in the reverse order sets back, and keep compiled code from running.
"""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

_COMPILED = "torch/_dynamo/eval_frame.py"
"""Through this file of torch's goes every call of something compiled."""

_NEEDED = (
    "_current_graph_task_id",
    "_len_torch_dispatch_stack",
    "_pop_torch_dispatch_stack",
    "_push_on_torch_dispatch_stack",
)


class ModeStack:
    """Torch's stack as seen by one who puts a single mode there."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._stack = torch._C
        self._held: Any = None
        self._thread = 0

    @property
    def is_usable(self) -> bool:
        """Whether this torch has all that it takes. An older one refuses whatever is dispatched as
        a whole (flex attention, say) as soon as a mode is there that does not know it."""
        from torch.utils._python_dispatch import TorchDispatchMode

        knows_all = hasattr(TorchDispatchMode, "supports_higher_order_operators")
        return knows_all and all(hasattr(self._stack, name) for name in _NEEDED)

    def put(self, mode: Any) -> bool:
        """Put it there; False when this is no place to. A mode of somebody else's that is there
        already may be closed before ours."""
        if self._stack._len_torch_dispatch_stack() or not self._may_change():
            return False
        self._held, self._thread = mode, threading.get_ident()
        self._stack._push_on_torch_dispatch_stack(mode)
        return True

    def take_off(self) -> bool:
        """Take it off, from below what was put there since; whether it is off. Somebody who has
        taken all modes off for a while, as torch does, puts it back: then it is still to be done.
        """
        if self._held is None:
            return True
        if self._thread != threading.get_ident() or not self._may_change():
            return False
        stack = self._stack
        above: list[Any] = []
        while self._held is not None and stack._len_torch_dispatch_stack():
            mode = stack._pop_torch_dispatch_stack(None)
            if mode is self._held:
                self._held = None
            else:
                above.append(mode)
        for mode in reversed(above):
            stack._push_on_torch_dispatch_stack(mode)
        return self._held is None

    def _may_change(self) -> bool:
        """Whether what is changed here stays changed. A backward pass and what torch.compile runs
        put a part of this thread's state back when they return, and the rest would not fit it."""
        cuda = self._torch.cuda
        if cuda.is_initialized() and cuda.is_current_stream_capturing():
            return False
        if self._stack._current_graph_task_id() != -1:
            return False
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename.endswith(_COMPILED):
                return False
            frame = frame.f_back
        return True
