"""The shipped waits, to the second: a page within two minutes, and none where a spare is quicker.

In make soak alone, as they take some eight minutes. Two jobs at once: one has a spare, the other
has none. The node that is killed leads, so that somebody else has to tell of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from testing.alerting import knows_the_job
from tests.end_to_end.oncall.duty import on_duty, watching
from tests.end_to_end.oncall.patients import flap, pair, with_a_spare
from tests.servers import Server, required

pytestmark = [
    pytest.mark.torch,
    pytest.mark.prometheus,
    pytest.mark.soak,
    pytest.mark.timeout(900),
]

AS_SHIPPED = 1.0
KNOWN_WITHIN_S = 120.0
PAGED_WITHIN_S = 120.0
"""What is promised, see docs/alerts.md."""
ALL_TOLD_S = 180.0
"""HoldfastJobDown would page last: it waits for 90 s itself, then for a scrape, an evaluation and
its group. So long the node stays away."""
TICKET_WITHIN_S = 180.0
"""HoldfastNodeReplaced waits for a minute and for 15 s of silence, and is grouped for 30 s."""
RESOLVED_WITHIN_S = 330.0
"""keep_firing_for (1m) and group_interval (30s), then scrapes, evaluations and the restart."""


def test_a_page_comes_within_two_minutes_and_a_spare_makes_it_a_ticket(
    room: ExitStack, new_server: Callable[[], Server], tmp_path: Path
) -> None:
    for program in ("prometheus", "prometheus-alertmanager"):
        required(program)
    server = new_server()
    two, (spared, links) = pair(server, "pair"), with_a_spare(server, "spared")
    for patient in (two, spared):
        room.callback(patient.job.close)
        for node in "ab":
            patient.start(node)
    spared.job.await_stepping(2)
    spared.start("c")
    two.job.await_stepping(2)
    duty = room.enter_context(on_duty(tmp_path / "duty", AS_SHIPPED))
    seeds = [*two.sidecars, *spared.sidecars]
    prometheus = room.enter_context(watching(tmp_path / "prometheus", duty, seeds, AS_SHIPPED))
    prometheus.wait_for(knows_the_job("pair", 2), bool, KNOWN_WITHIN_S)
    prometheus.wait_for(knows_the_job("spared", 3), bool, KNOWN_WITHIN_S)
    prometheus.wait_for('holdfast_job_nodes_spare{run="spared"} == 1', bool, KNOWN_WITHIN_S)

    lost = two.leader()
    lost_unix_s = two.kill(lost)
    spared.kill("b")
    spared.job.await_stepping(2, attempt=1)
    flap(links)
    duty.await_that(lambda: bool(duty.pages("pair")), "somebody is paged", PAGED_WITHIN_S)
    (page,) = duty.pages("pair")
    assert page.at_unix_s - lost_unix_s < PAGED_WITHIN_S
    assert page.names == ["HoldfastNodeLost"]
    (alert,) = page.alerts
    assert (alert.node, "node_lost" in alert.description) == (lost, True)

    time.sleep(max(0.0, lost_unix_s + ALL_TOLD_S - time.time()))
    assert [one.names for one in duty.pages("pair")] == [["HoldfastNodeLost"]]
    two.start(lost)
    two.job.await_stepping(2, attempt=1)
    duty.await_that(lambda: bool(duty.tickets("spared", "b")), "there is a ticket", TICKET_WITHIN_S)
    duty.await_that(
        lambda: duty.all_clear("pair") is not None, "the page is resolved", RESOLVED_WITHIN_S
    )
    clear = duty.all_clear("pair")
    assert clear is not None
    print(
        f"paged after {page.at_unix_s - lost_unix_s:.0f} s, "
        f"resolved after {clear.at_unix_s - lost_unix_s:.0f} s"
    )
    assert [one.names for one in duty.pages("pair")] == [["HoldfastNodeLost"]]
    assert duty.tickets("pair", lost) == []
    assert duty.pages("spared") == []
    assert [one.names for one in duty.tickets("spared", "b")] == [["HoldfastNodeReplaced"]]
    assert [one.names for one in duty.tickets("spared", "a")] == [["HoldfastLinkFlapping"]]
