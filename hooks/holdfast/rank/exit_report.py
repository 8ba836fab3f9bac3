"""What a rank leaves behind when it ends: the exception, stacks on demand, a clean finish."""

from __future__ import annotations

import atexit
import faulthandler
import os
import signal
import sys
import threading
import traceback
from types import TracebackType
from typing import Any

from holdfast.contract import environment
from holdfast.contract.page import STACKS_SIGNAL, Ending, Word
from holdfast.guard import Guard
from holdfast.rank import exit_code, process
from holdfast.rank.descriptors import move_out_of_the_way

TAIL = 1500
"""Characters of the traceback's end that are kept: what fits the page beside the message."""

MESSAGE = 300
"""Characters of the message; some libraries put whole tensors into theirs."""


def install(local_rank: int) -> None:
    """Listen to exceptions, to the end of the interpreter, and to STACKS_SIGNAL."""
    guard = Guard(_count_error)
    _listen_to_exceptions(guard)
    atexit.register(guard.wrap("finish", finish, None))
    directory = os.environ.get(environment.EVIDENCE_DIR)
    if directory:
        guard.run("stacks", lambda: _keep_stacks(directory, local_rank))


def finish() -> None:
    """Say that this rank ended well, unless it said otherwise or asked for another exit code."""
    recorder = process.current()
    if recorder is not None and exit_code.is_clean():
        recorder.finish(Ending.FINISHED)


def describe(error: BaseException, thread: str = "") -> dict[str, Any]:
    """An exception as plain words."""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1] if frames else None
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    words = {
        "type": type(error).__name__,
        "message": str(error)[:MESSAGE],
        "frame": f"{last.filename}:{last.lineno} in {last.name}" if last else "",
        "traceback": text[-TAIL:],
    }
    return {**words, "thread": thread} if thread else words


def _count_error() -> None:
    recorder = process.current()
    if recorder is not None:
        recorder.count(Word.HOOK_ERRORS)


def _listen_to_exceptions(guard: Guard) -> None:
    previous = sys.excepthook
    previous_in_thread = threading.excepthook
    tell = guard.wrap("last words", _tell, None)
    tell_of_thread = guard.wrap("last words of a thread", _tell_of_thread, None)

    def excepthook(
        kind: type[BaseException], error: BaseException, frames: TracebackType | None
    ) -> None:
        tell(error)
        previous(kind, error, frames)

    def thread_excepthook(args: threading.ExceptHookArgs) -> None:
        tell_of_thread(args)
        previous_in_thread(args)

    sys.excepthook = excepthook
    threading.excepthook = thread_excepthook


def _tell(error: BaseException) -> None:
    recorder = process.current()
    if recorder is None:
        return
    recorder.say(describe(error))
    recorder.finish(Ending.EXCEPTION)
    _write_error_file(error)


def _tell_of_thread(args: threading.ExceptHookArgs) -> None:
    """A thread's exception does not end the process, but often is why something else does."""
    recorder = process.current()
    if recorder is None or args.exc_value is None or recorder.word(Word.ENDING) != Ending.RUNNING:
        return
    recorder.say(describe(args.exc_value, args.thread.name if args.thread else "unknown"))


def _write_error_file(error: BaseException) -> None:
    """Write torch's error file, so that torch's own summary shows the traceback too.

    A file that is there was written by torch's @record.
    """
    path = os.environ.get("TORCHELASTIC_ERROR_FILE", "")
    if not path or "torch" not in sys.modules or os.path.exists(path):  # noqa: PTH110
        return
    from torch.distributed.elastic.multiprocessing.errors import get_error_handler

    frames = error.__traceback__
    try:
        raise error  # the handler formats the exception that is being handled
    except BaseException:
        # Raising it put this frame on top, as if the error were ours.
        error.__traceback__ = frames
        get_error_handler().record_exception(error)
    finally:
        error.__traceback__ = frames


def _keep_stacks(directory: str, local_rank: int) -> None:
    """Write all threads' stacks to a file when asked, and at a fatal signal, without the GIL.

    Whoever uses the signal or faulthandler already keeps them.
    """
    if signal.getsignal(STACKS_SIGNAL) == signal.SIG_DFL:
        stacks = _open_to_append(f"{directory}/stack-local-{local_rank}.txt")
        faulthandler.register(STACKS_SIGNAL, file=stacks, all_threads=True, chain=False)
    if not faulthandler.is_enabled():
        fatal = _open_to_append(f"{directory}/fatal-local-{local_rank}.txt")
        faulthandler.enable(file=fatal, all_threads=True)


def _open_to_append(path: str) -> int:
    """A descriptor for faulthandler, which nobody closes."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    return move_out_of_the_way(os.open(path, flags, 0o600))
