"""Whose exit began a failure: the first to die is told from those that died of its death."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast_sidecar.records.formatting import name_signal
from holdfast_sidecar.records.reports import Exit

VICTIM = 0.5
"""How sure it is that a rank began it which speaks of a lost peer."""


OF_A_PEER = re.compile(
    r"connection (closed|reset|refused)|broken pipe|socket|recv|timed out|timeout"
    r"|gloo|nccl|DistBackendError|DistNetworkError|TCPStore|process group",
    re.IGNORECASE,
)
"""What a rank says when another one went away. A survivor of gloo raises within 20 ms of a peer's
death, so its exit may well be reported first."""

OF_THE_CODE = re.compile(
    r"(?:Type|Name|UnboundLocal|Attribute|Import|ModuleNotFound|Syntax|Indentation"
    r"|Key|Index|Value|ZeroDivision|NotImplemented|Assertion)Error\b"
)
"""What begins the words of no lost peer, whatever else they say: an argument that is called
`timeout`, a process group that was not initialised."""

OF_A_MISMATCH = re.compile(
    r"\bop\.preamble\.|collective mismatch|mismatch between collectives", re.IGNORECASE
)
"""What a rank says that got something else from another one than it expected: gloo, which makes it
raise or aborts it, and torch under TORCH_DISTRIBUTED_DEBUG=DETAIL. No lost peer makes it say so."""

FROM_OUTSIDE = frozenset({-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT})
"""Exit codes by signals that no bug of a program sends."""

OF_HARDWARE = re.compile(
    r"uncorrectable|\bECC\b|NVLink|GPU is lost|fallen off the bus|hardware|Input/output error"
    r"|unspecified launch failure",
    re.IGNORECASE,
)
"""What Python raises though it is the machine's: a restart elsewhere helps, one here does not."""

ABORTED = f"ended by {signal.SIGABRT.name}"
"""What a library does that lost a peer, and ranks differ: C++ says nothing of it in a page."""

MAY_BE_VICTIM = 1
"""The weight of an exit that may be of another one's making."""

LEFT = "left by exit code 0"

LEFT_SURENESS = 0.8
"""How sure it is that the others failed because a rank was through before them: they say that they
lost one, and none but this one is known to be gone."""

MISSED_WITHIN_STEPS = 2
"""Who was needed is missed in the next collective, and steps are counted a little apart: the others
come so much further at most. Whom they made more steps without was not needed."""


@dataclass(frozen=True)
class Blame:
    """The rank that most likely began it. `confidence` is 0 to 1."""

    node: str
    rank: int
    exit: Exit
    confidence: float


def find_culprit(exits: Iterable[tuple[str, Exit]]) -> Blame | None:
    """The likely first cause among (node, exit) pairs; None when nobody ended by itself."""
    known = [(node, exit_) for node, exit_ in exits if not exit_.forced]
    own = [(node, exit_) for node, exit_ in known if exit_.exit_code != 0]
    if not own:
        return None
    ranked = sorted(own, key=lambda pair: (*_standing(pair[1]), pair[1].at_unix_s, pair[1].rank))
    node, first = ranked[0]
    if weight(first) == MAY_BE_VICTIM and not speaks_of_mismatch(first):
        furthest = max(exit_.step for _, exit_ in own)
        if (leaver := _who_left(known, furthest)) is not None:
            return leaver
    rivals = sum(_standing(exit_) == _standing(first) for _, exit_ in ranked)
    return Blame(node, first.rank, first, _confidence(weight(first), rivals))


def _standing(exit_: Exit) -> tuple[int, bool]:
    """How exits are ordered. Of those that may be victims, who says that it lost a peer comes last:
    a library that aborts, or words about what came from another, may be what they lost it by."""
    return -weight(exit_), exit_.exit_code != -signal.SIGABRT and not speaks_of_mismatch(exit_)


def _who_left(exits: list[tuple[str, Exit]], furthest: int) -> Blame | None:
    """The rank that ended well before its time: the others lost it, and had come as far at least,
    though not much further.

    Several that left where the others failed may have been through: then that says nothing.
    """
    left = [
        (node, exit_)
        for node, exit_ in exits
        if exit_.exit_code == 0 and exit_.step >= furthest - MISSED_WITHIN_STEPS
    ]
    earliest = min((exit_.step for _, exit_ in left), default=furthest + 1)
    first = sorted(
        (pair for pair in left if pair[1].step == earliest),
        key=lambda pair: (pair[1].at_unix_s, pair[1].rank),
    )
    if earliest > furthest or (earliest == furthest and len(first) > 1):
        return None
    node, leaver = first[0]
    return Blame(node, leaver.rank, leaver, round(LEFT_SURENESS / len(first), 2))


def weight(exit_: Exit) -> int:
    """How much an exit speaks for a cause of its own: 3 killed, 2 own error, 1 may be a victim.

    A victim raises, so a code without an exception (`sys.exit(3)`) was chosen by the script.
    """
    if exit_.exit_code == -signal.SIGABRT:
        return MAY_BE_VICTIM  # C++ terminate after a lost peer looks like this, too
    if speaks_of_mismatch(exit_):
        return MAY_BE_VICTIM  # who notices that ranks differ may be the one that is right
    if exit_.exit_code < 0 and exit_.exit_code != -signal.SIGTERM:
        return 3
    return MAY_BE_VICTIM if speaks_of_peer(exit_.message) else 2


def speaks_of_peer(words: str) -> bool:
    """Whether an exception's words may be those of who lost a peer."""
    return OF_A_PEER.search(words) is not None and OF_THE_CODE.match(words) is None


def speaks_of_mismatch(exit_: Exit) -> bool:
    """Whether its words are that ranks did not do the same in a collective."""
    return OF_A_MISMATCH.search(exit_.message) is not None


def is_of_script(exit_: Exit) -> bool:
    """Whether the script ended it: an exception or a code of its own, and none about hardware."""
    return exit_.exit_code >= 0 and not OF_HARDWARE.search(exit_.message)


def describe(exit_: Exit) -> str:
    """An exit in words: what the exception said, or which signal ended it."""
    if exit_.message:
        return exit_.message
    if exit_.exit_code == 0:
        return f"{LEFT} at step {exit_.step} while others went on"
    if exit_.exit_code >= 0:
        return f"exited with code {exit_.exit_code}"
    return f"ended by {name_signal(-exit_.exit_code)}"


def in_short(blame: Blame) -> str:
    """Who ended how, as a reason."""
    return f"rank {blame.rank}: {describe(blame.exit)}"


def _confidence(top: int, rivals: int) -> float:
    certainty = {3: 0.95, 2: 0.9, 1: 0.5}[top]
    return round(certainty / rivals, 2) if rivals > 1 else certainty
