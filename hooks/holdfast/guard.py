"""The one guard of the hooks: an error of ours becomes one log line and a count, never a failure.

What a signal handler of the script raised while one of our hooks ran belongs to the script.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, TracebackType
from typing import Any, TypeVar, cast

T = TypeVar("T")

LIMIT = 10
"""Errors of one hook until it is switched off: an odd tensor now and then must not blind us, and
what fails at every step shall not cost at every step."""


class Guard:
    """Runs hooks. `count` is told of every error of ours."""

    def __init__(self, count: Callable[[], None]) -> None:
        self._count = count

    def wrap(
        self,
        name: str,
        hook: Callable[..., T],
        otherwise: T,
        together: list[Callable[[], None]] | None = None,
    ) -> Callable[..., T]:
        """The hook, made harmless: it answers `otherwise` when it fails or is switched off.

        together: what switches off those that go with it; it is one of them from now on.
        """
        errors = 0
        switches = [] if together is None else together

        def switched_off(*_: Any) -> T:
            return otherwise

        def switch_off() -> None:
            nonlocal hook
            hook = switched_off

        switches.append(switch_off)

        def guarded(*args: Any) -> T:
            nonlocal errors
            try:
                return hook(*args)
            except Exception as error:
                if _came_from_a_signal_handler(error.__traceback__):
                    raise
                errors += 1
                self._note(name, error, errors)
                if errors >= LIMIT:
                    for switch in switches:
                        switch()
                return otherwise

        return guarded

    def pair(
        self, name: str, begin: Callable[..., Any], *ends: Callable[..., None]
    ) -> tuple[Callable[..., Any], ...]:
        """A hook before some call and those of which one comes after it. They are switched off
        together: else what is begun would never end, and all that follows would be a part of it.
        """
        together: list[Callable[[], None]] = []
        return (
            self.wrap(f"{name} begins", begin, None, together),
            *(self.wrap(f"{name} ends", end, None, together) for end in ends),
        )

    def run(self, name: str, hook: Callable[[], object]) -> None:
        """Run something once."""
        self.wrap(name, hook, None)()

    def _note(self, name: str, error: Exception, errors: int) -> None:
        self._count()
        if errors == 1:
            import logging

            logging.getLogger(__name__).warning(
                "holdfast: the hook %s failed and training goes on without it: %s: %s",
                name,
                type(error).__name__,
                error,
            )


@dataclass(frozen=True)
class Raised:
    """What was tried did not come to its end."""

    error: Exception


def tried(call: Callable[..., T], *arguments: Any) -> T | Raised:
    """What foreign code answers, or what it raises: there that is what is asked for, and neither
    logged nor counted."""
    trial = _Trial()
    answer = trial.wrap("that is tried", call, None)(*arguments)
    return Raised(trial.error) if trial.error is not None else cast(T, answer)


class _Trial(Guard):
    def __init__(self) -> None:
        super().__init__(lambda: None)
        self.error: Exception | None = None

    def _note(self, name: str, error: Exception, errors: int) -> None:
        self.error = error


def _came_from_a_signal_handler(traceback: TracebackType | None) -> bool:
    handlers = {_code(signal.getsignal(number)) for number in signal.valid_signals()}
    handlers.discard(None)
    while traceback is not None:
        if traceback.tb_frame.f_code in handlers:
            return True
        traceback = traceback.tb_next
    return False


def _code(handler: object) -> CodeType | None:
    """The code that runs when a handler (a function, a method, an object) is called."""
    function = getattr(handler, "__func__", handler)
    code = getattr(function, "__code__", None) or getattr(
        vars(type(handler)).get("__call__"), "__code__", None
    )
    return code if isinstance(code, CodeType) else None
