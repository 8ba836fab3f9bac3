"""Whose exit began a failure: the first to die is told from those that died of its death."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast_sidecar.coordination.reports import Exit, Incident

OF_A_PEER = re.compile(
    r"connection (closed|reset|refused)|broken pipe|socket|recv|timed out|timeout"
    r"|gloo|nccl|DistBackendError|DistNetworkError|TCPStore|process group",
    re.IGNORECASE,
)
"""What a rank says when another one went away. A survivor of gloo raises within 20 ms of a peer's
death, so its exit may well be reported first."""


OF_HARDWARE = re.compile(
    r"uncorrectable|\bECC\b|NVLink|GPU is lost|fallen off the bus|hardware|Input/output error"
    r"|unspecified launch failure",
    re.IGNORECASE,
)
"""What Python raises though it is the machine's: a restart elsewhere helps, one here does not."""


SIGNATURE_CHARACTERS = 200
"""Of a message: less than a page keeps, so that who reads it there and who reads torch's error file
say the same."""

FROM_OUTSIDE = frozenset({-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT})
"""Exit codes by signals that no bug of a program sends."""

AT_STEP = " at step "

_OF_WHOM = re.compile(r"^(?:rank \d+|last words): ")
"""What stands before an exception's words among the reasons of an incident."""


@dataclass(frozen=True)
class Blame:
    """The rank that most likely began it. `confidence` is 0 to 1."""

    node: str
    rank: int
    exit: Exit
    confidence: float


def find_culprit(exits: Iterable[tuple[str, Exit]]) -> Blame | None:
    """The likely first cause among (node, exit) pairs; None when nobody ended by itself."""
    own = [(node, exit_) for node, exit_ in exits if not exit_.forced and exit_.exit_code != 0]
    if not own:
        return None
    ranked = sorted(own, key=lambda pair: (-weight(pair[1]), pair[1].at_unix_s, pair[1].rank))
    node, first = ranked[0]
    rivals = sum(weight(exit_) == weight(first) for _, exit_ in ranked)
    return Blame(node, first.rank, first, _confidence(weight(first), rivals))


def weight(exit_: Exit) -> int:
    """How much an exit speaks for a cause of its own: 3 killed, 2 own error, 1 may be a victim.

    A victim raises, so a code without an exception (`sys.exit(3)`) was chosen by the script.
    """
    if exit_.exit_code == -signal.SIGABRT:
        return 1  # C++ terminate after a lost peer looks like this, too
    if exit_.exit_code < 0 and exit_.exit_code != -signal.SIGTERM:
        return 3
    return 1 if OF_A_PEER.search(exit_.message) else 2


def signature(blame: Blame) -> str:
    """What makes two failures the same; empty when the cause lies outside the job.

    What comes from outside (a person, a scheduler, the OOM killer) is never the same bug.
    """
    is_interrupted = blame.exit.message.startswith("KeyboardInterrupt")
    if blame.exit.exit_code in FROM_OUTSIDE or is_interrupted or weight(blame.exit) == 1:
        return ""
    words = _beginning(describe(blame.exit))
    if blame.exit.message:
        words = _without_numbers(words)
    return f"{words}{AT_STEP}{blame.exit.step}"


def in_words(incident: Incident) -> str:
    """The incident's signature for people: with this time's numbers, where its reasons say them."""
    what, sign, step = incident.signature.rpartition(AT_STEP)
    said = (_beginning(_OF_WHOM.sub("", reason)) for reason in incident.evidence)
    words = next((one for one in said if _without_numbers(one) == what), what)
    return f"{words}{sign}{step}"


def _beginning(words: str) -> str:
    return words.partition("\n")[0][:SIGNATURE_CHARACTERS]


def _without_numbers(words: str) -> str:
    """Addresses, sample numbers and the like differ from time to time."""
    return re.sub(r"0x[0-9a-f]+|[0-9]+", "#", words)


def is_of_script(exit_: Exit) -> bool:
    """Whether the script ended it: an exception or a code of its own, and none about hardware."""
    return exit_.exit_code >= 0 and not OF_HARDWARE.search(exit_.message)


def describe(exit_: Exit) -> str:
    """An exit in words: what the exception said, or which signal ended it."""
    if exit_.message:
        return exit_.message
    if exit_.exit_code >= 0:
        return f"exited with code {exit_.exit_code}"
    try:
        return f"ended by {signal.Signals(-exit_.exit_code).name}"
    except ValueError:
        return f"ended by signal {-exit_.exit_code}"


def _confidence(top: int, rivals: int) -> float:
    certainty = {3: 0.95, 2: 0.9, 1: 0.5}[top]
    return round(certainty / rivals, 2) if rivals > 1 else certainty
