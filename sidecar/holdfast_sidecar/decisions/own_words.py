"""Whether a program said itself what it died of: an exception that no hardware raises. Pure.

Hardware that is ill speaks through its libraries (CUDA, NCCL, cuBLAS: a RuntimeError, or a class
of theirs), through the system (OSError, a connection that is lost, a time that is over), or by a
signal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from holdfast_sidecar.decisions.signature import OF_WHOM
from holdfast_sidecar.records.plan import Incident

_LANGUAGE = "Python's own judgement of names, types and syntax: it is made before anything is run"
_SHAPE = "a container or a function was asked for what it does not have: the script's own logic"
_STATED = "somebody wrote it down as a thing that must not be, in the script or a library"
_PLACE = "the file system answered, and said that there is nothing; ill storage gives an OSError"

OF_A_PROGRAM: Mapping[str, str] = {
    "TypeError": _LANGUAGE,
    "NameError": _LANGUAGE,
    "UnboundLocalError": _LANGUAGE,
    "AttributeError": _LANGUAGE,
    "SyntaxError": _LANGUAGE,
    "IndentationError": _LANGUAGE,
    "ImportError": _PLACE,
    "ModuleNotFoundError": _PLACE,
    "FileNotFoundError": _PLACE,
    "KeyError": _SHAPE,
    "IndexError": _SHAPE,
    "ZeroDivisionError": _SHAPE,
    "ValueError": _STATED,
    "AssertionError": _STATED,
    "NotImplementedError": _STATED,
}
"""Exceptions that a program raises of itself, each with why it is no hardware's. By the class's own
name, as last words tell it: of a class that is not known here nothing is said. Not among them:
RuntimeError and whatever derives from it (torch tells CUDA's errors so), OSError, ConnectionError,
TimeoutError, EOFError, MemoryError, FloatingPointError and OverflowError (wrong numbers may be a
GPU's)."""

_TYPE = re.compile(rf"(?:{'|'.join(OF_A_PROGRAM)})(?=:|\s|$)")

_PASSED_ON = re.compile(
    r"\bCUDA (driver |runtime )?error|\bNCCL\b|\bCUBLAS|\bcuBLAS|\bCUDNN|\bcuDNN|uncorrectable"
    r"|\bECC\b|Input/output error|Stale file handle|launch failure"
)
"""What a library says of a device, in whatever exception a script handed it on."""

_BY_SIGNAL = re.compile(r"\bended by SIG")
"""Then an exception among the last words was not the last of it: a thread's, or a handler's."""

BESIDE = "ill beside it, and not its cause: "


def are_programs_own(words: str) -> bool:
    """Whether an exception, as `Type: message`, is one that no hardware raises."""
    return _TYPE.match(words) is not None and _PASSED_ON.search(words) is None


def said_why(incident: Incident) -> bool:
    """Whether the rank that is to blame ended by such an exception."""
    if incident.cause != "crash" or any(_BY_SIGNAL.search(line) for line in incident.evidence):
        return False
    return any(
        are_programs_own(OF_WHOM.sub("", line)) for line in incident.evidence if OF_WHOM.match(line)
    )
