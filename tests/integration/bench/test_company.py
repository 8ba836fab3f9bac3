"""The stand-in nodes that lost nodes are measured with: real sidecars beside real reports."""

from __future__ import annotations

import signal

import pytest
from bench.detection.company import Company
from bench.detection.node_loss import strike
from bench.detection.presence_names import NODE

pytestmark = pytest.mark.redis_server


def test_nodes_without_ranks_form_an_attempt_and_replace_the_one_that_is_killed() -> None:
    with Company(2) as company:
        for node in ("n0", "n1", "n2"):
            company.start(node)
        before = company.wait_running()
        node = before.members[1].node
        strike(company, NODE, node)
        after = company.wait_running()
        assert after.attempt > before.attempt
        assert node not in [member.node for member in after.members]


def test_a_nodes_sidecar_that_is_killed_is_started_again() -> None:
    with Company(1) as company:
        company.start("n0")
        company.wait_running()
        pid = company.signal_sidecar("n0", signal.SIGKILL)
        company.wait_until(lambda: company.sidecar("n0") not in (0, pid), 30, "another sidecar")
