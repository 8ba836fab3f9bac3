"""Looks at this node's ranks: what their pages say and how their processes stand in /proc."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from pathlib import Path

from holdfast import page
from holdfast.identity import ProcessStatus, parse_stat
from holdfast_sidecar.observation import ProcessLook, RankLook
from holdfast_sidecar.pages import Pages, RankPage

PROC = Path("/proc")

logger = logging.getLogger(__name__)


@dataclass
class RanksProbe:
    """Reads every page of the newest attempt, handing on each record once."""

    pages: Pages
    proc: Path = PROC
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
        content = held.read()
        records = page.parse_records(content, self._read_up_to[_who(held)])
        words = page.parse_words(content)
        oldest = held.read_published() - page.RING_CAPACITY
        process = None if is_gone else self._read_process(held)
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
            last_words=page.parse_last_words(content),
        )

    def _read_process(self, held: RankPage) -> ProcessLook | None:
        if held.pidfd is None:
            return None
        directory = self.proc / str(held.identity.pid)
        status = read_process_status(directory)
        if status is None or status.start_ticks != held.identity.start_ticks:
            return None
        return ProcessLook(status.state, status.cpu_ticks, read_turns(directory / "schedstat"))


def _who(held: RankPage) -> tuple[int, int]:
    return (held.inode, held.identity.claimed_ns)


def read_process_status(directory: Path) -> ProcessStatus | None:
    """The status of a process; None when it just went."""
    try:
        return parse_stat((directory / "stat").read_text(errors="replace"))
    except (FileNotFoundError, ProcessLookupError):
        return None


def read_turns(file: Path) -> int | None:
    """How often a thread was put on a CPU so far; None where the kernel doesn't say."""
    try:
        return parse_turns(file.read_text())
    except OSError:
        return None


def parse_turns(text: str) -> int | None:
    """Third field of schedstat: number of timeslices run. A kernel without the count says 0."""
    fields = text.split()
    turns = int(fields[2]) if len(fields) == 3 else 0
    return turns or None
