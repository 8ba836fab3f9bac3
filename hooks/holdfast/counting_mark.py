"""A file that stands while a step is counted. Whoever ends then may have ended by it.

No way of counting is known that fails a step. Should there be one after all, it costs a restart and
not the job: where an attempt of this node has left such a file, later ones count none.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from holdfast import environment

log = logging.getLogger(__name__)

_NAME = "counting-"


class CountingMark:
    """This rank's mark, among the evidence of its attempt; without such a place there is none."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._path: Path | None = None

    def was_left(self) -> bool:
        """Whether a rank of an earlier attempt has left its mark."""
        folder = self._environ.get(environment.EVIDENCE_DIR)
        if not folder:
            return False
        own = Path(folder)
        with contextlib.suppress(OSError):
            return any(path.parent != own for path in own.parent.glob(f"attempt-*/{_NAME}*"))
        return False

    def put(self) -> None:
        """A step is counted from here."""
        folder = self._environ.get(environment.EVIDENCE_DIR)
        if folder:
            with contextlib.suppress(OSError):
                path = Path(folder, f"{_NAME}{os.getpid()}")
                path.touch(mode=0o600)
                self._path = path

    def remove(self) -> None:
        """It is no more."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
            self._path = None

    def forget(self) -> None:
        """It is another process's: a child's parent's."""
        self._path = None

    def end(self, has_failed: bool) -> None:
        """The interpreter ends. After a failure the mark stays, and the rank's log says so."""
        if not has_failed:
            self.remove()
        elif self._path is not None:
            log.warning(
                "holdfast: this rank ended in the step whose operations were counted. Later "
                "attempts on this node count none; HOLDFAST_FLOPS=0 switches it off for good"
            )
