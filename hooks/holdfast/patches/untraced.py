"""Our own frames, kept from torch.compile.

Between the graphs of what is compiled the compiler listens to every frame, and would compile our
wrappers and hooks too: anew for each number that changes in them, until it warns of that in the
script's log. Inside a graph they are traced as ever, where each of them is nothing at all.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType
from typing import Any

from holdfast import guard as guards
from holdfast.guard import Guard
from holdfast.rank import importing
from holdfast.recording.recorder import Recorder

COMPILER = "torch._dynamo"
PACKAGE = "holdfast"


def install(torch: Any, recorder: Recorder, guard: Guard) -> None:
    """Say so once the compiler is imported."""
    importing.once(COMPILER, lambda: guard.run("untraced", _say_so))


def _say_so() -> None:
    from torch._dynamo import eval_frame

    ours = [module for name, module in list(sys.modules.items()) if is_ours(name)]
    for code in codes(ours):
        eval_frame.skip_code(code)
    # What hooks call is torch's and Python's own, and never the script's: all below them is left.
    below = getattr(eval_frame, "set_code_exec_strategy", None)
    if below is not None:
        from torch._dynamo.types import FrameAction, FrameExecStrategy

        for code in codes([guards]):
            below(code, FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP))


def is_ours(name: str) -> bool:
    """Whether a module of this name is; a script of the user's may be called `holdfast_train`."""
    return name == PACKAGE or name.startswith(f"{PACKAGE}.")


def codes(modules: Iterable[Any]) -> Iterator[CodeType]:
    """Of every function that is written down in these modules, methods and inner ones included."""
    for module in modules:
        for thing in list(vars(module).values()):
            if getattr(thing, "__module__", None) != module.__name__:
                continue
            for member in vars(thing).values() if isinstance(thing, type) else (thing,):
                function = getattr(member, "fget", None) or getattr(member, "__func__", member)
                if isinstance(function, FunctionType):
                    yield from _with_inner(function.__code__)


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)
