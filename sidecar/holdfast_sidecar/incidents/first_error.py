"""Which rank failed first: from how ranks ended, what they said last and what they printed. Pure.

Who died of a cause of its own is told from those that lost a peer (`policy.blame`), and only
then does the earlier one count: a survivor's exception is often noticed before the first death.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from holdfast.contract.page import END_SIGNAL
from holdfast_sidecar.policy.blame import (
    OF_A_MISMATCH,
    OF_A_PEER,
    Blame,
    describe,
    speaks_of_peer,
    weight,
)
from holdfast_sidecar.records.reports import Exit, RankReport

# The first errors in what a rank printed, with the time where a line says it. Pure.

ERRORS_KEPT = 5
"""Per rank. What comes after the first few follows from them."""

LONGEST_ERROR = 300

_GRAVE = re.compile(
    r"CUDA error|CUDNN_STATUS_\w*(?:FAIL|ERROR)|CUBLAS_STATUS_\w*(?:FAIL|ERROR)"
    r"|terminate called|Fatal Python error|Segmentation fault|Bus error|Illegal instruction"
    r"|[Aa]ssertion .*failed|[Oo]ut of memory|OutOfMemoryError|stack smashing|double free"
)
"""What ends a process for a reason of its own, whatever it is asked to do next."""

_ERROR = re.compile(
    r"^(?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b(?::|$)|NCCL (?:WARN|ERROR)|what\(\):"
    r"|\b(?:FATAL|CRITICAL)\b|(?:^|[\s\[])ERROR\b"
)
"""What may be that, or what somebody expected and caught: the last line of a traceback, NCCL's
words, a log's own levels."""

_PREFIX = re.compile(r"\[(?P<whose>rank|[A-Za-z_-]+)(?P<number>\d+)\]:\s?")
"""`[rank3]:` is torch's, before what a rank prints of an exception; `[default1]:` is torchrun's, by
role and local rank, under --tee."""

_TIME = re.compile(
    r"(?P<date>\d{4}-\d{2}-\d{2})[T ](?P<time>\d{2}:\d{2}:\d{2})(?:[.,](?P<part>\d{1,6}))?"
    r"(?P<zone>Z|[+-]\d{2}:?\d{2})?"
)
_GLOG_TIME = re.compile(
    r"\b[IWEF](?P<month>\d{2})(?P<day>\d{2}) (?P<time>\d{2}:\d{2}:\d{2})\.(?P<part>\d{1,6})"
)


@dataclass(frozen=True)
class LogError:
    """One line that says that something broke. `rank` -1: it does not say whose it is."""

    rank: int
    text: str
    at_unix_s: float | None
    """When it was printed, on the node's clock; None: the line does not say."""
    is_grave: bool = False
    """A process does not go on after this."""


@dataclass(frozen=True)
class LogSource:
    """Whose text it is. `rank` -1: several print into it, and only prefixes tell."""

    rank: int = -1
    ranks: Mapping[int, int] = field(default_factory=dict)
    """Of the node: local rank -> rank."""


def find_errors(text: str, source: LogSource, now_unix_s: float) -> list[LogError]:
    """The first errors of each rank in this text, in the order in which they stand."""
    kept: dict[int, int] = {}
    found = []
    for line in text.splitlines():
        rank, said = _whose(line, source)
        is_grave = bool(_GRAVE.search(said))
        if not is_grave and not _ERROR.search(said):
            continue
        kept[rank] = kept.get(rank, 0) + 1
        if kept[rank] <= ERRORS_KEPT:
            at_unix_s = read_time(said, now_unix_s)
            found.append(LogError(rank, said.strip()[:LONGEST_ERROR], at_unix_s, is_grave))
    return found


def _whose(line: str, source: LogSource) -> tuple[int, str]:
    """The rank that printed this line, and the line without prefixes."""
    rank = source.rank
    while (prefix := _PREFIX.match(line)) is not None:
        line = line[prefix.end() :]
        number = int(prefix["number"])
        if source.rank < 0:
            rank = number if prefix["whose"] == "rank" else source.ranks.get(number, rank)
    return rank, line


def read_time(line: str, now_unix_s: float) -> float | None:
    """The time that a line says, as Unix time; None: it says none. Without a zone it is local."""
    if match := _TIME.search(line):
        return _unix_s(match["date"], match["time"], match["part"], match["zone"])
    if match := _GLOG_TIME.search(line):
        # glog leaves the year out; what was printed before now can't be of a day to come.
        year = datetime.fromtimestamp(now_unix_s).year
        day = f"{match['month']}-{match['day']}"
        at = _unix_s(f"{year}-{day}", match["time"], match["part"], None)
        if at is None or at <= now_unix_s + DAY_S:
            return at
        return _unix_s(f"{year - 1}-{day}", match["time"], match["part"], None)
    return None


DAY_S = 86400.0


def _unix_s(date: str, time: str, part: str | None, zone: str | None) -> float | None:
    zone = (zone or "").replace("Z", "+00:00")
    if len(zone) == len("+0000"):
        zone = f"{zone[:3]}:{zone[3:]}"
    try:
        return datetime.fromisoformat(
            f"{date} {time}.{(part or '').ljust(6, '0')}{zone}"
        ).timestamp()
    except ValueError:
        return None


BY_LAUNCHERS = frozenset({signal.SIGTERM, signal.SIGINT, END_SIGNAL})
"""What ends the ranks of an attempt that failed; launchers themselves say which they ended so."""

OF_AN_ABORT = re.compile(r"Fatal Python error: Aborted")
"""What Python says when a library aborts the rank: not why, and a lost peer may be."""

OWN = 2
OF_ANOTHER = 1
"""Weights as `blame.weight` gives them: 3 killed, 2 an error of its own, 1 may be a victim."""


@dataclass(frozen=True)
class Sign:
    """One thing that says how a rank failed. Times are the wall clock of the rank's node."""

    rank: int
    node: str
    words: str
    weight: int
    at_unix_s: float | None
    source: str
    """`exit`, `last words`, `fatal signal`, or the name of a log's file."""
    is_of_log: bool = False
    """A line of a log alone does not say that the rank failed: errors are expected and caught."""


@dataclass(frozen=True)
class Failure:
    """How one rank failed: its most telling sign, at the earliest time that any of them says."""

    rank: int
    node: str
    words: str
    weight: int
    at_unix_s: float | None
    source: str

    @property
    def is_own(self) -> bool:
        """Whether the cause lies in this rank, as far as its words tell."""
        return self.weight >= OWN

    @property
    def may_be_of_another(self) -> bool:
        """Whether nothing is told but that it was aborted, or got what it did not expect."""
        return self.weight == OWN and _leaves_open(self.words)


def sign_of_exit(node: str, exit_: Exit) -> Sign | None:
    """What an exit says; None when the rank ended well, or was ended by its launcher."""
    if exit_.forced or exit_.exit_code == 0:
        return None
    words = describe(exit_)
    return Sign(exit_.rank, node, words, weight(exit_), exit_.at_unix_s, "exit")


def sign_of_report(node: str, report: RankReport) -> Sign | None:
    """What a rank's sidecar saw of its end, before its launcher told; None as `sign_of_exit`."""
    if not report.exit_code or -report.exit_code in BY_LAUNCHERS:
        return None
    seen = Exit(
        report.rank,
        report.local_rank,
        report.pid,
        report.exit_code,
        at_unix_s=0.0,
        order=0,
        message=report.exception,
    )
    return Sign(report.rank, node, describe(seen), weight(seen), None, "exit")


def sign_of_words(rank: int, node: str, words: str, source: str) -> Sign:
    """What an exception or a fatal signal says."""
    is_own = OF_A_MISMATCH.search(words) or not speaks_of_peer(words)
    return Sign(rank, node, words, OWN if is_own else OF_ANOTHER, None, source)


def sign_of_leaver(blame: Blame) -> Sign:
    """That a rank ended well before its time, where others failed for having lost it."""
    exit_ = blame.exit
    return Sign(blame.rank, blame.node, describe(exit_), OWN, exit_.at_unix_s, "exit")


def sign_of_line(node: str, error: LogError, source: str) -> Sign:
    """What a line of a log says: a cause of its own only where no process goes on after it."""
    is_own = error.is_grave and not OF_A_PEER.search(error.text)
    return Sign(
        error.rank,
        node,
        error.text,
        OWN if is_own else OF_ANOTHER,
        error.at_unix_s,
        source,
        is_of_log=True,
    )


def order(signs: Iterable[Sign]) -> list[Failure]:
    """All ranks that failed, the first one first."""
    by_rank: dict[int, list[Sign]] = {}
    for sign in signs:
        if sign.rank >= 0:
            by_rank.setdefault(sign.rank, []).append(sign)
    failed = {rank for rank, found in by_rank.items() if not all(s.is_of_log for s in found)}
    failures = [_failure(found) for rank, found in by_rank.items() if rank in (failed or by_rank)]
    return sorted(failures, key=lambda one: (_order(one), _time(one.at_unix_s), one.rank))


def confidence(failures: Sequence[Failure]) -> float:
    """How sure it is that the first of these failed first; 0 without any.

    As in `blame`, several that speak for themselves as plainly share it, and of an abort or a
    mismatch it is not known whose fault it was.
    """
    if not failures:
        return 0.0
    first = failures[0]
    certainty = {3: 0.95, OWN: 0.9, OF_ANOTHER: 0.5}
    rivals = sum(_order(one) == _order(first) for one in failures)
    return round(certainty[OF_ANOTHER if first.may_be_of_another else first.weight] / rivals, 2)


def _order(failure: Failure) -> tuple[int, bool]:
    return -failure.weight, failure.may_be_of_another


def _leaves_open(words: str) -> bool:
    return OF_AN_ABORT.search(words) is not None or OF_A_MISMATCH.search(words) is not None


def _failure(signs: Sequence[Sign]) -> Failure:
    best = max(sign.weight for sign in signs)
    telling = [sign for sign in signs if sign.weight == best]
    # A signal says only that it was one; and a line of a log that blames nobody says less than
    # an exit does.
    told = min(
        telling,
        key=lambda sign: (
            _leaves_open(sign.words),
            sign.words.startswith("ended by"),
            sign.is_of_log and best < OWN,
            _time(sign.at_unix_s),
        ),
    )
    timed = [sign for sign in telling if best >= OWN or not sign.is_of_log]
    first = min((s.at_unix_s for s in timed if s.at_unix_s is not None), default=told.at_unix_s)
    return Failure(told.rank, told.node, told.words, best, first, told.source)


def _time(at_unix_s: float | None) -> float:
    return float("inf") if at_unix_s is None else at_unix_s


# The ends of logs: read in whole lines, so that no secret loses the name that gives it away.


def read_tail(path: Path, most_bytes: int, begins: int = 0) -> str:
    """The last lines of a file within so many bytes, and after its first `begins` bytes; empty
    when it can't be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        size = os.fstat(descriptor).st_size
        # Shorter than it was: somebody rotated it, and what is here now is all new.
        start = max(begins if begins <= size else 0, size - most_bytes)
        text = os.pread(descriptor, most_bytes, start).decode(errors="replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)
    is_cut = start > 0 and start != begins
    return text.partition("\n")[2] if is_cut else text
