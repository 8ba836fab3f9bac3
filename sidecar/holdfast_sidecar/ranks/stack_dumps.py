"""Dumps of stacks, by faulthandler or py-spy, read: where a rank's main thread stood. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

LONGEST_PLACE = 120
"""Characters of a place that is told: it stands in a line with others."""

_FAULTHANDLER_FRAME = re.compile(
    r'  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<name>.+)'
)
_PYSPY_FRAME = re.compile(r"    (?P<name>.+) \((?P<file>[^()]*?)(?::(?P<line>\d+))?\)")
_THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+.*\(most recent call first\):")
_PYSPY_THREAD = re.compile(r'Thread \w+ \([^)]*\)(?:: "(?P<name>.*)")?')

_OF_OTHERS = re.compile(r"site-packages|dist-packages|python3\.\d+t?|holdfast")
"""Directories whose code is not the script's own: libraries, Python's and ours."""


@dataclass(frozen=True)
class StackFrame:
    """One call. `line` 0: not known."""

    name: str
    file: str
    line: int

    @property
    def is_own(self) -> bool:
        """Whether it is the script's code, and no library's."""
        folders = PurePath(self.file).parts[:-1]
        return self.is_python and not any(map(_OF_OTHERS.fullmatch, folders))

    @property
    def is_python(self) -> bool:
        """Whether somebody wrote it in Python: no native function, no import machinery."""
        is_frozen = self.file.startswith("<frozen")
        return self.file.endswith(".py") or (self.file.startswith("<") and not is_frozen)


def main_thread(text: str) -> tuple[StackFrame, ...]:
    """The main thread's frames in the last dump of this text, innermost first; empty: none.

    faulthandler lists threads newest first, so the main thread closes the dump; py-spy names it.
    """
    threads: list[list[StackFrame]] = []
    main: list[StackFrame] | None = None
    for line in text.splitlines():
        if _THREAD.match(line):
            threads.append([])
        elif named := _PYSPY_THREAD.match(line):
            threads.append([])
            main = threads[-1] if named["name"] == "MainThread" else main
        elif threads and (frame := _frame(line)) is not None:
            threads[-1].append(frame)
    if main is not None:
        return tuple(main)
    return tuple(threads[-1]) if threads else ()


def place(frames: Sequence[StackFrame]) -> str:
    """Where this stack stands: the call that the script made last, and from which line of it.

    `in all_reduce (train.py:41)` for a script that waits in a library, `in load (train.py:12)` for
    one that is in code of its own. Empty without frames.
    """
    if not frames:
        return ""
    own = next((index for index, frame in enumerate(frames) if frame.is_own), None)
    if own is None:
        told, at = frames[0], frames[0]
    else:
        told, at = frames[_told(frames, own)], frames[own]
    line = f":{at.line}" if at.line else ""
    return f"in {told.name} ({PurePath(at.file).name}{line})"[:LONGEST_PLACE]


def _is_wrapping(frame: StackFrame) -> bool:
    """Whether every call goes through it, by its (last) name, or as a hook of ours."""
    return frame.name.rpartition(".")[2] in _WRAPPING or "holdfast" in PurePath(frame.file).parts


def _told(frames: Sequence[StackFrame], own: int) -> int:
    """Of the library's calls below the script's, the outermost that is no mere wrapping."""
    inner = range(own - 1, -1, -1)
    telling = (i for i in inner if frames[i].is_python and not _is_wrapping(frames[i]))
    return next(telling, own)


_WRAPPING = frozenset(
    {
        "__call__",
        "_call_impl",
        "_wrapped_call_impl",
        "_wrapper",
        "decorate_context",
        "inner",
        "wrapper",
    }
)
"""Names that every call of torch goes through and that say nothing."""


def tell_places(places: Mapping[int, str], culprits: Sequence[int]) -> str:
    """`rank 3 in load_batch (train.py:41); ranks 0-2 in all_reduce (train.py:30)`.

    Ranks that stand at the same place are told together, the culprits first. Empty when nothing is
    known of any.
    """
    groups: dict[tuple[bool, str], list[int]] = {}
    for rank, where in sorted(places.items()):
        if where:
            groups.setdefault((rank not in culprits, where), []).append(rank)
    ordered = sorted(groups.items(), key=lambda item: (item[0][0], -len(item[1]), item[1]))
    told = [f"{_ranks(ranks)} {where}" for (_, where), ranks in ordered[:MOST_PLACES]]
    more = sum(len(ranks) for _, ranks in ordered[MOST_PLACES:])
    return "; ".join([*told, *([f"{more} more elsewhere"] if more else [])])


MOST_PLACES = 4
"""More stand at different places only where nobody waits for anybody; the files tell them all."""


def _ranks(ranks: Sequence[int]) -> str:
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][-1] + 1:
            spans[-1][1:] = [rank]
        else:
            spans.append([rank])
    listed = ", ".join("-".join(map(str, span)) for span in spans)
    return f"rank{'s' * (len(ranks) > 1)} {listed}"


def _frame(line: str) -> StackFrame | None:
    match = _FAULTHANDLER_FRAME.fullmatch(line) or _PYSPY_FRAME.fullmatch(line)
    if match is None:
        return None
    number = match["line"] or ""
    return StackFrame(match["name"], match["file"], int(number) if number.isdecimal() else 0)
