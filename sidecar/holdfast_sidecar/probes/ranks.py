"""Looks at this node's ranks: what their pages say and how their processes stand in /proc."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from holdfast import page
from holdfast.identity import ProcessStatus, parse_stat
from holdfast_sidecar.config.redaction import redact
from holdfast_sidecar.linux.files import read_text
from holdfast_sidecar.linux.oom import OomWatch
from holdfast_sidecar.linux.process import exit_code_of, is_back, read_is_dying
from holdfast_sidecar.observation import ProcessLook, RankLook
from holdfast_sidecar.pages import Pages, RankPage

PROC = Path("/proc")

logger = logging.getLogger(__name__)


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
