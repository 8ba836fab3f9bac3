"""What a launcher makes of a scheduler's signals."""

from __future__ import annotations

import contextlib
import signal

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch.distributed.elastic.multiprocessing import SignalException  # noqa: E402

from holdfast_sidecar.launcher.shutdown import AGAIN_S, PreemptionNotice  # noqa: E402

GRACE_S = 25.0


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def asked(clock: Clock) -> tuple[PreemptionNotice, list[str]]:
    woken: list[str] = []
    preemption = PreemptionNotice(GRACE_S, lambda: woken.append("woken"), clock)
    with preemption.waiting():
        preemption.receive(signal.SIGTERM)
    return preemption, woken


def test_the_first_signal_asks_and_wakes_who_looks() -> None:
    preemption, woken = asked(Clock())
    assert preemption.asked is signal.SIGTERM
    assert woken == ["woken"]
    assert not preemption.is_over()
    preemption.check()


def test_the_same_signal_passed_on_by_others_is_one() -> None:
    clock = Clock()
    preemption, woken = asked(clock)
    clock.now_s += AGAIN_S
    preemption.receive(signal.SIGTERM)
    assert woken == ["woken"]


def test_a_second_signal_ends_the_waiting() -> None:
    clock = Clock()
    preemption, _ = asked(clock)
    clock.now_s += AGAIN_S + 0.1
    with pytest.raises(SignalException, match="SIGTERM"):
        preemption.receive(signal.SIGTERM)


def test_without_ranks_to_save_the_first_signal_ends_the_launch() -> None:
    with pytest.raises(SignalException, match="SIGTERM"):
        PreemptionNotice(GRACE_S, lambda: None, Clock()).receive(signal.SIGTERM)


def test_a_person_at_a_terminal_does_not_wait_for_a_checkpoint() -> None:
    preemption = PreemptionNotice(GRACE_S, lambda: None, Clock())
    with preemption.waiting(), pytest.raises(SignalException, match="SIGINT"):
        preemption.receive(signal.SIGINT)


def test_what_was_raised_where_nobody_could_take_it_is_raised_again() -> None:
    """Python swallows what a signal handler raises inside a destructor or a callback."""
    preemption = PreemptionNotice(GRACE_S, lambda: None, Clock())
    with contextlib.suppress(SignalException):
        preemption.receive(signal.SIGINT)
    with pytest.raises(SignalException, match="SIGINT"):
        preemption.check()


def test_the_time_for_saving_ends() -> None:
    clock = Clock()
    preemption, _ = asked(clock)
    clock.now_s += GRACE_S - 0.1
    assert not preemption.is_over()
    clock.now_s += 0.1
    assert preemption.is_over()


def test_only_signals_that_the_launcher_handles_are_heeded() -> None:
    def raising(*_: object) -> None:
        raise AssertionError

    before = signal.signal(signal.SIGTERM, raising)
    try:
        preemption = PreemptionNotice(GRACE_S, lambda: None)
        preemption.heed()
        with preemption.waiting():
            signal.raise_signal(signal.SIGTERM)
        assert preemption.asked is signal.SIGTERM
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("at_terminal", [True, False])
def test_a_hangup_waits_for_a_save_where_its_terminal_is_gone(at_terminal: bool) -> None:
    """A connection that breaks ended the job at once, unsaved."""
    preemption = PreemptionNotice(GRACE_S, lambda: None, Clock(), lambda: at_terminal)
    with preemption.waiting():
        if at_terminal:
            with pytest.raises(SignalException, match="SIGHUP"):
                preemption.receive(signal.SIGHUP)
        else:
            preemption.receive(signal.SIGHUP)
            assert preemption.asked is signal.SIGHUP
            preemption.check()
