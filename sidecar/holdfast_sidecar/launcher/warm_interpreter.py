"""A Python with torch imported that waits to become a rank, and then is as if started cold.

Run as `python -u warm_interpreter.py FD MODULES (script | -m module) argument …`. Imports only the
standard library until it knows on which path to look for modules.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import os
import sys
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast_sidecar.launcher.handover import Handover


def main() -> None:
    """Warm up, wait, become the rank."""
    import socket

    channel = socket.socket(fileno=int(sys.argv[1]))
    modules = [name for name in sys.argv[2].split(",") if name]
    command = sys.argv[3:]
    # What is imported must be found where the script itself would find it.
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = first_on_path(command)
    for name in modules:
        importlib.import_module(name)

    from holdfast_sidecar.launcher import handover

    handover.say_ready(channel)
    given = handover.receive(channel)
    channel.close()
    if given is not None:
        become(*given)
        run(command)


def first_on_path(command: list[str]) -> str:
    """What `python` puts first on sys.path for this command."""
    if command[0] == "-m":
        return os.getcwd()  # noqa: PTH109 - pathlib may yet be the script's own
    return os.path.dirname(os.path.realpath(command[0]))  # noqa: PTH120


def become(given: Handover, streams: list[int]) -> None:
    """Take on the rank's environment, directory, streams and priority; attach the hooks."""
    # First, so that whatever fails from here on is told where the rank's own errors are.
    for stream, number in zip(streams, (1, 2), strict=True):
        os.dup2(stream, number)
        os.close(stream)
    for name in given.unset:
        del os.environ[name]
    os.environ.update(given.set)
    os.chdir(given.directory)
    restore_priority(given.priority)
    from holdfast.rank import attachment

    attachment.arm()


def restore_priority(priority: int) -> None:
    """Every thread that was started at low priority gets the launcher's."""
    for thread in os.listdir("/proc/self/task"):  # noqa: PTH208
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, int(thread), priority)


def run(command: list[str]) -> None:
    """Run the script or module in a `__main__` of its own, as `python` does."""
    fresh = ModuleType("__main__")
    fresh.__dict__["__builtins__"] = builtins
    if "__annotations__" in globals():  # Python before 3.14 gives its __main__ one
        fresh.__annotations__ = {}
    sys.modules["__main__"] = fresh
    if "__mp_main__" in sys.modules:
        # multiprocessing, which torch imported, keeps this second name for what it unpickles.
        sys.modules["__mp_main__"] = fresh
    sys.orig_argv[:] = [sys.executable, "-u", *command]
    if command[0] == "-m":
        sys.argv[:] = ["-m", *command[2:]]
        import runpy

        _report(lambda: runpy._run_module_as_main(command[1]))  # type: ignore[attr-defined]
        return
    sys.argv[:] = command
    path = os.path.abspath(command[0])  # noqa: PTH100
    fresh.__dict__.update(
        __file__=path, __loader__=SourceFileLoader("__main__", path), __cached__=None
    )
    _report(lambda: exec(_compile(path), fresh.__dict__))  # noqa: S102 - it is the user's script


def _compile(path: str) -> CodeType:
    import io

    with io.open_code(path) as file:
        code: CodeType = compile(file.read(), path, "exec")
    return code


def _report(body: object) -> None:
    """Call the body; an exception's traceback begins in the script, as if we were not there."""
    try:
        body()  # type: ignore[operator]
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.exit(1)


if __name__ == "__main__":
    main()
