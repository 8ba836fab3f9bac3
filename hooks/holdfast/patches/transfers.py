"""A batch's way from the host to a GPU: a phase, as far as the host is kept by it.

`Tensor.to` and `Tensor.cuda`, when the thread that trains moves what lies on the CPU. Only where it
is asked for (`HOLDFAST_HOOKS=+transfers`), as it costs every call of both; and not on a machine
without a GPU's driver, which is found out without starting CUDA.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.contract.page import Phase
from holdfast.guard import Guard
from holdfast.patches.timed import entering, leaving
from holdfast.rank import importing
from holdfast.recording.recorder import Recorder

DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
"""NVIDIA's, the same inside WSL, AMD's. Asking torch would start CUDA, and a process that is forked
after that can't use it."""

_LAST_BEFORE_ANY_STEP = Phase.RESTORING


def install(torch: Any, recorder: Recorder, guard: Guard) -> None:
    """Hook both where this torch is built for GPUs and the machine has any."""
    version = torch.version
    is_built = getattr(version, "cuda", None) or getattr(version, "hip", None)
    if is_built and any(Path(driver).exists() for driver in DRIVERS):
        wrap(torch, recorder, guard)


def wrap(torch: Any, recorder: Recorder, guard: Guard) -> None:
    """Hook both."""
    enter_any = entering(recorder, Phase.TRANSFERRING)

    def enter() -> Phase | None:
        # A model's way there, before any step, is a part of starting.
        return None if recorder.phase <= _LAST_BEFORE_ANY_STEP else enter_any()

    leave = leaving(recorder)
    device, tensor = torch.device, torch.Tensor

    def goes_to_a_gpu(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        target: Any = args[0] if args else kwargs.get("device", kwargs.get("tensor"))
        if type(target) is str:
            return target.startswith("cuda")
        if type(target) is device:
            return bool(target.type == "cuda")
        if type(target) is int:
            return True
        return bool(getattr(target, "is_cuda", False))

    def begin(batch: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Phase | None:
        # The tensor itself is asked last: a mode or a subclass of the script's sees even that, and
        # may refuse to answer.
        return enter() if goes_to_a_gpu(args, kwargs) and batch.is_cpu else None

    def begin_to_a_gpu(batch: Any, *_: Any) -> Phase | None:
        return enter() if batch.is_cpu else None

    moves = (
        _timed(torch, tensor.to, *guard.pair("transfer", begin, leave)),
        _timed(torch, tensor.cuda, *guard.pair("transfer", begin_to_a_gpu, leave)),
    )
    tensor.to, tensor.cuda = moves

    def keep_whole() -> None:
        # Inside, a compiler would find a function of C whose source it can't read.
        for move in moves:
            torch.compiler.allow_in_graph(move)

    importing.once("torch._dynamo", lambda: guard.run("transfers compiled", keep_whole))


def _timed(
    torch: Any,
    move: Callable[..., Any],
    begin: Callable[[Any, tuple[Any, ...], dict[str, Any]], Phase | None],
    leave: Callable[[Phase], None],
) -> Callable[..., Any]:
    """The order of the tests is their price: most calls change a type."""
    dtype, is_compiling = torch.dtype, torch.compiler.is_compiling

    @functools.wraps(move)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        if (args and type(args[0]) is dtype) or is_compiling():
            return move(self, *args, **kwargs)
        previous = begin(self, args, kwargs)
        if previous is None:
            return move(self, *args, **kwargs)
        try:
            return move(self, *args, **kwargs)
        finally:
            leave(previous)

    return wrapper
