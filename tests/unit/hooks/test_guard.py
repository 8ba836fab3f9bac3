"""The guard: our errors are counted and swallowed, the script's are not."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator

import pytest

from holdfast.guard import LIMIT, Guard


class Counter:
    """Counts."""

    def __init__(self) -> None:
        self.errors = 0

    def __call__(self) -> None:
        self.errors += 1


def broken(*_: object) -> int:
    raise ZeroDivisionError("planted")


def test_an_error_of_ours_is_swallowed_counted_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    count = Counter()
    hook = Guard(count).wrap("loss", broken, 5)
    with caplog.at_level(logging.WARNING):
        assert [hook(1), hook(2)] == [5, 5]
    assert count.errors == 2
    (line,) = caplog.messages
    assert "loss" in line
    assert "ZeroDivisionError: planted" in line


def test_a_hook_that_keeps_failing_is_switched_off_and_the_others_go_on() -> None:
    count = Counter()
    guard = Guard(count)
    calls = []

    def failing() -> None:
        calls.append(1)
        raise ValueError

    hook, sound = guard.wrap("one", failing, None), guard.wrap("two", lambda: 7, 0)
    for _ in range(LIMIT + 5):
        hook()
    assert len(calls) == count.errors == LIMIT
    assert sound() == 7


def test_hooks_before_and_after_a_call_are_switched_off_together() -> None:
    """A rank would seem to be in that call for ever."""
    count = Counter()
    called: list[str] = []

    def ends_badly() -> None:
        called.append("end")
        raise ValueError

    begin, end, end_early = Guard(count).pair(
        "data", lambda: called.append("begin"), ends_badly, lambda: called.append("end early")
    )
    for _ in range(LIMIT + 5):
        begin()
        end()
    end_early()
    assert called == ["begin", "end"] * LIMIT
    assert count.errors == LIMIT


def test_an_interrupt_passes() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Guard(Counter()).wrap("one", interrupted, None)()


class Watch:
    """A handler that is an object."""

    def __call__(self, *_: object) -> None:
        raise TimeoutError("the script's own")

    def method(self, *_: object) -> None:
        raise TimeoutError("the script's own")


def function(*_: object) -> None:
    raise TimeoutError("the script's own")


@pytest.fixture
def restored() -> Iterator[None]:
    before = signal.getsignal(signal.SIGUSR2)
    yield
    signal.signal(signal.SIGUSR2, before)


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("handler", [function, Watch(), Watch().method])
def test_what_a_signal_handler_of_the_script_raised_in_a_hook_is_not_swallowed(
    handler: object,
) -> None:
    count = Counter()
    signal.signal(signal.SIGUSR2, handler)  # type: ignore[arg-type]

    def hook() -> None:
        signal.raise_signal(signal.SIGUSR2)

    with pytest.raises(TimeoutError):
        Guard(count).wrap("one", hook, None)()
    assert count.errors == 0
