"""A rank that waits for its next batch: is what loads it at work, or stopped, or dead?"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from holdfast.contract.page import END_SIGNAL, Flag, Word
from holdfast_sidecar.config.settings import NumbersSettings
from holdfast_sidecar.linux.syscalls import Where
from holdfast_sidecar.ranks.history import Descendant, Inspection
from holdfast_sidecar.ranks.observation import RankHistory, RankLook, Ranks
from holdfast_sidecar.records.checkpoint import SnapshotReport
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.findings import Finding, Kind, Moment
from holdfast_sidecar.records.formatting import how_it_ended
from holdfast_sidecar.records.reports import AgentReport, ProbeHealth

STOPPED_FOR_S = 0.45
"""Looks this far apart must all find a worker stopped, as for a rank."""

BY_ITSELF = {
    Where.CPU: "it computes itself",
    Where.STORAGE: "it waits for storage itself",
    Where.NETWORK: "it waits for the network itself",
}
"""Where a rank is that makes its batches itself."""

FED = frozenset({Where.QUEUE, Where.PROCESS, Where.LOCK})
"""Where a rank waits for what others make."""


class LoaderState(Enum):
    """What is known of what loads."""

    UNKNOWN = 0
    WORKING = 1
    STOPPED = 2
    DEAD = 3


@dataclass(frozen=True)
class Loader:
    """A judgement, and what it stands on."""

    state: LoaderState
    evidence: str = ""


def judge_loader(scrutiny: Inspection | None, process_state: str, patience_s: float) -> Loader:
    """Judge what loads the batches of a rank that is in its data phase.

    process_state: letter of the rank's own process (D: it waits for a disk).
    patience_s: as for `has_rested`.
    """
    if process_state == "D":
        return Loader(LoaderState.WORKING, "it waits for storage itself (state D)")
    if scrutiny is None:
        return Loader(LoaderState.UNKNOWN)
    # While anybody else is at work, the batch may come from there.
    has_rested = scrutiny.has_rested(patience_s)
    stopped = _stopped_worker(scrutiny) if has_rested and _is_fed(scrutiny) else None
    if stopped is not None:
        text = f"{_name(stopped)}, which loads for it, is stopped (state T)"
        return Loader(LoaderState.STOPPED, text)
    if working := _work(scrutiny):
        return Loader(LoaderState.WORKING, working)
    dead = _dead_worker(scrutiny) if has_rested else None
    if dead is not None:
        return Loader(LoaderState.DEAD, f"{_name(dead)}, which loads for it, {_ending(dead)}")
    return Loader(LoaderState.UNKNOWN)


def _stopped_worker(scrutiny: Inspection) -> Descendant | None:
    since_s = {
        pid: since
        for pid, since in scrutiny.stopped.items()
        if scrutiny.look.at_s - since >= STOPPED_FOR_S
    }
    return next((c for c in scrutiny.look.children if c.is_worker and c.pid in since_s), None)


def _dead_worker(scrutiny: Inspection) -> Descendant | None:
    """A worker that ended badly, while the rank waits for what others make."""
    if not _is_fed(scrutiny):
        return None
    return next((c for c in scrutiny.look.children if c.is_worker and c.has_died), None)


def _is_fed(scrutiny: Inspection) -> bool:
    """Whether the rank was found twice to wait for what others make."""
    looks = (scrutiny.before, scrutiny.look)
    return all(
        look is not None and look.main is not None and look.main.where in FED for look in looks
    )


def _work(scrutiny: Inspection) -> str:
    look = scrutiny.look
    if look.main is not None and look.main.where in BY_ITSELF:
        return BY_ITSELF[look.main.where]
    if look.at_work:
        return f"its {look.at_work}"
    child = scrutiny.busy_child()
    if child is not None:
        return f"{_name(child)} is at work"
    return "it reads" if scrutiny.moved_bytes else ""


def _name(child: Descendant) -> str:
    return f"process {child.pid} ({child.name})"


def _ending(child: Descendant) -> str:
    number = child.exit_status & 0x7F
    if number:
        return f"was ended by signal {number}"
    return f"exited with code {child.exit_status >> 8}"


# A rank whose process is gone, or ends and is only being cleared away, without having finished.

BY_ORDER = frozenset(
    {-signal.SIGTERM, -signal.SIGINT, -END_SIGNAL, 128 + signal.SIGTERM, 128 + signal.SIGINT}
)
"""How launchers, schedulers and people end ranks: whoever ordered it says what it means. Programs
that handle such a signal themselves leave by 128 and its number."""

INTERRUPTED = "KeyboardInterrupt"
"""The last words of one that was sent SIGINT, however it ended then."""

ORDER_HEARD_S = 5.0
"""...and this is how long the word of it may take: once a plan has ended the attempt nobody is
judged any more, but launchers may have obeyed it before this sidecar has read it, from a store that
was just away. Nothing waits for it: what such an end means its launcher reports at once."""

OOM_JUST_BEFORE_S = 2.0
"""The OOM killer counts before it kills; the count may have been read one look before the end."""

OOM_SHORTLY_BEFORE_S = 10.0
"""A rank whose worker was taken fails by itself when it next asks that worker for something."""


def find_crashes(ranks: Ranks, moment: Moment) -> Iterator[Finding]:
    """One finding per crashed rank of this node.

    Only ranks that were seen alive count: a page whose owner was gone at first sight may be left
    over from an earlier run, and a launcher reports the deaths of its own children anyway. Nor does
    one that ended with code 0: scripts do that by `os._exit`, past all that could say so.
    """
    for history in ranks.local.values():
        if history.gone_since_s is None or history.has_ended_well:
            continue
        is_young = moment.now_s - history.gone_since_s < ORDER_HEARD_S
        if is_young and _was_ordered(history):
            continue
        if history.was_seen_alive:
            yield _crash(history, moment, history.gone_since_s)


def _crash(history: RankHistory, moment: Moment, gone_since_s: float) -> Finding:
    look = history.look
    end = describe_end(history, gone_since_s)
    evidence = [f"process {look.identity.pid} {end} in {look.phase.name.lower()}, step {look.step}"]
    if look.last_words is not None:
        evidence.append(
            f"last words: {look.last_words.get('type', '')}: {look.last_words.get('message', '')}"
        )
    return Finding(
        kind=Kind.CRASH,
        node=moment.node,
        since_unix_s=moment.unix_s(gone_since_s),
        confidence=1.0,
        ranks=[look.rank],
        evidence=evidence,
        acts=history.exit_code is not None and not _was_ordered(history),
    )


def _was_ordered(history: RankHistory) -> bool:
    words = history.look.last_words or {}
    return history.exit_code in BY_ORDER or words.get("type") == INTERRUPTED


def describe_end(history: RankHistory, gone_since_s: float) -> str:
    """What happened to the process, in words."""
    code = history.exit_code
    if code is None:
        return "is gone"
    if code == -signal.SIGKILL and history.look.is_oom_victim:
        return "was killed by the kernel's OOM killer, as its log says,"
    since_oom_s = _since_oom_s(history, gone_since_s)
    if code == -signal.SIGKILL and since_oom_s <= OOM_JUST_BEFORE_S:
        return "was killed by the kernel's OOM killer, by the count of its memory cgroup,"
    end = how_it_ended(code)
    if since_oom_s <= OOM_SHORTLY_BEFORE_S:
        end += f", {since_oom_s:.1f} s after the OOM killer struck in its memory cgroup,"
    return end


def _since_oom_s(history: RankHistory, gone_since_s: float) -> float:
    seen_s = history.oom_seen_s
    return float("inf") if seen_s is None else max(0.0, gone_since_s - seen_s)


# Losses and gradients that went wrong: NaN or infinite, or far above what is usual.
#
# Told, and enough to hold a checkpoint's `good` back. Whether the job goes back is for the leader,
# who hears all ranks.

SCALER = "loss scaler"
"""What a finding is about that has nothing to do with any one step."""

TOLD_FOR_S = 60.0
"""A NaN that a script passed over is told for as long: whoever looks each minute sees it."""

SCALER_GIVES_UP = 24
"""A loss scaler halves its factor at every step that it passes over: from its first, 65536, to less
than a two-hundredth. Gradients that overflow even then don't because of the factor."""


def find_bad_numbers(ranks: Ranks, settings: NumbersSettings, moment: Moment) -> Iterator[Finding]:
    """What there is to tell about each local rank's numbers."""
    for history in ranks.local.values():
        if text := _nonfinite(history, moment):
            yield _numbers_finding(Kind.NONFINITE, history, moment, 0.99, text)
        if text := _spike(history, settings):
            yield _numbers_finding(Kind.SPIKE, history, moment, 0.8, text)
        if (skips := history.look.words[Word.SCALER_SKIPS]) >= SCALER_GIVES_UP:
            text = f"the loss scaler has passed over {skips} steps in a row"
            yield _numbers_finding(Kind.NONFINITE, history, moment, 0.9, text, SCALER)


def _nonfinite(history: RankHistory, moment: Moment) -> str:
    words = history.look.words
    is_ill_now = history.onset_step >= 0
    if not is_ill_now and moment.now_s - history.ill_seen_s > TOLD_FOR_S:
        return ""
    told = [
        f"{count} {what}"
        for count, what in (
            (words[Word.NONFINITE], "losses"),
            (words[Word.NONFINITE_GRADIENTS], "gradient norms"),
        )
        if count
    ]
    since = f", without a break since step {history.onset_step}" if is_ill_now else ""
    return f"{' and '.join(told)} so far were NaN or Inf{since}; newest step {history.look.step}"


def _spike(history: RankHistory, settings: NumbersSettings) -> str:
    spike = history.numbers.spike
    if spike is None:
        return ""
    what = "loss" if spike is history.numbers.loss else "gradient norm"
    return (
        f"the {what} has been more than {settings.spike_z:g} deviations above usual for "
        f"{len(spike.beyond)} steps, since step {spike.onset_step}"
    )


def _numbers_finding(
    kind: Kind, history: RankHistory, moment: Moment, confidence: float, text: str, what: str = ""
) -> Finding:
    return Finding(
        kind=kind,
        node=moment.node,
        since_unix_s=moment.now_unix_s,
        confidence=confidence,
        ranks=[history.look.rank],
        evidence=[text],
        what=what,
    )


# A scheduler wants this node back: as its launcher says, or as its ranks were told.

SIGNAL = "SIGTERM"


def told_to_go(ranks: Ranks) -> str:
    """What all ranks here were sent that they hold; empty: nothing, or one of them alone.

    A scheduler signals every process; whoever signals a single rank means that one.
    """
    living = [history.look for history in ranks.local.values() if not history.look.is_gone]
    held = [look for look in living if look.has(Flag.HOLDS_TERMINATION)]
    told = [look for look in held if look.words[Word.TERMINATION_NS]]
    return SIGNAL if living and len(told) == len(living) else ""


def asked_of(agents: Mapping[str, str], node: str) -> str:
    """The signal that this node's launcher got, as it reports."""
    report = decode(AgentReport, agents.get(node, ""))
    return "" if report is None else report.preempted_by


def find_preemption(preempted_by: str, moment: Moment) -> Iterator[Finding]:
    """The node will be gone soon."""
    if preempted_by:
        text = f"its processes were sent {preempted_by}"
        yield Finding(Kind.PREEMPTED, moment.node, moment.now_unix_s, 0.95, evidence=[text])


# What a node needs and does not have: its launcher, the store, an answer from its probes.

FAILING_FOR_S = 15.0
"""A probe that fails once is a hiccup; one that fails this long blinds us."""

LEFT_TO_DOCTOR = frozenset({"kernel_log"})
"""What many a container may not read, for as long as it runs: `holdfast doctor` and `probe_up` say
so, and no alarm does."""

STORE_SILENT_FOR_S = 3.0
"""A failover behind Sentinel takes about two seconds and is nothing to tell anybody."""


def find_absences(
    failing: Sequence[ProbeHealth],
    launcher_alive: bool,
    store_answered_s: float,
    moment: Moment,
) -> Iterator[Finding]:
    """Launcher lost, store away since `store_answered_s`, probes that keep failing."""
    if not launcher_alive:
        yield _presence_finding(Kind.LAUNCHER_LOST, moment, 1.0, "the launcher's process is gone")
    silent_s = moment.age_s(store_answered_s)
    if silent_s >= STORE_SILENT_FOR_S:
        text = f"the store has not answered for {silent_s:.1f} s"
        yield _presence_finding(Kind.STORE_AWAY, moment, 1.0, text)
    for health in failing:
        if health.name in LEFT_TO_DOCTOR:
            continue
        if moment.age_s(health.failing_since_s) >= FAILING_FOR_S:
            text = f"probe {health.name} failed {health.failures} times, last: {health.error}"
            yield _presence_finding(Kind.PROBE_FAILED, moment, 0.9, text, health.name)


def _presence_finding(
    kind: Kind, moment: Moment, confidence: float, text: str, what: str = ""
) -> Finding:
    return Finding(kind, moment.node, moment.now_unix_s, confidence, evidence=[text], what=what)


# A node whose ranks have fewer slots for snapshots than the settings wish for, or none.


def find_missing_slots(report: SnapshotReport | None, moment: Moment) -> Iterator[Finding]:
    """What there is too little of, and what was to be had."""
    if report is not None and report.short_of:
        yield Finding(
            Kind.NO_SNAPSHOTS,
            moment.node,
            moment.now_unix_s,
            1.0,
            evidence=[report.obstacle],
            what=report.short_of,
        )


# Checkpoint storage in trouble: it does not answer, or is slower than checkpoints come.

SILENT_S = 60.0
"""No byte moved and nothing answered. Listing a large bucket takes seconds, and so does importing
torch where ranks keep all cores busy; and nobody has to act within a minute."""


def find_slow_storage(silent_s: float, skipped: str, moment: Moment) -> Iterator[Finding]:
    """`silent_s`: how long a question has been open without a sign of life. `skipped`: which
    checkpoint is still being written although the next was due."""
    if silent_s >= SILENT_S:
        text = f"checkpoint storage has not answered for {silent_s:.0f} s; training goes on"
        yield _storage_finding(text, "answer", moment)
    if skipped:
        text = f"checkpoint {skipped} is still being written though the next one was due: skipped"
        yield _storage_finding(text, "write", moment)


def _storage_finding(text: str, what: str, moment: Moment) -> Finding:
    return Finding(Kind.STORAGE_SLOW, moment.node, moment.now_unix_s, 0.9, [], [text], what=what)


# State that this node's ranks found, by trying it, that no resume could give back.


def find_unrestorable(looks: Iterable[RankLook], moment: Moment) -> Iterator[Finding]:
    """One for each thing, with the ranks that say so; `what` is the first word: the user's name."""
    told: dict[str, list[int]] = {}
    for look in looks:
        for reason in look.unrestorable:
            told.setdefault(reason, []).append(look.rank)
    for reason, ranks in told.items():
        yield Finding(
            Kind.NOT_RESTORABLE,
            moment.node,
            moment.now_unix_s,
            1.0,
            sorted(ranks),
            [reason],
            what=reason.split(maxsplit=1)[0] if reason else "",
        )
