"""Which backends a rank's process groups use, as torch writes them down."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.contract import page
from holdfast.contract.page import Flag, Word
from holdfast.patches.group import GroupReport, uses_gloo_alone
from holdfast.recording.group_slots import GroupSlots
from holdfast.recording.recorder import Recorder


@pytest.mark.parametrize(
    ("config", "is_alone"),
    [
        ("cpu:gloo", True),
        ("cpu:gloo,cuda:gloo", True),
        ("cpu:gloo,cuda:nccl", False),
        ("cuda:nccl", False),
        ("fake", False),
        ("", False),
    ],
)
def test_a_group_uses_gloo_alone_when_it_does_for_every_device(config: str, is_alone: bool) -> None:
    assert uses_gloo_alone(config) is is_alone


def flags_of(**world: Any) -> int:
    memory = bytearray(page.PAGE_SIZE)
    c10d = SimpleNamespace(_world=SimpleNamespace(**world))
    torch = SimpleNamespace(distributed=SimpleNamespace(distributed_c10d=c10d))
    recorder = Recorder(memory, attempt=0)
    GroupReport(torch, recorder, GroupSlots(recorder)).backends()
    return page.parse_words(bytes(memory))[Word.FLAGS]


def test_another_backend_among_the_groups_is_told_and_so_is_a_torch_that_does_not_say() -> None:
    assert flags_of(pg_backend_config={"first": "cpu:gloo"}) == 0
    assert flags_of(pg_backend_config={"first": "cpu:gloo", "second": "cuda:nccl"}) & (
        Flag.OTHER_BACKEND
    )
    assert flags_of() & Flag.OTHER_BACKEND
