"""Much goes wrong in one evening, to several runs at once, and each is told as it should be.

All at once, as each takes some time: real jobs, real Prometheus, real Alertmanager, the shipped
rules, routes and scrape block. For CI their waits are a sixth, the silence of a node among them
(`testing/alerting.py`). That shows who is told of what and how often, but neither how soon nor that
a spare is quicker than the page: `test_shipped_waits.py` does, in make soak. The run with a spare
has a Prometheus of its own, where silence stays as long as it is shipped: Holdfast's recovery takes
its seconds whatever the factor, and would lose to a page that comes after two.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from testing.alerting import knows_the_job
from testing.pager import watchdogs
from tests.end_to_end.oncall.duty import Duty, on_duty, watching
from tests.end_to_end.oncall.looking import still_waiting, unanswered
from tests.end_to_end.oncall.patients import Patient, flap, log_xid, pair, with_a_spare
from tests.integration.sidecar.node import Node
from tests.prometheus_server import Prometheus
from tests.servers import Server, free_port, required

pytestmark = [pytest.mark.torch, pytest.mark.prometheus, pytest.mark.timeout(300)]

FACTOR = 6.0
"""A restart takes its seconds whatever the factor: with ten, HoldfastRanksMissing would page for
one that takes half a minute."""
KNOWN_WITHIN_S = 60.0
TOLD_WITHIN_S = 90.0
"""Some 35 s by the waits; the rest is for a machine on which everything else runs as well."""

ANSWERED_WITHIN_S = 15.0
"""Rates need a few scrapes of what has only just begun."""

WATCHDOG_FACTOR = 15.0
WORD_S = 60.0 / WATCHDOG_FACTOR
"""How often the shipped route passes the watchdog on (1m)."""
RESEND_S = 60.0 / WATCHDOG_FACTOR
"""How often Prometheus repeats an alert unless told (1m). Alertmanager believes it for four times
as long, so that a dead Prometheus is missed no sooner than after four minutes."""
DEAD_MAN_S = 3 * WORD_S
"""A dead man's switch that calls after the third word that did not come."""


@dataclass
class Watched:
    """Nodes with a sidecar alone, as beside a plain torchrun: no launcher starts it again."""

    nodes: dict[str, Node]
    listen: dict[str, str]


@dataclass
class Evening:
    """What was done, and who heard of it."""

    duty: Duty
    switch: Duty
    """Who is told by the Prometheus that died."""
    pair: Patient
    spared: Patient
    lost_of_pair: str
    lost_unix_s: float
    prometheus: Prometheus
    """That of the run with a spare."""


RUNS = ("pair", "spared", "watched", "stranded")

LOST_OF_SPARED = "b"
"""The links of node a are pulled, and c is the spare."""


@pytest.fixture(scope="module")
def evening(
    room: ExitStack, new_server: Callable[[], Server], tmp_path_factory: pytest.TempPathFactory
) -> Evening:
    for program in ("prometheus", "prometheus-alertmanager"):
        required(program)
    folder = tmp_path_factory.mktemp("evening")
    # First, since words are waited for, and it needs nobody.
    switch = room.enter_context(on_duty(folder / "switch", WATCHDOG_FACTOR))
    nobody = [f"127.0.0.1:{free_port()}"]
    doomed = room.enter_context(
        watching(folder / "doomed", switch, nobody, WATCHDOG_FACTOR, resend_s=RESEND_S)
    )
    server, short_lived = new_server(), new_server()
    two, (spared, links) = pair(server, "pair"), with_a_spare(server, "spared")
    start_jobs(room, two, spared)
    watched = only_watched(room, folder / "watched", server, "watched", "ab")
    stranded = only_watched(room, folder / "stranded", short_lived, "stranded", "a")

    duty = room.enter_context(on_duty(folder / "duty", FACTOR))
    seeds = [*two.sidecars, *watched.listen.values(), *stranded.listen.values()]
    most = room.enter_context(watching(folder / "most", duty, seeds, FACTOR))
    patient = room.enter_context(
        watching(folder / "patient", duty, spared.sidecars, FACTOR, silence=False)
    )
    for prometheus, expression in (
        (most, knows_the_job("pair", 2)),
        (most, 'count(up{run="watched"} == 1) == 2'),
        (most, 'holdfast_store_up{run="stranded"} == 1'),
        (patient, knows_the_job("spared", 3)),
        (patient, 'holdfast_job_nodes_spare{run="spared"} == 1'),
    ):
        prometheus.wait_for(expression, bool, KNOWN_WITHIN_S)
    switch.await_that(lambda: len(words(switch)) >= 3, "the watchdog is heard", 30.0)

    lost = two.follower()
    lost_unix_s = two.kill(lost)
    spared.kill(LOST_OF_SPARED)
    watched.nodes["b"].children[-1].kill()
    short_lived.kill()
    doomed.process.kill()
    doomed.process.wait()
    # Not while the gate looks at that node for the next attempt.
    spared.job.await_stepping(2, attempt=1)
    log_xid(links)
    flapping = threading.Thread(target=flap, args=(links,))
    flapping.start()
    room.callback(flapping.join)
    return Evening(duty, switch, two, spared, lost, lost_unix_s, patient)


def start_jobs(room: ExitStack, two: Patient, spared: Patient) -> None:
    """Both train, and the second one has its spare."""
    for job in (two, spared):
        room.callback(job.job.close)
        for node in "ab":
            job.start(node)
    spared.job.await_stepping(2)
    spared.start("c")  # last: whoever is there first trains
    two.job.await_stepping(2)


def only_watched(
    room: ExitStack, folder: Path, server: Server, run: str, names: Sequence[str]
) -> Watched:
    """These nodes of a run, each with a sidecar."""
    found = Watched({}, {})
    for name in names:
        found.nodes[name] = Node(folder / name, server, job=run, name=name)
        found.listen[name] = f"127.0.0.1:{free_port()}"
        room.callback(found.nodes[name].close)
        found.nodes[name].sidecar("--listen", found.listen[name])
    return found


def words(switch: Duty) -> list[float]:
    """When the watchdog was heard."""
    return watchdogs(switch.manager.webhook.notices())


def test_a_lost_node_without_a_spare_is_one_page_that_resolves_once_it_is_back(
    evening: Evening,
) -> None:
    duty, patient, lost = evening.duty, evening.pair, evening.lost_of_pair
    duty.await_that(lambda: bool(duty.pages("pair")), "somebody is paged", TOLD_WITHIN_S)
    (page,) = duty.pages("pair")
    assert page.at_unix_s > evening.lost_unix_s
    assert page.names == ["HoldfastNodeLost"]
    (alert,) = page.alerts
    assert (alert.run, alert.node) == ("pair", lost)
    assert "node_lost" in alert.description
    assert alert.runbook.endswith("/HoldfastNodeLost.md")

    patient.start(lost)
    patient.job.await_stepping(2, attempt=1)
    duty.await_that(
        lambda: duty.all_clear("pair") is not None, "the page is resolved", TOLD_WITHIN_S
    )
    assert [one.names for one in duty.pages("pair")] == [["HoldfastNodeLost"]]


def test_a_spare_that_took_over_pages_nobody_and_is_a_ticket(evening: Evening) -> None:
    """How many tickets, only the shipped waits show: here group_wait is shorter than the silence
    after which a node counts as lost, and its dead sidecar is told before that."""
    duty = evening.duty
    duty.await_that(
        lambda: duty.has_ticket("spared", LOST_OF_SPARED, "HoldfastNodeReplaced"),
        "there is a ticket for the node that was replaced",
        TOLD_WITHIN_S,
    )
    assert duty.pages("spared") == []


def test_a_flapping_link_pages_nobody(evening: Evening) -> None:
    duty = evening.duty
    duty.await_that(
        lambda: duty.has_ticket("spared", "a", "HoldfastLinkFlapping"),
        "there is a ticket for the link",
        TOLD_WITHIN_S,
    )
    assert duty.pages("spared") == []


def test_a_dead_sidecar_is_a_ticket(evening: Evening) -> None:
    duty = evening.duty
    duty.await_that(lambda: bool(duty.tickets("watched", "b")), "there is a ticket", TOLD_WITHIN_S)
    assert [one.names for one in duty.tickets("watched", "b")] == [["HoldfastSidecarDown"]]
    assert duty.pages("watched") == []


def test_a_dead_redis_is_one_page(evening: Evening) -> None:
    duty = evening.duty
    duty.await_that(lambda: bool(duty.pages("stranded")), "somebody is paged", TOLD_WITHIN_S)
    assert [one.names for one in duty.pages("stranded")] == [["HoldfastStoreDown"]]


def test_every_query_of_a_dashboard_finds_something_or_is_known_to_wait(evening: Evening) -> None:
    """Of real sidecars, whose node was lost and replaced; still_waiting.yaml says for what."""
    waiting = still_waiting()
    until_s = time.monotonic() + ANSWERED_WITHIN_S
    while (found := unanswered(evening.prometheus)) - waiting.may and time.monotonic() < until_s:
        time.sleep(1.0)
    print("\n".join(sorted(found)))  # pytest shows it where the test fails
    assert sorted(found - waiting.may) == [], "nothing is found"
    assert sorted(waiting.must - found) == [], "they do not wait any more"


def test_a_dead_prometheus_is_told_by_the_watchdog_s_silence(evening: Evening) -> None:
    spoken = words(evening.switch)
    gaps = [later - earlier for earlier, later in pairwise(spoken)]
    assert max(gaps) < DEAD_MAN_S, "the switch would have called for nothing"
    evening.switch.await_that(
        lambda: time.time() - words(evening.switch)[-1] > DEAD_MAN_S, "the switch calls", 60.0
    )
    # And Alertmanager is well: it is Prometheus whose word does not come.
    assert evening.switch.manager.is_ready()


def test_nobody_was_woken_for_more_until_the_end(evening: Evening) -> None:
    """What takes longest to be told had the time in which the watchdog was missed."""
    woken = {run: [one.names for one in evening.duty.pages(run)] for run in RUNS}
    assert woken == {
        "pair": [["HoldfastNodeLost"]],
        "spared": [],
        "watched": [],
        "stranded": [["HoldfastStoreDown"]],
    }
