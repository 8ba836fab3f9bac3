from __future__ import annotations

import pytest

from holdfast_sidecar.components.host.clock import EVERY_S, ClockWatch, how_far_off
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.reports import GateVerdict, NodeReport

TABLE = [
    ([], 0.0),
    ([500.0], 0.0),
    ([0.4, 1.2, 0.8], 0.0),
    ([100.0, 101.0], 100.5),
    ([100.0, 0.5], 0.0),
    ([200.0, -200.0], 0.0),
    ([-90.0, -91.0, 0.3], -90.5),
    ([-90.0, 0.3, 0.4], 0.0),
]


@pytest.mark.parametrize(("ahead_s", "off_s"), TABLE)
def test_a_clock_is_wrong_when_most_others_say_so(ahead_s: list[float], off_s: float) -> None:
    assert how_far_off(ahead_s, 60.0) == off_s


def test_the_age_of_a_report_is_no_fault_however_strict_the_limit() -> None:
    assert how_far_off([1.5, 1.9], 0.1) == 0.0


def reports(beat: int, at_unix_s: float, *nodes: str) -> dict[str, str]:
    gate = GateVerdict("fit", checked_unix_s=at_unix_s)
    return {n: encode(NodeReport(n, "i", beat, 1, 1, 1, True, gate=gate)) for n in nodes}


def test_only_reports_that_move_count() -> None:
    watch = ClockWatch("a", 60.0)
    old = reports(5, 1000.0, "x", "y", "z")
    assert watch.look(old | reports(5, 9000.0, "b", "c"), 10.0, 9000.0) == 0.0
    assert watch.look(old | reports(7, 9001.0, "b", "c"), 11.0, 9001.0) == 0.0, "x, y, z are dead"


def test_it_looks_twice_and_then_not_for_a_while() -> None:
    watch = ClockWatch("a", 60.0)
    assert watch.look(reports(1, 9900.0, "a", "b", "c"), 10.0, 9000.0) == 0.0
    assert watch.look(reports(2, 9900.5, "a", "b", "c"), 10.5, 9000.5) == 0.0, "too soon"
    assert watch.look(reports(3, 9901.0, "a", "b", "c"), 11.0, 9001.0) == -900.0
    right = reports(9, 9002.0, "a", "b", "c")
    assert watch.look(right, 12.0, 9002.0) == -900.0
    assert watch.look(right, 11.0 + EVERY_S, 9031.0) == -900.0


def test_a_clock_that_was_put_right_is_right_again() -> None:
    watch = ClockWatch("a", 60.0)
    now_s = 0.0
    for shift, off in ((100.0, True), (0.0, False)):
        for beat in (1, 2):
            now_s += EVERY_S / 2 if beat == 2 else EVERY_S
            found = watch.look(
                reports(beat, 1000.0 + now_s, "b", "c"), now_s, 1000.0 + now_s + shift
            )
        assert bool(found) is off
