"""Answers questions about one job's checkpoint storage; whoever asks, asks through a desk."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.storage import open_folder
from holdfast_sidecar.checkpoints.directory import CheckpointDirectory
from holdfast_sidecar.checkpoints.hashing import hash_files, list_files
from holdfast_sidecar.checkpoints.ledger import NothingResumable
from holdfast_sidecar.desk.questions import (
    Done,
    Entered,
    GiveVerdict,
    HashFiles,
    Ledger,
    Listed,
    NoteFailedLoad,
    Part,
    Question,
    Seal,
    Settle,
    Tidy,
    WhatIsThere,
    WhatToResume,
    WriteParts,
)
from holdfast_sidecar.records.checkpoint import LedgerEntry, SavedPart
from holdfast_sidecar.settings import CheckpointSettings
from holdfast_sidecar.writer.lane import Tell

Answer = Callable[[Any, Tell], object]


@dataclass(frozen=True)
class Answering:
    """Knows where the checkpoints lie."""

    job: str
    settings: CheckpointSettings

    def answer(self, question: Question[Any], tell: Tell) -> object:
        """The answer. Raises OSError."""
        return self._answers[type(question)](question, tell)

    @property
    def _answers(self) -> dict[type[Question[Any]], Answer]:
        storage = CheckpointDirectory(self.job, self.settings)
        return {
            WhatToResume: lambda _, __: _list(storage),
            WhatIsThere: lambda _, __: Ledger(storage.entries()),
            Seal: lambda asked, _: Entered(_seal(storage, asked)),
            Settle: lambda asked, _: Entered(storage.settle(asked.order)),
            Tidy: lambda asked, _: _tidy(storage, asked),
            NoteFailedLoad: lambda asked, _: Entered(
                storage.failed_to_load(asked.identifier, asked.attempt)
            ),
            GiveVerdict: lambda asked, _: Entered(
                storage.give_verdict(asked.identifier, asked.verdict, asked.reason)
            ),
            HashFiles: lambda asked, tell: _hash(asked, tell),
            WriteParts: lambda asked, tell: _write(asked, tell),
        }


def _list(storage: CheckpointDirectory) -> Listed:
    try:
        return Listed(storage.candidates())
    except NothingResumable as obstacle:
        return Listed(obstacle=str(obstacle))


def _tidy(storage: CheckpointDirectory, asked: Tidy) -> Done:
    storage.tidy(asked.entry, asked.plan)
    return Done()


def _seal(storage: CheckpointDirectory, asked: Seal) -> LedgerEntry:
    """What was written from slots still needs the index that torch's ranks make together."""
    parts = list(asked.parts)
    if asked.order.mode == "snapshot":
        from holdfast_sidecar.writer.index import write_index

        index = write_index(open_folder(asked.order.path), asked.plan.world_size)
        parts.append(SavedPart(asked.order.identifier, files=index))
    return storage.finish(asked.order, asked.plan, parts)


def _write(asked: WriteParts, tell: Tell) -> Part:
    from holdfast_sidecar.writer.part import write_parts

    return write_parts(asked, tell)


def _hash(asked: HashFiles, tell: Tell) -> Part:
    start_s = time.monotonic()
    folder = open_folder(asked.path)
    names = list_files(folder, asked.ranks)
    total = sum(folder.size(name) for name in names)
    done = 0

    def advance(size: int) -> None:
        nonlocal done
        done += size
        tell(done, total)

    return Part(hash_files(folder, names, advance), time.monotonic() - start_s)
