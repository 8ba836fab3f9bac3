"""A desk, a real writer process, slots and a checkpoint directory."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.unit.checkpoint.writer.sealed import JOB

from holdfast.contract.storage import open_folder
from holdfast_sidecar.checkpoint.directory import CheckpointDirectory
from holdfast_sidecar.checkpoint.writer.client import COMMAND, StorageClient, WriterProcess
from holdfast_sidecar.checkpoint.writer.requests import Question, Seal, WriteParts, WriterSetup
from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.records.checkpoint import CheckpointOrder, SavedPart
from holdfast_sidecar.records.plan import Member, Plan

TROUBLED = str(Path(__file__).with_name("troubled_writer.py"))
PATIENCE_S = 60.0


class Scene:
    """`trouble`: see troubled_writer; empty: an ordinary one."""

    def __init__(self, shm: Path | str, root: str, trouble: str = "", key_file: str = "") -> None:
        self.shm = Path(shm)
        self.settings = CheckpointSettings(dir=root, key_file=key_file)
        self.storage = CheckpointDirectory(JOB, self.settings)
        self.answered = threading.Event()
        self.desk = StorageClient(60.0, wake=self.answered.set)
        command = (sys.executable, TROUBLED, trouble) if trouble else COMMAND
        errand = WriterSetup(JOB, self.settings, os.getpid())
        self.process = WriterProcess(errand, self.desk.deliver, command)
        self.desk.messenger = self.process

    def order(self, step: int = 5, identifier: str = "aa") -> CheckpointOrder:
        path = self.storage.path(step, identifier)
        return CheckpointOrder(identifier, 0, 1, step, path, "writing", 1.0, mode="snapshot")

    def write(self, ranks: list[int], **order: Any) -> WriteParts:
        return WriteParts(self.order(**order), ranks, str(self.shm))

    def seal(self, *parts: Any, world_size: int = 1, **order: Any) -> Seal:
        plan = Plan(0, 1, "running", [Member("a", "1", 0, 0, world_size)], world_size)
        given = self.order(**order)
        return Seal(given, plan, [SavedPart(given.identifier, files=p.files) for p in parts])

    def answer(self, question: Question[Any]) -> Any:
        """Ask until there is an answer."""
        end_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < end_s:
            self.answered.clear()
            if (answer := self.desk.ask(question)) is not None:
                return answer
            self.answered.wait(0.5)
        raise AssertionError(f"no answer to {question}")

    def begin(self, question: Question[Any]) -> None:
        """Ask until bytes are moving."""
        end_s = time.monotonic() + PATIENCE_S
        while not self.desk.progress(question).done_bytes:
            assert self.desk.ask(question) is None, "it is over already"
            assert time.monotonic() < end_s
            time.sleep(0.02)

    def await_asked(self, count: int) -> None:
        """Wait until the writer was asked so many questions that it has not answered."""
        end_s = time.monotonic() + PATIENCE_S
        while (child := self.process._child) is None or len(child.unanswered) < count:
            assert time.monotonic() < end_s
            time.sleep(0.02)

    def files(self, **order: Any) -> list[str]:
        return open_folder(self.order(**order).path).names()

    def mend(self) -> None:
        """The next writer has no trouble."""
        self.process._command = COMMAND

    def close(self) -> None:
        self.process.give_up("the test is over")
