"""A rank that becomes slow in a job that goes on: who is named, when, and nobody else."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.end_to_end.run.conftest import ground  # noqa: F401 - a fixture

from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.findings import Kind
from holdfast_sidecar.records.reports import NodeReport
from holdfast_sidecar.store.protocol import Section

if TYPE_CHECKING:
    from tests.end_to_end.run.conftest import Ground
    from tests.servers import Server

pytestmark = pytest.mark.torch

TRAINING = Path(__file__).with_name("training.py")
PATIENCE_S = 60.0
SLOW, SLOW_FROM = 2, 30
FOUND_WITHIN = 10
"""Steps that the judge may see of it."""
BUSY = 8
"""More of them where the machine is busy, and all ranks' steps vary."""


def reports(server: Server) -> list[NodeReport]:
    texts = server.store("j").read().section(Section.NODES).values()
    return [report for text in texts if (report := decode(NodeReport, text)) is not None]


def named(told: list[NodeReport]) -> list[tuple[str, tuple[int, ...]]]:
    found = [finding for report in told for finding in report.findings]
    return [(one.node, tuple(one.ranks)) for one in found if one.kind is Kind.STRAGGLER]


def judged_up_to(told: list[NodeReport]) -> int:
    return max((report.slow.step for report in told if report.slow is not None), default=0)


def test_a_rank_that_becomes_slow_is_named_and_no_other(ground: Ground, server: Server) -> None:  # noqa: F811
    options = ["--nnodes=2", "--nproc-per-node=2", f"--redis={server.settings.url}", "--job=j"]
    program = [str(TRAINING), str(SLOW), str(SLOW_FROM)]
    nodes = [ground.start(*options, f"--node={name}", *program) for name in "ab"]
    end_s = time.monotonic() + PATIENCE_S
    told, unnamed_up_to = reports(server), 0
    while not (found := named(told)):
        unnamed_up_to = judged_up_to(told)
        assert time.monotonic() < end_s, f"nobody was named by step {judged_up_to(told)}"
        time.sleep(0.05)
        told = reports(server)
    assert found == [("b", (SLOW,))]
    (standing,) = [report.slow for report in told if report.slow is not None]
    (slow,) = standing.slow
    assert (slow.ranks, slow.part) == ([SLOW], "forward")
    assert 0.3 < slow.slowdown < 0.7
    assert abs(slow.since_step - SLOW_FROM) <= 3
    # However long a busy machine takes to tell it here.
    assert unnamed_up_to <= SLOW_FROM + FOUND_WITHIN + BUSY

    (ground.folder / "out" / "finish").touch()
    assert [node.wait() for node in nodes] == [0, 0]
