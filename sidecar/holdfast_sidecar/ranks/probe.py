"""Looks at this node's ranks: what their pages say and how their processes stand in /proc."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.contract import page
from holdfast.contract.identity import ProcessStatus, parse_stat
from holdfast.contract.page import GROUPS_TIMED, Ending, Flag, Word, bits_float, uses_gloo_alone
from holdfast_sidecar.config.redaction import redact
from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.linux.cgroups import OomWatch
from holdfast_sidecar.linux.files import read_text
from holdfast_sidecar.linux.process import exit_code_of, is_back, read_is_dying
from holdfast_sidecar.ranks.observation import (
    PeerRank,
    ProcessLook,
    RankHistory,
    RankLook,
    is_finite,
    own_s,
    step_s,
)
from holdfast_sidecar.ranks.page import Pages, RankPage
from holdfast_sidecar.ranks.stall import stood_since_s
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.collectives import RankTrace
from holdfast_sidecar.records.findings import Moment
from holdfast_sidecar.records.reports import FINISHED, UNMETERED, NodeReport, RankEnergy, RankReport
from holdfast_sidecar.records.steps import NOWHERE, RankPlacement

logger = logging.getLogger(__name__)

PROC = Path("/proc")


@dataclass
class RanksProbe:
    """Reads every page of the newest attempt, handing on each record once."""

    pages: Pages
    proc: Path = PROC
    oom: OomWatch = field(default_factory=OomWatch)
    clean: Callable[[str], str] = redact
    """Takes secrets out of last words, which go into findings, and from there everywhere."""
    _read_up_to: dict[tuple[int, int], int] = field(default_factory=dict)
    _latest: dict[tuple[int, int], RankLook] = field(default_factory=dict)
    _unreadable: set[tuple[int, int]] = field(default_factory=set)

    name = "ranks"

    def read(self, now_s: float) -> list[RankLook]:
        """One look at every rank of the newest attempt. Time is CLOCK_MONOTONIC seconds.

        A page that can't be read now stands with the look before: its time says that it is old.
        """
        open_pages = self.pages.refresh()
        present = {_who(held) for held in open_pages}
        self._read_up_to = {who: self._read_up_to.get(who, 0) for who in present}
        self._latest = {who: look for who, look in self._latest.items() if who in present}
        self._unreadable &= present
        self.oom.begin()
        for held in open_pages:
            self._try(held, now_s)
        return [self._latest[_who(held)] for held in open_pages if _who(held) in self._latest]

    def _try(self, held: RankPage, now_s: float) -> None:
        who = _who(held)
        try:
            self._latest[who] = self._look_at(held, now_s)
        except OSError as error:
            if who in self._latest:
                self._latest[who] = replace(self._latest[who], records=())
            if who not in self._unreadable:
                logger.warning("can't look at rank %d: %s", held.identity.rank, error)
            self._unreadable.add(who)
        else:
            self._unreadable.discard(who)

    def _look_at(self, held: RankPage, now_s: float) -> RankLook:
        # Gone is asked before the page is read: what a dead rank's page says is final.
        is_gone = held.is_gone()
        directory = f"{self.proc}/{held.identity.pid}"
        status = _read_status(held, directory)
        is_gone = is_gone and (status is None or not is_back(status))
        is_dying = not is_gone and status is not None and read_is_dying(directory, status)
        content = held.read()
        records = page.parse_records(content, self._read_up_to[_who(held)])
        words = page.parse_words(content)
        oldest = held.read_published() - page.RING_CAPACITY
        pid, start_ticks = held.identity.pid, held.identity.start_ticks
        process = None if is_gone or status is None else _read_process(status, directory)
        self._read_up_to[_who(held)] = words[page.Word.PUBLISHED]
        return RankLook(
            identity=held.identity,
            at_s=now_s,
            words=words,
            is_gone=is_gone,
            process=process,
            # A slot whose record was overtaken while the page was copied may be a mix that
            # the checksum happened to pass; the writer is at most one slot further by now.
            records=tuple(record for index, record in records if index > oldest),
            reply=page.parse_reply(content),
            last_words=self._clean_words(page.parse_last_words(content)),
            unrestorable=tuple(map(self.clean, page.parse_unrestorable(content))),
            is_dying=is_dying,
            exit_code=exit_code_of(status.wait_status)
            if status is not None and (is_gone or is_dying)
            else None,
            oom_kills=self.oom.kills(pid, start_ticks) if held.pidfd is not None else None,
            is_oom_victim=held.pidfd is not None and self.oom.is_victim(pid),
        )

    def _clean_words(self, words: dict[str, Any] | None) -> dict[str, Any] | None:
        if words is None:
            return None
        return {name: self.clean(str(said)) for name, said in words.items()}


def _read_status(held: RankPage, directory: str) -> ProcessStatus | None:
    """Also of one that is gone, as long as nobody has waited for it."""
    if held.pidfd is None:
        return None
    status = _read_process_status(directory)
    return status if status and status.start_ticks == held.identity.start_ticks else None


def _read_process(status: ProcessStatus, directory: str) -> ProcessLook:
    turns = _read_turns(f"{directory}/schedstat")
    return ProcessLook(
        status.state, status.cpu_ticks, turns.taken, turns.queued_ns, status.major_faults
    )


def _who(held: RankPage) -> tuple[int, int]:
    return (held.inode, held.identity.claimed_ns)


def _read_process_status(directory: str) -> ProcessStatus | None:
    """The status of a process; None when it just went."""
    try:
        return parse_stat(read_text(f"{directory}/stat"))
    except (FileNotFoundError, ProcessLookupError):
        return None


class Turns(NamedTuple):
    """A thread's on the CPUs, so far; None where the kernel doesn't say."""

    taken: int | None = None
    queued_ns: int | None = None
    """For how long it was ready to run, and had none."""


def _read_turns(file: str) -> Turns:
    try:
        return parse_turns(read_text(file))
    except OSError:
        return Turns()


def parse_turns(text: str) -> Turns:
    """Second and third field of schedstat: time in the queue, timeslices run. A kernel without the
    counts says 0."""
    fields = text.split()
    if len(fields) != 3 or fields[2] == "0":
        return Turns()
    return Turns(int(fields[2]), int(fields[1]))


# What the other nodes' sidecars reported of their ranks, from the newest reading of the store.


def parse_peers(
    reports: Mapping[str, str], own_node: str, attempt: int, stale: Collection[str] = ()
) -> dict[int, PeerRank]:
    """Ranks of the same attempt on other nodes, by rank number.

    stale: nodes of which the store has heard nothing for too long. What their ranks do now is not
    known, so they prove nothing against others; what excuses others still does.

    Reads the few fields it needs straight from JSON: every node does this at every tick for all
    others, and building whole reports would cost a hundred-node job a core's worth of that.
    """
    peers: dict[int, PeerRank] = {}
    for node, text in reports.items():
        if node == own_node:
            continue
        try:
            report = json.loads(text)
            if report["attempt"] == attempt:
                known = map(_peer, report["ranks"])
                told = map(_as_unknown, known) if node in stale else known
                peers.update((peer.rank, peer) for peer in told)
        except (ValueError, KeyError, TypeError):
            continue
    return peers


def parse_traces(
    reports: Mapping[str, str], own_node: str, attempt: int, stale: Collection[str] = ()
) -> tuple[bool, dict[int, RankTrace]]:
    """Whether another node doubts a rank of this attempt, and what its ranks told when asked.

    Reports of nodes where nothing is wrong are not even parsed. stale: as above; what those told is
    left out.
    """
    doubts, traces = False, dict[int, RankTrace]()
    for node, text in reports.items():
        if node == own_node or node in stale:
            continue
        if not ('"doubts":true' in text or '"traces":[{' in text):
            continue
        report = decode(NodeReport, text)
        if report is not None and report.attempt == attempt:
            doubts = doubts or report.doubts
            traces.update((trace.rank, trace) for trace in report.traces)
    return doubts, traces


def _as_unknown(peer: PeerRank) -> PeerRank:
    """In no phase that is known: neither waiting nor standing still."""
    return dataclasses.replace(peer, phase="", phase_age_s=0.0)


def _peer(rank: Mapping[str, Any]) -> PeerRank:
    stopped_ago_s = rank.get("stopped_ago_s")
    return PeerRank(
        rank=int(rank["rank"]),
        step=int(rank["step"]),
        phase=str(rank["phase"]),
        phase_age_s=float(rank["phase_age_s"]),
        has_ended=rank.get("ending", 0) == FINISHED
        or (not rank.get("alive", True) and rank.get("exit_code") == 0),
        is_busy=bool(rank.get("busy")),
        stopped_ago_s=math.inf if stopped_ago_s is None else float(stopped_ago_s),
    )


# A rank as this sidecar reports it to the others.

STEPS_OF_PACE = 16
"""The pace by which a checkpoint's step is chosen ahead: recent, and deaf to one odd step."""

TELLS_OF_A_STOP_S = 60.0
"""So long after: nodes that are continued one after the other take seconds."""


def report_rank(
    history: RankHistory,
    settings: Settings,
    moment: Moment,
    energy: RankEnergy = UNMETERED,
    standing: RankPlacement = NOWHERE,
) -> RankReport:
    """The report of one rank."""
    look, spike = history.look, history.numbers.spike
    norm = look.gradient_norm
    stood_s = stood_since_s(history, settings.stall, moment)
    return RankReport(
        rank=look.rank,
        local_rank=look.identity.local_rank,
        pid=look.identity.pid,
        step=look.step,
        phase=look.phase.name.lower(),
        phase_age_s=round(max(0.0, moment.now_s - look.moved_s), 3),
        step_s=round(step_s(history.whole_steps, STEPS_OF_PACE), 6),
        own_s=round(own_s(history.whole_steps, STEPS_OF_PACE), 6),
        loss=look.loss if is_finite(look.loss) else None,
        is_loss_finite=look.loss is None or is_finite(look.loss),
        nonfinite_losses=look.words[Word.NONFINITE],
        onset_step=history.onset_step,
        gradient_norm=norm if is_finite(norm) else None,
        is_gradient_finite=norm is None or is_finite(norm),
        nonfinite_gradients=look.words[Word.NONFINITE_GRADIENTS],
        ill_steps=history.numbers.ill_steps,
        spike_onset=-1 if spike is None else spike.onset_step,
        spikes=history.numbers.spikes,
        power_w=energy.power_w,
        tokens_per_s=energy.tokens_per_s,
        layout=standing.layout,
        groups=list(standing.groups),
        busy=look.busy,
        stopped_ago_s=_told_stop_s(history),
        stood_since_unix_s=0.0 if stood_s is None else moment.unix_s(stood_s),
        ending=look.words[Word.ENDING],
        alive=not look.has_died,
        exit_code=history.exit_code,
        exception=_exception(look),
        state_registered=look.has(Flag.STATE_REGISTERED),
        collectives=[look.words[Word.COLLECTIVES_1 + slot] for slot in range(GROUPS_TIMED)],
        resumed_step=look.words[Word.RESUMED_STEP],
        in_loop=look.has(Flag.LOOP_WRAPPED),
        resume_failures=look.words[Word.RESUME_FAILURES],
        is_gloo_alone=uses_gloo_alone(look.words),
        model_flops=_amount(look.words[Word.MODEL_FLOPS]),
        hardware_flops=_amount(look.words[Word.HARDWARE_FLOPS]),
        peak_flops=_amount(look.words[Word.PEAK_FLOPS]),
        memory_allocated=look.words[Word.MEMORY_ALLOCATED],
        memory_reserved=look.words[Word.MEMORY_RESERVED],
        memory_peak=look.words[Word.MEMORY_PEAK],
        memory_total=look.words[Word.MEMORY_TOTAL],
        memory_retries=look.words[Word.MEMORY_RETRIES],
        window_s=round(history.windows.longest_s, 3),
    )


def _told_stop_s(history: RankHistory) -> float | None:
    ago_s = history.stopped_ago_s
    return round(ago_s, 1) if ago_s < TELLS_OF_A_STOP_S else None


def _amount(bits: int) -> float:
    """The float64 of a word; 0 for what is no amount, which JSON couldn't say either."""
    value = bits_float(bits)
    return value if is_finite(value) and value > 0 else 0.0


def _exception(look: RankLook) -> str:
    """Type and text of what ended it, in one line as torch's error file has it; else empty.

    Words without that ending are those of a thread, which ends no process.
    """
    if look.last_words is None or look.words[Word.ENDING] != Ending.EXCEPTION:
        return ""
    told = f"{look.last_words.get('type', '')}: {look.last_words.get('message', '')}"
    return " ".join(told.split())
