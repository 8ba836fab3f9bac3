"""How an attempt is going on this node: which ranks have ended, in which order, and why."""

from __future__ import annotations

import signal
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from holdfast_sidecar.config.redaction import Redaction
from holdfast_sidecar.launcher.rank_ends import RankEnd, in_order
from holdfast_sidecar.policy.blame import describe, find_culprit
from holdfast_sidecar.policy.budget import ENDED_BY_US, EXIT_REQUEUE
from holdfast_sidecar.records.formatting import how_it_ended
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.records.reports import OUTPUT_UNREAD, Exit

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
