"""`python -m holdfast_sidecar.launcher`: what `holdfast run` becomes.

Turns what ended the launch into a line and an exit code.
"""

from __future__ import annotations

import logging
import os
import platform
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from holdfast.contract import environment, switches
from holdfast.rank import attachment
from holdfast_sidecar.launcher.early import say, stand_aside

OLDEST_TORCH = (2, 10)
"""In older ones `torch.load(weights_only=True)` can corrupt memory (CVE-2026-24747)."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Launch, and answer with the exit code."""
    stand_aside()
    if problem := python_problem() or torch_problem() or switches.problem():
        return refuse(problem)
    # Only now: with no torch, or one too old, these imports would fail less clearly.
    with ending_when_interrupted():
        from holdfast_sidecar.config.settings import BadInput
        from holdfast_sidecar.launcher.arguments import parse_arguments
        from holdfast_sidecar.launcher.launch import exit_code_of

    logging.basicConfig(format="holdfast: %(message)s", level=logging.WARNING)
    logging.getLogger("holdfast_sidecar").setLevel(os.environ.get(environment.LOG_LEVEL, "INFO"))
    try:
        parsed = parse_arguments(sys.argv[1:] if arguments is None else arguments)
        return exit_code_of(parsed)
    except BadInput as error:
        return refuse(" ".join(str(error).split()))


@contextmanager
def ending_when_interrupted() -> Iterator[None]:
    """While torch is imported Ctrl-C ends the process, which has begun nothing yet: a traceback
    from there helps nobody. An interrupt that is ignored stays so."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def python_problem() -> str:
    """Why this Python can't be used; empty when it can."""
    if not attachment.is_free_threaded():
        return ""
    version = platform.python_version()
    return f"Python {version} is free-threaded: Holdfast needs a build with the GIL"


def torch_problem() -> str | None:
    """Why this torch can't be used; None when it can. Doesn't import it."""
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return "PyTorch is not installed here: pip install holdfast[train]"
    return judge_torch(version)


def judge_torch(version: str) -> str | None:
    """Why this version of torch is too old; None when it is not."""
    major, _, rest = version.partition(".")
    minor = rest.partition(".")[0]
    if major.isdecimal() and minor.isdecimal() and (int(major), int(minor)) < OLDEST_TORCH:
        needed = ".".join(map(str, OLDEST_TORCH))
        return f"PyTorch {version} is too old: Holdfast needs {needed} or later"
    return None


def refuse(line: str) -> int:
    """Say what is wrong in one line."""
    say(f"holdfast: {line}")
    return 2


if __name__ == "__main__":
    # `python -m` put the current directory first: a redis.py there is the user's, not ours.
    if sys.path[:1] == [str(Path.cwd())]:
        del sys.path[0]
    sys.exit(main())
