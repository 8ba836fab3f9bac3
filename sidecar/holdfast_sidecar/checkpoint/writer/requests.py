"""What may be asked of checkpoint storage, what is answered, and how both travel as JSON lines.

Shared by the sidecar, which asks and never touches storage, and its writer, which answers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.records.checkpoint import CheckpointOrder, FileFact, LedgerEntry, SavedPart
from holdfast_sidecar.records.codec import decode, encode
from holdfast_sidecar.records.plan import Candidate, Plan

A = TypeVar("A")


@dataclass(frozen=True)
class Listed:
    """Checkpoints to try, best first; or why there are some and none of them is of use."""

    candidates: list[Candidate] = field(default_factory=list)
    obstacle: str = ""


@dataclass(frozen=True)
class Ledger:
    """Every checkpoint there is."""

    entries: list[LedgerEntry] = field(default_factory=list)


@dataclass(frozen=True)
class Entered:
    """What the ledger should say of one checkpoint; None: nothing new."""

    entry: LedgerEntry | None = None


@dataclass(frozen=True)
class Done:
    """It was done."""


@dataclass(frozen=True)
class WrittenPart:
    """The files of one node's part, and how long they took."""

    files: dict[str, FileFact] = field(default_factory=dict)
    seconds: float = 0.0


class Question(Generic[A]):
    """One question; equal questions are the same one."""

    answer: ClassVar[type[Any]]
    is_long: ClassVar[bool] = False
    """It moves a checkpoint's bytes, so it must be in nobody's way who has a quick question."""

    @property
    def may_wait(self) -> bool:
        """Nobody waits for it: training goes before."""
        return False


@dataclass(frozen=True)
class WhatToResume(Question[Listed]):
    """Which checkpoints to try. `occasion` sets this search apart from earlier ones."""

    answer: ClassVar[type[Any]] = Listed
    occasion: str


@dataclass(frozen=True)
class WhatIsThere(Question[Ledger]):
    """Every checkpoint on storage."""

    answer: ClassVar[type[Any]] = Ledger
    occasion: str


@dataclass(frozen=True)
class Seal(Question[Entered]):
    """Write the manifest of an order whose parts are all there."""

    answer: ClassVar[type[Any]] = Entered
    is_long: ClassVar[bool] = True
    order: CheckpointOrder
    plan: Plan
    parts: list[SavedPart]


@dataclass(frozen=True)
class Settle(Question[Entered]):
    """Find out what became of an order; what is not sealed by now never will be."""

    answer: ClassVar[type[Any]] = Entered
    order: CheckpointOrder


@dataclass(frozen=True)
class Tidy(Question[Done]):
    """Remove what this checkpoint made superfluous."""

    answer: ClassVar[type[Any]] = Done
    is_long: ClassVar[bool] = True
    entry: LedgerEntry
    plan: Plan

    @property
    def may_wait(self) -> bool:
        """See Question."""
        return True


@dataclass(frozen=True)
class NoteFailedLoad(Question[Entered]):
    """Write down that ranks could not load it."""

    answer: ClassVar[type[Any]] = Entered
    identifier: str
    attempt: int


@dataclass(frozen=True)
class GiveVerdict(Question[Entered]):
    """Write down that a checkpoint is `good` or `poisoned`, and why."""

    answer: ClassVar[type[Any]] = Entered
    identifier: str
    verdict: str
    reason: str


@dataclass(frozen=True)
class HashFiles(Question[WrittenPart]):
    """Hash what these ranks wrote by themselves."""

    answer: ClassVar[type[Any]] = WrittenPart
    is_long: ClassVar[bool] = True
    identifier: str
    path: str
    ranks: list[int]


@dataclass(frozen=True)
class WriteParts(Question[WrittenPart]):
    """Write the parts of these ranks from their sealed slots below `shm`."""

    answer: ClassVar[type[Any]] = WrittenPart
    is_long: ClassVar[bool] = True
    order: CheckpointOrder
    ranks: list[int]
    shm: str

    @property
    def may_wait(self) -> bool:
        """See Question. Not what somebody asked for, or what goes with its node."""
        return self.order.trigger == "periodic"


QUESTIONS: tuple[type[Question[Any]], ...] = (
    WhatToResume,
    WhatIsThere,
    Seal,
    Settle,
    Tidy,
    NoteFailedLoad,
    GiveVerdict,
    HashFiles,
    WriteParts,
)
_BY_NAME = {kind.__name__: kind for kind in QUESTIONS}


@dataclass(frozen=True)
class WriterSetup:
    """Who asks, and under which settings: the first line that a writer reads."""

    job: str
    settings: CheckpointSettings
    asker_pid: int


@dataclass(frozen=True)
class Reply:
    """A line of the writer's: progress (`answer` and `error` empty), an answer, or an error."""

    number: int
    answer: str = ""
    error: str = ""
    done_bytes: int = 0
    total_bytes: int = 0

    @property
    def is_last(self) -> bool:
        """Nothing more will be said about this question."""
        return bool(self.answer or self.error)


def spell_question(number: int, question: Question[Any]) -> str:
    """A question as one line."""
    return json.dumps([number, type(question).__name__, encode(question)])


def read_question(line: str) -> tuple[int, Question[Any]]:
    """The question in a line. Raises ValueError when it is none."""
    number, name, text = json.loads(line)
    question = decode(_BY_NAME[name], text) if name in _BY_NAME else None
    if question is None:
        raise ValueError(f"no question: {name}")
    return int(number), question


def spell_reply(reply: Reply) -> str:
    """A reply as one line."""
    return encode(reply)


def read_reply(line: str) -> Reply | None:
    """The reply in a line; None when it is none."""
    return decode(Reply, line)


def spell_answer(answer: object) -> str:
    """An answer's text, never empty."""
    return encode(answer)


def read_answer(question: Question[A], text: str) -> A | None:
    """The answer to this very question; None when it is none."""
    answer: A | None = decode(question.answer, text)
    return answer
