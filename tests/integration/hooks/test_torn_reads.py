"""A page read while it is written, and after its writer was killed at any moment."""

from __future__ import annotations

import os
import random
import time

import pytest

from holdfast.contract import page
from holdfast.contract.page import RECORD_SIZE, RING_CAPACITY, RING_OFFSET, Word

SEEDS = range(8)
SOAK_SEEDS = range(int(os.environ.get("HOLDFAST_SOAK_SEEDS", "100")))

WRITER = """
    import os, random, time
    import torch
    from holdfast.rank import process
    from holdfast.contract.page import Phase

    recorder = process.current()
    print("ready", flush=True)
    step = 0
    while True:
        step += 1
        recorder.enter(Phase.FORWARD)
        recorder.report_loss(float(step))
        recorder.end_step(step)
"""


def check(data: bytes, published_later: int) -> tuple[int, int]:
    """How many records were read, and how many of them were torn or of another step."""
    published = page.parse_words(data)[Word.PUBLISHED]
    read = torn = 0
    # What the writer may have overtaken meanwhile, or be writing now, is not a reader's to take.
    for index in range(max(0, published_later - RING_CAPACITY + 1), published):
        start = RING_OFFSET + index % RING_CAPACITY * RECORD_SIZE
        record = page.parse_record(data[start : start + RECORD_SIZE])
        read += 1
        torn += record is None or record.step != index + 1 or record.loss != record.step
    return read, torn


def kill_while_reading(stage, seed: int) -> None:
    writer = stage.start(WRITER, stage.environment(PYTHONPATH=stage.stub_torch()))
    assert writer.stdout.readline() == "ready\n"
    deadline = time.monotonic() + random.Random(seed).uniform(0.01, 0.2)
    read = torn = 0
    while time.monotonic() < deadline:
        data = stage.read()
        later = page.parse_words(stage.read())[Word.PUBLISHED]
        more_read, more_torn = check(data, later)
        read, torn = read + more_read, torn + more_torn
    writer.kill()
    writer.wait()
    data = stage.read()
    published = page.parse_words(data)[Word.PUBLISHED]
    assert published > RING_CAPACITY
    after_kill, torn_after_kill = check(data, published)
    assert (after_kill, torn_after_kill) == (RING_CAPACITY - 1, 0)
    assert page.parse_words(data)[Word.STEP] in (published, published - 1)
    identity = page.parse_identity_zone(data)
    assert identity is not None
    assert identity.pid == writer.pid
    assert torn == 0
    (stage.pages / page.page_name(0, 0)).unlink()


def test_no_record_is_ever_torn_and_the_ring_outlives_its_writer(stage) -> None:
    for seed in SEEDS:
        kill_while_reading(stage, seed)


@pytest.mark.soak
def test_no_record_is_ever_torn_through_many_kills(stage) -> None:
    for seed in SOAK_SEEDS:
        kill_while_reading(stage, seed)
