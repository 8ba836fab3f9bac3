"""Frames come whole or not at all."""

from __future__ import annotations

import struct

import pytest

from holdfast_sidecar.components.gpu.nvml.child_io import (
    MAGIC,
    MOST_BYTES,
    BadFrameError,
    FrameReader,
    frame,
)


def test_frames_come_out_as_they_went_in_however_the_pipe_cuts_them() -> None:
    contents = [b"", b"absent why", b"x" * 5000]
    stream = b"".join(map(frame, contents))
    for size in (1, 7, 4096, len(stream)):
        frames = FrameReader()
        chunks = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert [one for chunk in chunks for one in frames.cut(chunk)] == contents


def test_the_half_frame_of_a_child_that_died_is_nothing() -> None:
    assert FrameReader().cut(frame(b"reading {}")[:-1]) == []


@pytest.mark.parametrize(
    "stream",
    [
        b"Traceback (most recent call last):",
        b"N",
        frame(b"reading {}")[:-1] + b"!",
        frame(b"whole") + b"driver says hello\n",
        frame(b"half")[:-2] + frame(b"whole"),
        struct.pack("<4sII", MAGIC, MOST_BYTES + 1, 0),
    ],
    ids=["text", "one byte", "checksum", "text after", "torn", "endless"],
)
def test_what_is_no_frame_is_refused(stream: bytes) -> None:
    with pytest.raises(BadFrameError):
        FrameReader().cut(stream)
