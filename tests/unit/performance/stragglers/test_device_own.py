"""A rank's own time by its GPU's clock."""

from __future__ import annotations

import pytest

from holdfast.contract.page import Record
from holdfast_sidecar.performance.stragglers.windows import DeviceParts, device_parts

DEVICE = (10, 300, 500, 100, 40, 50)


def record(
    step: int,
    device_us: tuple[int, ...] = (0,) * 6,
    lag: int = 0,
    total_us: int = 1000,
    data_us: int = 0,
) -> Record:
    return Record(
        *(step, step * 10**6, total_us, data_us, 700, 200, 0, 100 - data_us, 0, 0, 0.0),
        device_us=device_us,
        device_lag=lag,
    )


def test_a_step_divides_as_it_did_on_the_device_and_not_as_the_host_was_kept() -> None:
    block = [record(1), record(2, DEVICE, 1)]
    assert device_parts(block, block) == DeviceParts(1, 1000, 0, 10, 300, 500, 100, 40, 50)


def test_waiting_is_no_work_of_its_own() -> None:
    block = [record(1), record(2, DEVICE, 1)]
    parts = device_parts(block, block)
    assert parts is not None
    assert parts.own == 900


def test_a_device_that_stands_while_its_host_waits_for_a_batch_waits_for_the_batch() -> None:
    block = [record(1, data_us=30), record(2, DEVICE, 1, data_us=30)]
    parts = device_parts(block, block)
    assert parts is not None
    assert (parts.data, parts.other) == pytest.approx((30, 20))


def test_a_batch_that_came_before_the_device_was_done_cost_nothing() -> None:
    block = [record(1, data_us=90), record(2, (0, 400, 600, 0, 0, 0), 1, data_us=90)]
    parts = device_parts(block, block)
    assert parts is not None
    assert parts.data == 0
    assert parts.forward == pytest.approx(400)


def test_ranks_that_sample_steps_of_different_length_still_compare() -> None:
    one = [record(1), record(2, DEVICE, 1)]
    other = [record(1), record(2, tuple(2 * each for each in DEVICE), 1)]
    assert device_parts(one, one) == device_parts(other, other)


def test_the_time_of_a_step_that_was_no_ordinary_one_says_nothing() -> None:
    block = [record(1), record(2, DEVICE, 1), record(3, DEVICE, 2)]
    assert device_parts(block, block[1:]) is None
    later = [record(9, DEVICE, 7)]
    assert device_parts(later, later) is not None  # of a step before the block


@pytest.mark.parametrize("block", [[], [record(1)], [record(2, (0,) * 6, 1)]])
def test_without_a_devices_time_nothing_is_known(block: list[Record]) -> None:
    assert device_parts(block, block) is None
