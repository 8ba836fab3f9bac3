"""The code this process wants to end with. An exit handler can't see it, so `sys.exit` tells.

`raise SystemExit(n)` passes unseen; whoever has the real exit code must trust that more.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_asked: object = None


def watch() -> None:
    """Listen to `sys.exit` from now on."""
    leave = sys.exit

    def exit(status: object = None, /) -> NoReturn:  # noqa: A001 - it stands in for sys.exit
        global _asked
        _asked = status
        leave(status)  # type: ignore[arg-type]

    exit.__doc__ = leave.__doc__
    exit.__module__ = "sys"
    exit.__qualname__ = "exit"
    sys.exit = exit


def is_clean() -> bool:
    """Whether the exit that was asked for last, if any, means success."""
    return _asked is None or _asked == 0
