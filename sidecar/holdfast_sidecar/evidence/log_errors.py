"""The first errors in what a rank printed, with the time where a line says it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

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
class Source:
    """Whose text it is. `rank` -1: several print into it, and only prefixes tell."""

    rank: int = -1
    ranks: Mapping[int, int] = field(default_factory=dict)
    """Of the node: local rank -> rank."""


def find_errors(text: str, source: Source, now_unix_s: float) -> list[LogError]:
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


def _whose(line: str, source: Source) -> tuple[int, str]:
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
