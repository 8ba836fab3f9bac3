"""What `holdfast nodes` says of a node in a few words."""

from __future__ import annotations

import dataclasses

import pytest

from holdfast_sidecar.cli import nodes
from holdfast_sidecar.cli.nodes import OUTSIDE, NodeLine, exertion_lines
from holdfast_sidecar.records.plan import Quarantine
from holdfast_sidecar.records.reports import Exertion


@pytest.mark.parametrize(
    ("remedy", "told"),
    [
        ("", "outside for another 1 h: why"),
        ("replace", "outside for another 1 h: why"),
        ("reset_gpu", "outside until its GPU was reset, at most for another 1 h: why"),
        ("reboot_node", "outside until it was rebooted, at most for another 1 h: why"),
    ],
)
def test_what_ends_a_quarantine_sooner_is_said(remedy: str, told: str) -> None:
    kept_out = Quarantine("m", "a", 0.0, 3600.0, ["why"], remedy=remedy)
    line = NodeLine("a", OUTSIDE, quarantine=dataclasses.replace(kept_out, since_unix_s=-60.0))
    assert nodes.why(line, 0.0) == told


def test_for_how_long_no_check_counts_is_said() -> None:
    kept_out = Quarantine("m", "a", 0.0, 3600.0, ["why"], remedy="reset_gpu")
    told = nodes.why(NodeLine("a", OUTSIDE, quarantine=kept_out), 18.0)
    assert told.startswith("outside until its GPU was reset (checked within 42.0 s), at most")


@pytest.mark.parametrize("state", ["failed", "refused"])
def test_a_test_that_came_to_nothing_was_not_made(state: str) -> None:
    (line,) = exertion_lines(Exertion("r", state, "no torch here"), [], 0.0)
    assert line == "test        not made: no torch here"
