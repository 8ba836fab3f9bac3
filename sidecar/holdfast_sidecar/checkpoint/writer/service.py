"""Answers questions about one job's checkpoint storage; whoever asks, asks through a desk."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.contract.storage import open_folder
from holdfast_sidecar.checkpoint.directory import CheckpointDirectory
from holdfast_sidecar.checkpoint.ledger import NothingResumable
from holdfast_sidecar.checkpoint.manifest import hash_listed, list_files
from holdfast_sidecar.checkpoint.writer.queue import Tell
from holdfast_sidecar.checkpoint.writer.requests import (
    Done,
    Entered,
    GiveVerdict,
    HashFiles,
    Ledger,
    Listed,
    NoteFailedLoad,
    Question,
    Seal,
    Settle,
    Tidy,
    WhatIsThere,
    WhatToResume,
    WriteParts,
    WrittenPart,
)
from holdfast_sidecar.checkpoint.writer.sealed_slot import open_slots
from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.records.checkpoint import LedgerEntry, SavedPart

log = logging.getLogger(__name__)

Answer = Callable[[Any, Tell], object]


@dataclass(frozen=True)
class Answering:
    """Knows where the checkpoints lie."""

    job: str
    settings: CheckpointSettings
    looked: set[str] = field(default_factory=set)
    """Where it was looked once for folders of others."""

    def answer(self, question: Question[Any], tell: Tell) -> object:
        """The answer. Raises OSError."""
        return self._answers[type(question)](question, tell)

    @property
    def _answers(self) -> dict[type[Question[Any]], Answer]:
        storage = CheckpointDirectory(self.job, self.settings)
        return {
            WhatToResume: lambda _, __: self._list(storage),
            WhatIsThere: lambda _, __: Ledger(storage.entries()),
            Seal: lambda asked, tell: Entered(_seal(storage, asked, tell)),
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

    def _list(self, storage: CheckpointDirectory) -> Listed:
        if self.settings.dir not in self.looked:
            self.looked.add(self.settings.dir)
            _name_others(storage)
        try:
            return Listed(storage.candidates())
        except NothingResumable as obstacle:
            return Listed(obstacle=str(obstacle))


def _name_others(storage: CheckpointDirectory) -> None:
    """For a word in time: that one may not look must not keep a job from resuming."""
    try:
        for line in storage.left_alone_behind_url():
            log.warning("%s", line)
    except OSError as error:
        log.info("it can't be told what else lies in %s: %s", storage.settings.dir, error)


def _tidy(storage: CheckpointDirectory, asked: Tidy) -> Done:
    storage.tidy(asked.entry, asked.plan)
    return Done()


def _seal(storage: CheckpointDirectory, asked: Seal, tell: Tell) -> LedgerEntry:
    """What was written from slots still needs the index that torch's ranks make together."""
    parts = list(asked.parts)
    if asked.order.mode == "snapshot":
        from holdfast_sidecar.checkpoint.writer.shards import write_index

        index = write_index(open_folder(asked.order.path), asked.plan.world_size)
        parts.append(SavedPart(asked.order.identifier, files=index))
    return storage.finish(asked.order, asked.plan, parts, tell)


def _write(asked: WriteParts, tell: Tell) -> WrittenPart:
    order = asked.order
    with open_slots(Path(asked.shm), asked.ranks, order.step, order.since) as slots:
        # Not before: torch takes seconds to load where all cores are busy, and a rank that is
        # started again in the meantime overwrites whatever slot nobody holds.
        from holdfast_sidecar.checkpoint.writer.shards import write_parts

        return write_parts(asked, slots, tell)


def _hash(asked: HashFiles, tell: Tell) -> WrittenPart:
    start_s = time.monotonic()
    folder = open_folder(asked.path)
    files = hash_listed(folder, list_files(folder, asked.ranks), tell)
    return WrittenPart(files, time.monotonic() - start_s)
