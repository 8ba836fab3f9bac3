"""nvidia-ml-py with a note on the board before every call: one that hangs is known by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast_sidecar.nvml.board import Board

HANDLE_BY_INDEX = "nvmlDeviceGetHandleByIndex"

POINTER = "_nvmlGetFunctionPointer"
"""Gives out the library's own functions, which are called past the module."""


class Announcing:
    """Stands in for the module: the same names, and each call is noted first."""

    def __init__(self, nvml: Any, board: Board) -> None:
        self._nvml = nvml
        self._board = board
        self._gpus: dict[int, tuple[Any, str]] = {}
        """By the handle's id; the handle is kept, so that its id stays its own."""
        self._functions: dict[str, Callable[..., Any]] = {}
        """Of the library itself, by name."""

    def __getattr__(self, name: str) -> Any:
        """Asked once for each name; from then on it is found here."""
        found = getattr(self._nvml, name)
        if name == POINTER:
            setattr(self, name, self._function)
            return self._function
        if name.startswith("nvml") and callable(found) and not isinstance(found, type):
            found = self._noted(name, found)
        setattr(self, name, found)
        return found

    def _function(self, name: str) -> Callable[..., Any]:
        """One of the library's own, looked up once. Raises as the module does."""
        function = self._functions.get(name)
        if function is None:
            found = getattr(self._nvml, POINTER)(name)
            function = self._functions[name] = self._noted(name, found)
        return function

    def _noted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        about_to, gpus = self._board.about_to, self._gpus
        notes: dict[int, str] = {}

        def noted(*arguments: Any, **named: Any) -> Any:
            about = id(arguments[0]) if arguments else 0
            note = notes.get(about)
            if note is None:
                note = name
                if about in gpus:
                    note = notes[about] = f"{name} of {gpus[about][1]}"
            about_to(note)
            answer = call(*arguments, **named)
            if name == HANDLE_BY_INDEX:
                gpus[id(answer)] = (answer, f"GPU {arguments[0]}")
            return answer

        return noted
