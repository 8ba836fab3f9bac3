"""Readings and events as they go through the pipe; what makes no sense is refused."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from holdfast_sidecar.components.gpu.nvml import child_io
from holdfast_sidecar.components.gpu.nvml.wire import (
    Absent,
    BadMessageError,
    EventsReady,
    Failed,
    Speller,
    parse_message,
    spell_changes,
    spell_reading,
)
from holdfast_sidecar.components.gpu.readings import Gpu, GpuReading, GpuUser, Signal
from holdfast_sidecar.components.xid.events import DriverEvent, XidEvent

GPU = Gpu(
    index=3,
    uuid="GPU-3",
    model="Twin 9000",
    pci="0000:17:00.0",
    values={Signal.BUSY: 0.5, Signal.ENERGY: 1.25e9, Signal.PROCESSES: 2},
    refused={"power_watts": "Not Supported"},
    users=(GpuUser(4711, 2**30), GpuUser(4712)),
    lost="GPU is lost",
    is_mig=True,
    mig_uuids=("MIG-1", "MIG-2"),
    is_ecc_on=True,
    is_persistent=False,
)
READING = GpuReading(True, "570.1", (GPU,), expected=8, read_at_s=12.5, took_s=0.01)


def sent(reading: GpuReading) -> bytes:
    return f"{child_io.READING} {spell_reading(reading)}".encode()


def altered(**changes: Any) -> bytes:
    """A reading whose only GPU was changed on its way."""
    told = json.loads(spell_reading(READING))
    told["gpus"][0].update(changes)
    return f"{child_io.READING} {json.dumps(told)}".encode()


def test_a_reading_arrives_as_it_was_sent() -> None:
    assert parse_message(sent(READING)) == READING
    silent = dataclasses.replace(GPU, users=None, values={})
    unknown = dataclasses.replace(READING, gpus=(silent,), expected=None)
    assert parse_message(sent(unknown)) == unknown


def test_the_reading_above_leaves_no_field_at_its_default() -> None:
    """Or one that is forgotten on its way would not be missed."""
    made_here = {"stale_since_s", "silence", "stuck"}
    for record in (GPU, READING):
        for field in dataclasses.fields(record):
            default = field.default
            if field.default_factory is not dataclasses.MISSING:
                default = field.default_factory()
            assert field.name in made_here or getattr(record, field.name) != default, field.name


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, "7", [1], {}, True])
def test_a_value_that_is_no_number_is_left_out(value: object) -> None:
    reading = parse_message(altered(values={"busy_ratio": value, "power_watts": 300}))
    assert isinstance(reading, GpuReading)
    assert reading.gpus[0].values == {Signal.POWER: 300}


def test_nor_is_one_that_is_too_large_for_a_number() -> None:
    content = altered(values={"busy_ratio": 0.25}).replace(b"0.25", b"1e999")
    reading = parse_message(content)
    assert isinstance(reading, GpuReading)
    assert reading.gpus[0].values == {}


def test_a_signal_of_another_version_is_left_out() -> None:
    reading = parse_message(altered(values={"charm_ratio": 1.0}))
    assert isinstance(reading, GpuReading)
    assert reading.gpus[0].values == {}


def later(**changes: Any) -> GpuReading:
    """A second after READING, its only GPU changed."""
    gpu = dataclasses.replace(GPU, **changes)
    return dataclasses.replace(READING, gpus=(gpu,), read_at_s=13.5, took_s=0.02)


@pytest.mark.parametrize(
    "after",
    [
        later(),
        later(values={**GPU.values, Signal.BUSY: 0.75, Signal.POWER: 300.0}),
        later(values={Signal.BUSY: 0.5}),
        later(values={}, refused={}, users=None, lost=""),
        later(uuid="GPU-4", index=4),
        later(is_ecc_on=None),
        dataclasses.replace(later(), driver="580.2"),
        dataclasses.replace(later(), gpus=(GPU, dataclasses.replace(GPU, index=4, uuid="GPU-4"))),
        dataclasses.replace(later(), gpus=()),
        dataclasses.replace(later(), expected=None, is_present=False),
    ],
)
def test_a_later_reading_arrives_as_it_was_sent(after: GpuReading) -> None:
    speller = Speller()
    heard: GpuReading | None = None
    for reading in (READING, after, after, READING):
        word, content = speller.spell(reading)
        told = parse_message(f"{word} {content}".encode(), heard)
        assert isinstance(told, GpuReading)
        assert told == reading
        heard = told


def test_of_a_later_reading_only_what_changed_is_told() -> None:
    speller = Speller()
    speller.spell(READING)
    word, content = speller.spell(later(values={**GPU.values, Signal.BUSY: 0.75}))
    assert word == child_io.CHANGES
    assert json.loads(content)["gpus"] == [{"values": {"busy_ratio": 0.75}}]
    assert json.loads(speller.spell(later(values=GPU.values))[1])["gpus"] != [{}]
    assert json.loads(speller.spell(later(values=GPU.values))[1])["gpus"] == [{}]


def test_a_gpu_that_did_not_change_stays_the_same_object() -> None:
    content = f"{child_io.CHANGES} {spell_changes(READING, later())}".encode()
    reading = parse_message(content, READING)
    assert isinstance(reading, GpuReading)
    assert reading.gpus[0] is GPU
    assert (reading.read_at_s, reading.took_s) == (13.5, 0.02)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, "7", [1], {}, True])
def test_a_value_that_is_a_number_no_more_is_left_out(value: object) -> None:
    told = json.loads(spell_changes(READING, later()))
    told["gpus"] = [{"values": {"busy_ratio": value, "charm_ratio": 1.0}}]
    reading = parse_message(f"{child_io.CHANGES} {json.dumps(told)}".encode(), READING)
    assert isinstance(reading, GpuReading)
    assert reading.gpus[0].values == {Signal.ENERGY: 1.25e9, Signal.PROCESSES: 2}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b'{"gpus":[],"read_at_s":1.0,"took_s":0.1}',
        b'{"gpus":[{},{}],"read_at_s":1.0,"took_s":0.1}',
        b'{"gpus":[{}],"took_s":0.1}',
        b'{"gpus":[{"uuid":"GPU-3"}],"read_at_s":1.0,"took_s":0.1}',
        b'{"gpus":[7],"read_at_s":1.0,"took_s":0.1}',
        b'{"gpus":[{"values":null}],"read_at_s":1.0,"took_s":0.1}',
    ],
)
def test_changes_that_make_no_sense_are_refused(content: bytes) -> None:
    with pytest.raises(BadMessageError):
        parse_message(b"changes " + content, READING)


def test_changes_of_nothing_are_refused() -> None:
    with pytest.raises(BadMessageError):
        parse_message(f"{child_io.CHANGES} {spell_changes(READING, later())}".encode())


def test_events_and_words_are_told_apart() -> None:
    xid = XidEvent(1700000000.25, "nvml", 79, "0000:17:00.0", "")
    assert parse_message(b"event 1700000000.25 xid 79 0000:17:00.0") == xid
    assert parse_message(b"event 1.5 xid 999 -") == XidEvent(1.5, "nvml", 999, "", "")
    for number in (0, 65536, 2**64 - 1):
        unknown = DriverEvent(1.5, "unknown_xid", "0000:17:00.0", number)
        assert parse_message(b"event 1.5 xid %d 0000:17:00.0" % number) == unknown
    storm = DriverEvent(1.5, "single_bit_ecc_storm", "0000:17:00.0", 0)
    assert parse_message(b"event 1.5 single_bit_ecc_storm 0 0000:17:00.0") == storm
    assert parse_message(b"listening 7 GPU is lost") == EventsReady(7, "GPU is lost")
    assert parse_message(b"listening 8 ") == EventsReady(8, "")
    assert parse_message(b"absent no library") == Absent("no library")
    assert parse_message(b"failed Unknown Error") == Failed("Unknown Error")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe\x00",
        b"reading",
        b"reading []",
        b"reading {",
        b"reading {}",
        b"reading " + b"[" * 100_000,
        altered(values=None),
        altered(index="three"),
        altered(users=[{}]),
        altered(is_mig="no"),
        b"event 1.5 xid seventy-nine 0000:17:00.0",
        b"event 1.5 xid 79",
        b"listening all",
        b"(lp0\nS'pickle'\np1\na.",
    ],
)
def test_what_makes_no_sense_is_refused(content: bytes) -> None:
    with pytest.raises(BadMessageError):
        parse_message(content)
