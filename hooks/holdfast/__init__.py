"""Holdfast inside the training process. Importing it imports nothing else of weight."""

from __future__ import annotations

__version__ = "0.1.0"
__all__ = ["attach", "busy"]

TYPE_CHECKING = False  # `typing` itself would cost every rank's interpreter start
if TYPE_CHECKING:
    from holdfast.job import attach
    from holdfast.recording.interface import busy


def __getattr__(name: str) -> object:
    if name == "attach":
        from holdfast.job import attach

        return attach
    if name == "busy":
        from holdfast.recording.interface import busy

        return busy
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
