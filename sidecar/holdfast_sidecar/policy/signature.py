"""What makes two failures the same one: its cause in words, without numbers, and the step. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping

from holdfast_sidecar.policy.blame import (
    ABORTED,
    FROM_OUTSIDE,
    LEFT,
    MAY_BE_VICTIM,
    OF_A_MISMATCH,
    OF_HARDWARE,
    OF_THE_CODE,
    Blame,
    describe,
    speaks_of_mismatch,
    speaks_of_peer,
    weight,
)
from holdfast_sidecar.records.plan import Incident
from holdfast_sidecar.records.reports import Exit

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


OF_SYSTEM = re.compile(
    r"(?:OSError|IOError|EnvironmentError|FileNotFoundError|PermissionError|FileExistsError"
    r"|IsADirectoryError|NotADirectoryError|BlockingIOError|ChildProcessError|InterruptedError"
    r"|ConnectionError|Connection(?:Reset|Refused|Aborted|Closed)Error|BrokenPipeError"
    r"|TimeoutError|gaierror|herror|SSLError|URLError|(?:Read|Connect)?Timeout(?:Error)?"
    r"|ChunkedEncodingError|ContentTooShortError|IncompleteRead(?:Error)?|RemoteDisconnected"
    r"|ProtocolError|MaxRetryError|NewConnectionError|EndpointConnectionError|HTTPClientError"
    r"|RemoteProtocolError|ReadError(?=(?:: *)?(?:\[|\n|$))|ProxyError|SSLEOFError"
    r"|ServerDisconnectedError|ClientConnectorError|ClientConnectionError|ClientOSError"
    r"|ClientPayloadError|ServerTimeoutError|LocalEntryNotFoundError"
    r"|OutOfMemoryError|MemoryError)\b"
)
"""Exceptions by which the system, a server or a device says that it could not, by their own names:
those of Python, and of urllib, requests, httpx, aiohttp, botocore, huggingface_hub and torch. A
ReadError with words of its own is tarfile's, of an archive that is broken."""

OF_SURROUNDINGS = re.compile(
    r"out of memory|can(?:no|')t allocate memory|CUBLAS_STATUS_ALLOC_FAILED"
    r"|device(?:s|\(s\))? (?:is |are |is/are )?(?:busy|unavailable)"
    r"|DataLoader worker .*(?:exited unexpectedly|is killed by signal)"
    r"|No space left on device|Disk quota exceeded|Stale file handle|Input/output error"
    r"|Read-only file system|Remote I/O error|Transport endpoint is not connected"
    r"|Temporary failure in name resolution|Name or service not known|Network is unreachable"
    r"|No route to host|Host is down",
    re.IGNORECASE,
)
"""The same in the words of whatever exception passes them on."""

OF_A_SERVER = re.compile(
    r"Service Unavailable|Bad Gateway|Gateway Time-?out|Internal Server Error|Too Many Requests"
    r"|SlowDown|ServiceUnavailable|RequestTimeout|Throttling"
    r"|(?:HTTP(?:Error)?|[Ss]tatus(?: code)?)\W{0,4}(?:Error\W{0,3})?(?:408|425|429|5\d\d)\b"
    r"|\b5\d\d Server Error|An error occurred \((?:408|425|429|5\d\d)\)",
    re.IGNORECASE,
)
"""What a server answers that can't serve now; no peer of the job says so, also where it speaks of a
timeout. A status of 4xx is an answer, and the next one is the same; but for 408, 425 and 429, which
ask for another try. A number in brackets is a status in botocore's words only: elsewhere it is a
size."""

OF_IMPORT = re.compile(r"ImportError\b")
"""A library that lies on storage which is away can't be loaded."""

OF_THE_JOB = re.compile(r"gloo|nccl|TCPStore|process group|Dist\w*Error", re.IGNORECASE)
"""Of connections between its own ranks: who lost a peer is told otherwise."""

AT_FIRST_OF_SCRIPT = re.compile(
    r"(?:FileNotFoundError|PermissionError|FileExistsError|IsADirectoryError|NotADirectoryError"
    r"|OutOfMemoryError|MemoryError)\b"
    r"|.*(?:out of memory|can(?:no|')t allocate memory|CUBLAS_STATUS_ALLOC_FAILED)"
    r"|(?:OSError|IOError|LocalEntryNotFoundError)\b.*(?:No such file|\berrno = (?:2|13|20|21)\b"
    r"|is not a valid model identifier|no file named|not appear to have a file named"
    r"|outgoing traffic has been disabled)",
    re.IGNORECASE,
)
"""What the script is to blame for as long as no step was ever made: a path that is wrong, rights
that are missing, a model that does not fit. ctypes, h5py and Hugging Face's libraries say of what
they don't find that it is an OSError."""


def is_of_surroundings(exit_: Exit, had_stepped: bool) -> bool:
    """Whether storage, the network, a device or the like ended this rank, as it says itself: that
    passes, and the same again is no bug. had_stepped: some step of this launch was made before.
    """
    words = exit_.message
    if exit_.exit_code <= 0 or OF_THE_JOB.search(words):
        return False
    if not had_stepped and AT_FIRST_OF_SCRIPT.match(words):
        return False
    if OF_SYSTEM.match(words):
        return True
    if OF_THE_CODE.match(words) and not OF_IMPORT.match(words):
        return False
    if OF_A_SERVER.search(words):
        return True
    return not speaks_of_peer(words) and OF_SURROUNDINGS.search(words) is not None


def sign(blame: Blame, had_stepped: bool = True) -> str:
    """What makes two failures the same; empty when the cause lies outside the job.

    What comes from outside (a person, a scheduler, the OOM killer, a machine) is never the same
    bug, and of a rank that may have lost a peer the cause is not known.
    """
    exit_ = blame.exit
    words = "" if is_of_surroundings(exit_, had_stepped) else _words(exit_)
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
    if weight(exit_) == MAY_BE_VICTIM:
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


# Whether a program said itself what it died of: an exception that no hardware raises. Pure.
#
# Hardware that is ill speaks through its libraries (CUDA, NCCL, cuBLAS: a RuntimeError, or a class
# of theirs), through the system (OSError, a connection that is lost, a time that is over), or by a
# signal.

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
