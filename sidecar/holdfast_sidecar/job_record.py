"""What this node last knew of its job, on disk: how it stood, how far it came, where it saves.

For `status` and `checkpoint list` once the job and its own server are gone. Incidents: `chronicle`.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast_sidecar.coordination.keys import CURRENT, Section
from holdfast_sidecar.listing import find
from holdfast_sidecar.places import JOB_RECORD, Places
from holdfast_sidecar.records.agent import AgentReport
from holdfast_sidecar.records.codec import decode, encode
from holdfast_sidecar.records.node import NodeReport
from holdfast_sidecar.records.plan import TERMINAL, Plan


@dataclass(frozen=True)
class JobRecord:
    """A job as its newest plan and its ranks' reports told it."""

    state: str
    attempt: int
    step: int
    """The furthest that a rank was seen at in the newest attempt that got anywhere."""
    exit_code: int
    message: str
    checkpoint_dir: str
    """Empty: none was set."""
    interrupted_by: str = ""
    """Signal for which a launcher of the attempt left; empty: none did."""

    @property
    def was_interrupted(self) -> bool:
        """Whether a signal is why it did not end by itself; a leader may still have stopped it."""
        has_ended_well = self.state == "done" or (self.state == "stopped" and not self.exit_code)
        return bool(self.interrupted_by) and not has_ended_well

    @property
    def was_heard_to_end(self) -> bool:
        """Whether the record itself tells of the end, so that nobody need be asked."""
        return self.state in TERMINAL or self.was_interrupted

    @property
    def trouble(self) -> str:
        """Why the job did not end well; empty when it did."""
        if self.was_interrupted:
            by_whom = " (Ctrl-C)" if self.interrupted_by == "SIGINT" else ""
            return (
                f"attempt {self.attempt} was interrupted: its launcher received "
                f"{self.interrupted_by}{by_whom}"
            )
        if self.state not in TERMINAL:
            return f"attempt {self.attempt} broke off: its launchers left before it was over"
        if self.exit_code:
            return f"stopped with exit code {self.exit_code}: {self.message or 'no reason given'}"
        return ""

    @property
    def ending(self) -> str:
        """How the job ended, after its name."""
        if self.trouble:
            return f"is over: {self.trouble}"
        if self.state == "done":
            return "ended well"
        return f"was stopped: {self.message}" if self.message else "was stopped"


STEPS_EVERY_S = 10.0
"""Steps change all the time: who looks after everything was killed at once may read of one that is
so old."""


class RecordKeeping:
    """Keeps this node's record of the job up to date."""

    def __init__(
        self, places: Places, checkpoint_dir: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._places = places
        self._clock = clock
        self._written_s = float("-inf")
        self._checkpoint_dir = checkpoint_dir
        self._seen: JobRecord | None = None
        self._written: JobRecord | None = None

    def keep(
        self,
        sections: Mapping[Section, Mapping[str, str]],
        is_last: bool,
        nodes: Mapping[str, NodeReport] | None = None,
    ) -> bool:
        """Write what changed; answers whether anything did. nodes: as in Orders."""
        record = newest_record(sections, self._checkpoint_dir, self._seen, nodes)
        if record is None or record == self._written:
            return False
        self._seen = record
        now_s = self._clock()
        is_recent = now_s < self._written_s + STEPS_EVERY_S
        if is_recent and not is_last and _differ_in_step_only(self._written, record):
            return False
        path = self._places.job_record
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = path.with_suffix(".new")
        temporary.write_text(encode(record))
        temporary.replace(path)
        self._written, self._written_s = record, now_s
        return True


def newest_record(
    sections: Mapping[Section, Mapping[str, str]],
    checkpoint_dir: str,
    before: JobRecord | None,
    nodes: Mapping[str, NodeReport] | None = None,
) -> JobRecord | None:
    """The record that follows `before`; None as long as there is no plan."""
    plan = decode(Plan, sections.get(Section.PLAN, {}).get(CURRENT, ""))
    if plan is None:
        return None
    texts = sections.get(Section.NODES, {}).values() if nodes is None else ()
    decoded = (decode(NodeReport, text) for text in texts)
    steps = [
        rank.step
        for report in (*(nodes or {}).values(), *decoded)
        if report is not None and report.attempt == plan.attempt
        for rank in report.ranks
    ]
    step = max(steps, default=0)
    agents = sections.get(Section.AGENTS, {})
    leavers = (decode(AgentReport, agents.get(member.node, "")) for member in plan.members)
    return JobRecord(
        state=plan.state,
        attempt=plan.attempt,
        step=step if step or before is None else before.step,
        exit_code=plan.exit_code,
        message=plan.message,
        checkpoint_dir=checkpoint_dir,
        interrupted_by=next((one.left_for for one in leavers if one and one.left_for), ""),
    )


def _differ_in_step_only(before: JobRecord | None, now: JobRecord) -> bool:
    return before is not None and dataclasses.replace(before, step=now.step) == now


def read_record(state: Path) -> tuple[JobRecord, float] | None:
    """What the nodes of this machine last knew of the job with this state directory, and when
    that was written (wall clock); None: nothing."""
    known = [found for path in find(state, f"*/{JOB_RECORD}") if (found := _read(path)) is not None]
    return max(known, key=lambda one: (one[0].attempt, one[1]), default=None)


def newest_ended(root: Path) -> Path | None:
    """State directory of the job that was heard of last, below the root of all jobs."""
    heard = {found[1]: state for state in find(root, "*/") if (found := read_record(state))}
    return heard[max(heard)] if heard else None


def _read(path: Path) -> tuple[JobRecord, float] | None:
    try:
        record = decode(JobRecord, path.read_text())
        return None if record is None else (record, path.stat().st_mtime)
    except (OSError, UnicodeDecodeError):
        return None
