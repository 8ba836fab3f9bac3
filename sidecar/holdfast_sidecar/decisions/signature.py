"""What makes two failures the same one: its cause in words, without numbers, and the step. Pure."""

from __future__ import annotations

import re
import signal

from holdfast_sidecar.decisions.blame import (
    ABORTED,
    FROM_OUTSIDE,
    LEFT,
    OF_A_MISMATCH,
    OF_HARDWARE,
    Blame,
    describe,
    speaks_of_mismatch,
    weight,
)
from holdfast_sidecar.records.agent import Exit
from holdfast_sidecar.records.incident import Incident

SIGNATURE_CHARACTERS = 200
"""Of a message: less than a page keeps, so that who reads it there and who reads torch's error file
say the same."""

NOT_OF_A_PROGRAM = FROM_OUTSIDE | {-signal.SIGBUS}
"""Bad memory and full storage send a SIGBUS just as well as a bug: elsewhere it may go on."""

AT_STEP = " at step "

MISMATCH = "ranks differ in a collective"
"""Which of them says so, and in which words, is chance."""

_BETWEEN_RANKS = frozenset({ABORTED, MISMATCH})

OF_WHOM = re.compile(r"^(?:rank \d+|last words): ")
"""What stands before an exception's words among the reasons of an incident."""


def sign(blame: Blame) -> str:
    """What makes two failures the same; empty when the cause lies outside the job.

    What comes from outside (a person, a scheduler, the OOM killer, a machine) is never the same
    bug, and of a rank that may have lost a peer the cause is not known.
    """
    exit_ = blame.exit
    words = _words(exit_)
    return f"{words}{AT_STEP}{exit_.step}" if words else ""


def are_alike(one: str, other: str) -> bool:
    """Whether two signatures are of the same failure.

    One between ranks is noticed by this rank or by that one, and they may be a step apart.
    """
    if not one or not other:
        return False
    what, _, step = one.rpartition(AT_STEP)
    other_what, _, other_step = other.rpartition(AT_STEP)
    if one == other or what != other_what or what not in _BETWEEN_RANKS:
        return one == other
    return abs(int(step) - int(other_step)) <= 1


def in_words(incident: Incident) -> str:
    """The incident's signature for people: with this time's numbers, where its reasons say them."""
    what, at_step, step = incident.signature.rpartition(AT_STEP)
    said = (_beginning(OF_WHOM.sub("", reason)) for reason in incident.evidence)
    words = next((one for one in said if _is_said_by(what, one)), what)
    return f"{words}{at_step}{step}"


def _words(exit_: Exit) -> str:
    if exit_.exit_code in NOT_OF_A_PROGRAM or OF_HARDWARE.search(exit_.message):
        return ""
    if exit_.message.startswith("KeyboardInterrupt"):
        return ""
    if exit_.exit_code == 0:
        return f"{LEFT} while others went on"
    if speaks_of_mismatch(exit_):
        return MISMATCH
    if exit_.exit_code == -signal.SIGABRT:
        # gloo lets a rank raise that lost a peer; NCCL's watchdog aborts it, for a bad device too.
        return ABORTED if exit_.is_gloo_alone else ""
    if weight(exit_) == 1:
        return ""
    words = _beginning(describe(exit_))
    return _without_numbers(words) if exit_.message else words


def _is_said_by(what: str, words: str) -> bool:
    if what == MISMATCH:
        return OF_A_MISMATCH.search(words) is not None
    return _without_numbers(words) == what


def _beginning(words: str) -> str:
    return words.partition("\n")[0][:SIGNATURE_CHARACTERS]


def _without_numbers(words: str) -> str:
    """Addresses, sample numbers and the like differ from time to time."""
    return re.sub(r"0x[0-9a-f]+|[0-9]+", "#", words)
