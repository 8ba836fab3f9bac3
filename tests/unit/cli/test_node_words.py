"""What `holdfast nodes` says of a node in a few words."""

from __future__ import annotations

import pytest

from holdfast_sidecar.cli.nodes import words
from holdfast_sidecar.node_lines import OUTSIDE, NodeLine
from holdfast_sidecar.records.quarantine import Quarantine


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
    assert words.why(NodeLine("a", OUTSIDE, quarantine=kept_out), 0.0) == told
