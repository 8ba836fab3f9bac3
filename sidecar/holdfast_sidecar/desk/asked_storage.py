"""The checkpoint storage as the leader asks it: through the desk, so that its lease never waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from holdfast_sidecar.checkpoints.directory import checkpoint_url
from holdfast_sidecar.checkpoints.ledger import NothingResumable
from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.desk.questions import (
    GiveVerdict,
    NoteFailedLoad,
    Question,
    Seal,
    Settle,
    Tidy,
    WhatIsThere,
    WhatToResume,
)
from holdfast_sidecar.desk.storage_desk import Desk
from holdfast_sidecar.records.checkpoint import CheckpointOrder, LedgerEntry, SavedPart
from holdfast_sidecar.records.plan import Candidate, Plan

A = TypeVar("A")


class Unanswered(Exception):
    """Storage has not answered yet: to be asked again at the next exchange."""


@dataclass(frozen=True)
class AskedStorage:
    """Storage behind a desk. Every method may raise Unanswered, and OSError."""

    settings: CheckpointSettings
    desk: Desk

    def path(self, step: int, identifier: str) -> str:
        """Where a checkpoint shall lie; empty when no directory is configured."""
        return checkpoint_url(self.settings, step, identifier)

    def candidates(self, occasion: str) -> list[Candidate]:
        """Checkpoints to try, best first; raises NothingResumable when none of them is of use."""
        if not self.settings.dir:
            return []
        listed = self._ask(WhatToResume(occasion))
        if listed.obstacle:
            raise NothingResumable(listed.obstacle)
        return listed.candidates

    def entries(self, occasion: str) -> list[LedgerEntry]:
        """Every checkpoint that exists."""
        return self._ask(WhatIsThere(occasion)).entries if self.settings.dir else []

    def finish(self, order: CheckpointOrder, plan: Plan, parts: Sequence[SavedPart]) -> LedgerEntry:
        """Write the manifest: from then on the checkpoint exists."""
        entry = self._ask(Seal(order, plan, list(parts))).entry
        if entry is None:
            raise OSError("it was not sealed")
        return entry

    def settle(self, order: CheckpointOrder) -> LedgerEntry | None:
        """Its entry when it was sealed; None: it never will be."""
        return self._ask(Settle(order)).entry if self.settings.dir else None

    def tidy(self, entry: LedgerEntry, plan: Plan) -> None:
        """Remove what this checkpoint has made superfluous."""
        self._ask(Tidy(entry, plan))

    def failed_to_load(self, identifier: str, attempt: int) -> LedgerEntry | None:
        """Note that ranks could not load it; the entry when that has made it poisoned."""
        return self._ask(NoteFailedLoad(identifier, attempt)).entry

    def give_verdict(self, identifier: str, verdict: str, reason: str) -> LedgerEntry | None:
        """Note what became of a checkpoint; its entry, or None when it is gone."""
        return self._ask(GiveVerdict(identifier, verdict, reason)).entry

    def prepare(self) -> None:
        """It will soon be asked: whoever answers may get up already."""
        if self.settings.dir:
            self.desk.prepare()

    def _ask(self, question: Question[A]) -> A:
        answer = self.desk.ask(question)
        if answer is None:
            raise Unanswered
        return answer
