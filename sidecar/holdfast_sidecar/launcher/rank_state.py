"""How an attempt is going on this node: which ranks have ended, in which order, and why."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from holdfast.contract import page
from holdfast_sidecar.config.redaction import Redaction
from holdfast_sidecar.policy.blame import describe, find_culprit
from holdfast_sidecar.policy.budget import ENDED_BY_US, EXIT_REQUEUE
from holdfast_sidecar.ranks.observation import find_onset
from holdfast_sidecar.records.formatting import how_it_ended
from holdfast_sidecar.records.plan import Member, Plan
from holdfast_sidecar.records.reports import OUTPUT_UNREAD, Exit

# How the ranks of this node ended, in the order in which they did.
#
# A rank's exit status is looked at without reaping it: as long as it stays a zombie, neither its
# pid nor its process group can be taken by anyone else, so that the group may still be signalled.


@dataclass(frozen=True)
class RankEnd:
    """One ended rank. A negative exit code is the signal that ended it."""

    local_rank: int
    pid: int
    exit_code: int
    at_unix_s: float
    step: int = 0
    """Steps completed, from its page."""
    onset_step: int = -1
    """Since which step its losses were not finite; -1: the newest one was."""
    is_gloo_alone: bool = False
    """As for an Exit."""
    stepped_unix_s: float = 0.0
    """When its last step ended, or it began; 0: it left no page."""


def read_exit_code(pid: int) -> int | None:
    """Exit code of a child that has ended, without reaping it; None while it lives.

    A child that somebody else reaped has an unknown end, which counts as a failure.
    """
    try:
        status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return 1
    if status is None:
        return None
    return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status


def in_order(ends: Iterable[RankEnd], said_at: Mapping[int, float]) -> list[RankEnd]:
    """Ends that were noticed in one look, the likeliest cause first.

    Who was ended by a signal had no say; whose exception came first, by its error file, is next:
    the others' are mostly that of having lost a peer.
    """
    return sorted(
        ends,
        key=lambda end: (end.exit_code >= 0, said_at.get(end.local_rank, end.at_unix_s)),
    )


def forgive(exit_code: int, said_finished: bool) -> int:
    """0 for the abort of a rank that had said it was finished.

    torch aborts at interpreter exit when a process group was destroyed under a living DDP object.
    """
    return 0 if exit_code == -signal.SIGABRT and said_finished else exit_code


def own_ends(
    ends: Iterable[RankEnd], dying: Container[int], finished: Container[int]
) -> list[RankEnd]:
    """Of the ends that came while ranks were ended, those that were not for that.

    dying, finished: local ranks that died, or had said that they ended well, before they were told
    to end. Whoever has said so may take a while to be gone, and its peers lose it meanwhile; the
    signal that ended it then was its launcher's.
    """
    return [
        end if end.local_rank in dying else replace(end, exit_code=max(end.exit_code, 0))
        for end in ends
        if end.local_rank in dying or end.local_rank in finished
    ]


LONGEST_MESSAGE = 200
"""Characters of an exception on the console; torch prints all of it in the end."""


@dataclass
class Course:
    """One attempt. `ranks` maps local to global ranks; the other fields fill as ranks end."""

    attempt: int
    ranks: Mapping[int, int] = field(default_factory=dict)
    ends: list[RankEnd] = field(default_factory=list)
    failures: dict[int, ProcessFailure] = field(default_factory=dict)
    """Global rank -> torch's record of its failure, in order."""
    redaction: Redaction = field(default_factory=Redaction)
    """Applied to what exceptions say, which is told and kept everywhere from here on."""
    unread: set[int] = field(default_factory=set)
    """Local ranks that nobody listened to any more when they ended."""

    @property
    def ended(self) -> set[int]:
        """Local ranks that have ended."""
        return {end.local_rank for end in self.ends}

    @property
    def is_over(self) -> bool:
        """Whether all ranks ended, however."""
        return len(self.ends) == len(self.ranks)

    @property
    def has_failed(self) -> bool:
        """Whether a rank ended badly."""
        return any(end.exit_code != 0 for end in self.ends)

    @property
    def has_succeeded(self) -> bool:
        """Whether all ranks ended, and well."""
        return self.is_over and not self.has_failed

    def take(
        self,
        ended: Sequence[RankEnd],
        error_files: Mapping[int, str],
        unread: Collection[int] = (),
    ) -> None:
        """Take in what was noticed in one look. `unread`: see LocalRanks.read_unread."""
        failures = {
            end.local_rank: ProcessFailure(
                local_rank=end.local_rank,
                pid=end.pid,
                exitcode=end.exit_code,
                error_file=error_files[end.local_rank],
            )
            for end in ended
            if end.exit_code != 0
        }
        self.unread |= {end.local_rank for end in ended} & set(unread)
        said_at = {local_rank: float(f.timestamp) for local_rank, f in failures.items()}
        for end in in_order(ended, said_at):
            self.ends.append(end)
            if end.local_rank in failures:
                self.failures[self.ranks[end.local_rank]] = failures[end.local_rank]

    def failures_behind(self, plan: Plan) -> Mapping[int, ProcessFailure]:
        """Those that this plan stops the job for: none where somebody asked for the end, nor of an
        attempt that the job had got over."""
        was_asked_for = plan.exit_code in (0, EXIT_REQUEUE)
        could_not_open = not plan.members  # the attempt it speaks of: the one before was the last
        is_last = plan.attempt == self.attempt + int(could_not_open)
        return self.failures if is_last and not was_asked_for else {}

    def exits(self) -> list[Exit]:
        """The ends, as the agent reports them."""
        return [
            Exit(
                rank=self.ranks[end.local_rank],
                local_rank=end.local_rank,
                pid=end.pid,
                exit_code=end.exit_code,
                at_unix_s=end.at_unix_s,
                order=order,
                step=end.step,
                onset_step=end.onset_step,
                is_gloo_alone=end.is_gloo_alone,
                stepped_unix_s=end.stepped_unix_s,
                message=self._message(end),
            )
            for order, end in enumerate(self.ends)
        ]

    def first_failure(self, plan: Plan | None = None) -> str:
        """The first bad end, for people. The others are mostly that of having lost a peer, and so
        is the first one where a rank had left."""
        exits = self.exits()
        first = next(end for end in exits if end.exit_code != 0)
        said = f": {shortened(first.message)}" if first.message else ""
        whose = by_whom(first, self.attempt, plan)
        line = f"rank {first.rank} {how_it_ended(first.exit_code)}{said}{whose}"
        blame = find_culprit(("", end) for end in exits)
        if blame is None or blame.exit.exit_code != 0:
            return line
        return f"rank {blame.rank} {describe(blame.exit)}; {line}"

    def _message(self, end: RankEnd) -> str:
        """Type and text of the exception behind an end, in one line; empty for a signal."""
        failure = self.failures.get(self.ranks[end.local_rank])
        said = {} if failure is None or isinstance(failure.message, str) else failure.message
        text = " ".join(str(said.get("message", "")).split())
        is_of_pipe = text.startswith("BrokenPipeError") or end.exit_code == -signal.SIGPIPE
        if is_of_pipe and end.local_rank in self.unread:
            return OUTPUT_UNREAD
        return self.redaction.text(text)


def by_whom(exit_: Exit, attempt: int, plan: Plan | None) -> str:
    """Says where Holdfast sent the signal that ended a rank. `plan`: the newest that was heard of;
    that it was not Holdfast is for the incident to say, since this may be late."""
    if exit_.exit_code != -signal.SIGKILL or plan is None or plan.attempt != attempt:
        return ""
    is_culprit = plan.cause in ENDED_BY_US and exit_.rank in plan.culprit_ranks
    return f", by Holdfast, for the {plan.cause} of incident {plan.incident}" * is_culprit


def shortened(message: str) -> str:
    """What fits a line: some libraries put whole tensors into their messages."""
    return message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}…"


# What the launcher wants to know from its ranks' pages; the sidecar reads the rest.


def read_words(path: Path) -> tuple[int, ...] | None:
    """The words of a page; None when there is no whole page."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    if len(content) < page.PAGE_SIZE or page.parse_identity_zone(content) is None:
        return None
    return page.parse_words(content)


def said_finished(words: tuple[int, ...] | None) -> bool:
    """Whether the rank said that it ended well."""
    return words is not None and words[page.Word.ENDING] == page.Ending.FINISHED


def read_onset(path: Path) -> int:
    """Since which step the rank's losses were not finite; -1: they were, or there is no page."""
    try:
        content = path.read_bytes()
    except OSError:
        return -1
    if len(content) < page.PAGE_SIZE or page.parse_identity_zone(content) is None:
        return -1
    records = [record for _, record in page.parse_records(content, after=0)]
    return find_onset(page.parse_words(content), records)


def read_step(words: tuple[int, ...] | None) -> int:
    """Steps that the rank completed; 0 without a page."""
    return 0 if words is None else words[page.Word.STEP]


def read_step_end_s(words: tuple[int, ...] | None) -> float | None:
    """When its last step ended, or it began, CLOCK_MONOTONIC; None without a page."""
    return None if words is None else words[page.Word.BOUNDARY_NS] / 1e9


def read_completed_steps(shm: Path, attempt: int, member: Member) -> dict[str, int]:
    """rank -> steps that it had completed, of this place's ranks that left a page."""
    words = {
        member.first_rank + local_rank: read_words(shm / page.page_name(attempt, local_rank))
        for local_rank in range(member.slots)
    }
    return {str(rank): read_step(left) for rank, left in words.items() if left is not None}


def has_stepped(words: tuple[int, ...]) -> bool:
    """Whether the rank has completed a step in this attempt."""
    return words[page.Word.PUBLISHED] > 0 or words[page.Word.OPTIMIZER_CALLS] > 0


def has_flag(words: tuple[int, ...], flag: page.Flag) -> bool:
    """Whether the rank has set this flag."""
    return bool(words[page.Word.FLAGS] & flag)
