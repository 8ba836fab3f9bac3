"""A sidecar that others would reach without a word does not start."""

from __future__ import annotations

from pathlib import Path

from tests.integration.sidecar.node import Node, wait_for
from tests.servers import Server


def test_a_sidecar_beyond_loopback_says_in_one_line_what_it_wants(
    tmp_path: Path, server: Server
) -> None:
    node = Node(tmp_path, server)
    try:
        refused = node.sidecar("--listen", "0.0.0.0:0")
        assert refused.wait(20) == 2
        (line,) = node.log().splitlines()
        assert "lets other machines read along: set sidecar.token_file" in line
        node.sidecar("--listen", "0.0.0.0:0", "--listen-insecure", "--set", "sidecar.advertise=n7")
        report = wait_for(lambda: (r := node.report()) and r.metrics_address and r)
        assert report.metrics_address.startswith("n7:")
    finally:
        node.close()
