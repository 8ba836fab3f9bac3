"""The desk's twin in memory: a function answers, when the test lets it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast_sidecar.checkpoint.writer.client import StorageProgress
from holdfast_sidecar.checkpoint.writer.requests import Question


class MemoryDesk:
    """Answers at once while `is_open`; else everything is pending."""

    def __init__(self, answer: Callable[[Question[Any]], Any]) -> None:
        self._answer = answer
        self.is_open = True
        self.asked: list[Question[Any]] = []
        self.abandoned: list[Question[Any]] = []
        self.so_far = StorageProgress()
        self.silent_s = 0.0
        self.is_prepared = False

    def ask(self, question: Question[Any]) -> Any:
        self.asked.append(question)
        return self._answer(question) if self.is_open else None

    def progress(self, question: Question[Any]) -> StorageProgress:
        return self.so_far

    def abandon(self, question: Question[Any], why: str) -> None:
        self.abandoned.append(question)

    def hangs_for(self) -> float:
        return self.silent_s

    def prepare(self) -> None:
        self.is_prepared = True
