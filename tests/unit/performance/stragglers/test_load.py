from __future__ import annotations

from holdfast_sidecar.performance.stragglers.load import Counts, Load, Meter, NodeLoad

QUIET = NodeLoad()


def test_a_line_says_what_kept_its_process_since_the_line_before() -> None:
    meter = Meter()
    meter.note(Counts(10.0, 100.0, 3.0, 7.0, 40))
    meter.note(Counts(12.0, 101.0, 3.5, 7.2, 60))
    assert meter.read(QUIET) == Load(500, 150, 100, 10)
    meter.note(Counts(14.0, 105.0, 3.5, 7.2, 60))
    assert meter.read(NodeLoad(storage=0.31, clock=0.5)) == Load(2000, 0, 0, 0, 310, 500)


def test_what_was_counted_for_less_than_a_second_says_what_it_said_before() -> None:
    meter = Meter()
    meter.note(Counts(10.0, 100.0))
    meter.note(Counts(11.0, 101.0))
    assert meter.read(QUIET).cpu_permille == 1000
    meter.note(Counts(11.5, 101.0))
    assert meter.read(QUIET).cpu_permille == 1000
    meter.note(Counts(12.0, 101.0))
    assert meter.read(QUIET).cpu_permille == 1  # none at all; 0 would be that nobody knows


def test_what_nobody_counts_is_nothing() -> None:
    meter = Meter()
    assert meter.read(QUIET) == Load()
    meter.note(None)
    meter.note(Counts(10.0, 100.0, None, None))
    meter.note(Counts(12.0, 100.0, 5.0, 8.0))
    assert meter.read(QUIET) == Load(cpu_permille=1)


def test_another_control_groups_counts_are_no_throttling_and_many_cpus_no_more_than_all() -> None:
    meter = Meter()
    meter.note(Counts(10.0, 100.0, 0.0, 50.0))
    meter.note(Counts(12.0, 100.0, 0.0, 1.0))
    assert meter.read(QUIET).throttled_permille == 0
    meter.note(Counts(14.0, 100.0, 0.0, 9.0))
    assert meter.read(QUIET).throttled_permille == 1000


def test_who_is_throttled_stands_in_no_queue() -> None:
    meter = Meter()
    meter.note(Counts(10.0, 100.0, 0.0, 0.0))
    meter.note(Counts(12.0, 100.2, 1.8, 1.8))
    assert meter.read(QUIET) == Load(100, 0, 900)


def test_a_clock_that_stands_nearly_still_is_not_an_unknown_one() -> None:
    assert Meter().read(NodeLoad(clock=0.0)).clock_permille == 1
