"""What this node last knew of its job, on disk: how it stood, how far it came, where it saves.

For `status`, `report` and `checkpoint list` once the job and its own server are gone. Incidents:
`chronicle`.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.contract.own_directory import make_closed
from holdfast_sidecar.config.paths import JOB_RECORD, Paths, find
from holdfast_sidecar.performance.summary import in_brief, losses_of, summed
from holdfast_sidecar.policy.requeue import going_on
from holdfast_sidecar.records.codec import decode, encode
from holdfast_sidecar.records.findings import Kind
from holdfast_sidecar.records.plan import TERMINAL, Plan, Requeues
from holdfast_sidecar.records.reports import AgentReport, Losses, NodeReport, Performance
from holdfast_sidecar.store.protocol import CURRENT, Section


@dataclass(frozen=True)
class JobRecord:
    """A job as its newest plan and its ranks' reports told it."""

    state: str
    """The plan's; `waiting` while the leader can't open the next attempt yet."""
    attempt: int
    step: int
    """The furthest that a rank was seen at in the newest attempt that got anywhere."""
    exit_code: int
    message: str
    checkpoint_dir: str
    """Empty: none was set."""
    interrupted_by: str = ""
    """Signal for which a launcher of the attempt left; empty: none did."""
    began_unix_s: float = 0.0
    """When the run began, as its plan has it; 0: not known."""
    performance: Performance | None = None
    """How its steps went when somebody last said so, which may have been in the run before."""
    account: dict[str, str] = field(default_factory=dict)
    """Where the run's time went, as records.account has it."""
    losses_before: Losses = field(default_factory=Losses)
    """What runs before this one lost, as far as this node knows of them."""
    unrestorable: list[str] = field(default_factory=list)
    """What of its state no resume could give back, as its ranks found when they tried."""
    waits: str = ""
    """While `state` is `waiting`: for what."""
    requeues: Requeues = field(default_factory=Requeues)
    """As the run leaves them to the next one."""

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


_Read = tuple[Mapping[Section, Mapping[str, str]], Mapping[str, NodeReport] | None]


class RecordKeeping:
    """Keeps this node's record of the job up to date."""

    def __init__(
        self, places: Paths, checkpoint_dir: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._places = places
        self._clock = clock
        self._written_s = float("-inf")
        self._checkpoint_dir = checkpoint_dir
        self._seen: JobRecord | None = None
        self._written: JobRecord | None = None
        """The newest that was written, without its performance: that changes with its steps."""
        self._kept: JobRecord | None = None
        """What stands on disk; of an earlier run at first."""
        self._is_read = False
        self._working: _Read | None = None
        """What was read last while all ranks were at it. Of that their last steps are told: what
        was written then may be ten seconds old."""

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
        if not _ranks_leave(sections, nodes):
            self._working = (sections, nodes)
        now_s = self._clock()
        is_recent = now_s < self._written_s + STEPS_EVERY_S
        if is_recent and not is_last and _differ_in_step_only(self._written, record):
            return False
        self._write(self._with_performance(record))
        self._written, self._written_s = record, now_s
        return True

    def _with_performance(
        self,
        record: JobRecord,
    ) -> JobRecord:
        if not self._is_read:
            found = _read(self._places.job_record)
            self._kept, self._is_read = None if found is None else found[0], True
        performance = None if self._working is None else performance_in(*self._working)
        return following(self._kept, record, performance)

    def _write(self, record: JobRecord) -> None:
        path = self._places.job_record
        make_closed(path.parent)
        temporary = path.with_suffix(".new")
        temporary.write_text(encode(record))
        temporary.replace(path)
        self._kept = record


def performance_in(
    sections: Mapping[Section, Mapping[str, str]], nodes: Mapping[str, NodeReport] | None
) -> Performance | None:
    """How the steps go by what was read; None while nobody has judged them."""
    plan = decode(Plan, sections.get(Section.PLAN, {}).get(CURRENT, ""))
    if plan is None:
        return None
    seen = in_brief(plan, _reports(sections, nodes), "")
    return None if seen.standing is None else seen


def _ranks_leave(
    sections: Mapping[Section, Mapping[str, str]], nodes: Mapping[str, NodeReport] | None
) -> bool:
    """Whether one has begun to: steps without it tell of its leaving."""
    plan = decode(Plan, sections.get(Section.PLAN, {}).get(CURRENT, ""))
    return plan is not None and any(
        rank.ending or not rank.alive
        for report in _reports(sections, nodes)
        if report.attempt == plan.attempt
        for rank in report.ranks
    )


def _reports(
    sections: Mapping[Section, Mapping[str, str]], nodes: Mapping[str, NodeReport] | None
) -> list[NodeReport]:
    texts = sections.get(Section.NODES, {}).values() if nodes is None else ()
    decoded = (decode(NodeReport, text) for text in texts)
    return [*(nodes or {}).values(), *(one for one in decoded if one is not None)]


def following(
    before: JobRecord | None, record: JobRecord, performance: Performance | None
) -> JobRecord:
    """The record with how its steps went: as was last known, while this run tells nothing yet; and
    with what runs before it lost."""
    if before is None:
        return dataclasses.replace(record, performance=performance)
    return dataclasses.replace(
        record,
        performance=performance or before.performance,
        losses_before=losses_before(before, record.began_unix_s),
    )


def losses_before(kept: JobRecord, began_unix_s: float) -> Losses:
    """What runs lost before the one that began then, by what was kept last."""
    performance = kept.performance
    is_same_run = kept.began_unix_s == began_unix_s
    if is_same_run or performance is None or performance.began_unix_s != kept.began_unix_s:
        return kept.losses_before
    return summed(kept.losses_before, losses_of(performance))


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
    reports = [one for one in (*(nodes or {}).values(), *decoded) if one is not None]
    steps = [rank.step for one in reports if one.attempt == plan.attempt for rank in one.ranks]
    step = max(steps, default=0)
    agents = sections.get(Section.AGENTS, {})
    leavers = (decode(AgentReport, agents.get(member.node, "")) for member in plan.members)
    waits = next((one.waiting for one in reports if one.waiting and plan.state == "ended"), "")
    return JobRecord(
        state="waiting" if waits else plan.state,
        attempt=plan.attempt,
        step=step if step or before is None else before.step,
        exit_code=plan.exit_code,
        message=plan.said,
        checkpoint_dir=checkpoint_dir,
        interrupted_by=next((one.left_for for one in leavers if one and one.left_for), ""),
        began_unix_s=plan.began_unix_s,
        account=_account(sections, before),
        waits=waits,
        requeues=_requeues(reports, plan, before),
        unrestorable=_unrestorable(reports, plan, before),
    )


def _requeues(reports: list[NodeReport], plan: Plan, before: JobRecord | None) -> Requeues:
    """With what its plan does not say before its end, which may be that all of it is killed."""
    left = going_on(plan)
    if not left.launch:
        return left
    ranks = [rank for one in reports if one.attempt == plan.attempt for rank in one.ranks]
    stepped = left.has_stepped or any(rank.step > rank.resumed_step for rank in ranks)
    if before is not None and before.began_unix_s == plan.began_unix_s:
        stepped = stepped or before.requeues.has_stepped
    return dataclasses.replace(left, has_stepped=stepped)


def _unrestorable(reports: list[NodeReport], plan: Plan, before: JobRecord | None) -> list[str]:
    """As it was told last: ranks try it once, in the first attempt, and their findings go with
    them."""
    told = {
        reason: None
        for report in reports
        if report.attempt == plan.attempt
        for finding in report.findings
        if finding.kind is Kind.NOT_RESTORABLE
        for reason in finding.evidence
    }
    is_same_run = before is not None and before.began_unix_s == plan.began_unix_s
    return list(told) if told or before is None or not is_same_run else before.unrestorable


def _account(
    sections: Mapping[Section, Mapping[str, str]], before: JobRecord | None
) -> dict[str, str]:
    """As it was, where the store was emptied a moment ago."""
    told = dict(sections.get(Section.ACCOUNT, {}))
    return told if told or before is None else before.account


def _differ_in_step_only(before: JobRecord | None, now: JobRecord) -> bool:
    if before is None:
        return False
    return dataclasses.replace(before, step=now.step, account=now.account) == now


def read_record(state: Path) -> tuple[JobRecord, float] | None:
    """What the nodes of this machine last knew of the job with this state directory, and when
    that was written (wall clock); None: nothing."""
    known = [found for path in find(state, f"*/{JOB_RECORD}") if (found := _read(path)) is not None]
    return max(known, key=lambda one: (one[0].attempt, one[1]), default=None)


def read_requeues(state: Path) -> Requeues:
    """How often the job with this state directory was ended to be started again, as the nodes of
    this machine wrote last; where the directory is on a file server, as all nodes did."""
    known = [found for path in find(state, f"*/{JOB_RECORD}") if (found := _read(path)) is not None]
    newest = max(known, key=lambda one: one[1], default=None)
    return Requeues() if newest is None else newest[0].requeues


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
