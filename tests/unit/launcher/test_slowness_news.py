"""What the console says of who is slow."""

from __future__ import annotations

import dataclasses

from tests.unit.records.slow_job import QUIET, SLOW, STANDING, nodes, slow

from holdfast_sidecar.launcher.console import SlownessNews
from holdfast_sidecar.launcher.plan_watch import PlanWatch
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.steps import SlowCause, Slowness
from holdfast_sidecar.store.memory_store import MemoryServer, MemoryStore
from holdfast_sidecar.store.protocol import Section

TOLD = (
    "slow: rank 5 on b, +31 % since step 1200: cpu_quota; the job would be 18 % faster without it "
    "(holdfast explain --slow)"
)


def test_who_lasts_is_told_once_and_once_that_it_is_over() -> None:
    news = SlownessNews()
    passing = dataclasses.replace(STANDING, slow=[dataclasses.replace(SLOW, is_persistent=False)])
    assert news.line(None) == ""
    assert news.line(passing) == ""
    assert news.line(STANDING) == TOLD
    worse = dataclasses.replace(STANDING, slow=[dataclasses.replace(SLOW, slowdown=0.4)])
    assert news.line(worse) == ""
    assert news.line(QUIET) == "not slow any more: rank 5 on b"
    assert news.line(QUIET) == ""


def test_ranks_that_join_a_trouble_or_leave_it_are_no_news() -> None:
    def line(*found: Slowness) -> str:
        return news.line(dataclasses.replace(STANDING, slow=list(found)))

    news = SlownessNews()
    assert line(slow(4, 5)).startswith("slow: ranks 4, 5 on b")
    assert line(slow(4, 5, 6)) == ""
    assert line(slow(4), slow(6)) == ""
    assert line(slow(6), slow(7, cause=SlowCause.LINK)).startswith("slow: rank 7 on b")
    assert line(slow(6), slow(6, 7, cause=SlowCause.LINK)) == ""
    assert line(slow(6)) == "not slow any more: ranks 6, 7 on b"


def test_a_new_attempt_is_told_of_anew() -> None:
    news = SlownessNews()
    assert news.line(STANDING) == TOLD
    assert news.line(dataclasses.replace(QUIET, attempt=1)) == ""
    assert news.line(dataclasses.replace(STANDING, attempt=1)) == TOLD


def test_only_who_speaks_for_all_reads_the_reports() -> None:
    server = MemoryServer(clock=lambda: 0.0)
    store = MemoryStore(server)
    store.report(Section.NODES, "a", encode(dataclasses.replace(nodes()[0])))
    watch = PlanWatch(MemoryStore(server), look_every_s=0.0)
    watch._follow()
    assert watch.standing is None
    watch.hears_slowness = True
    watch._follow()
    assert watch.standing == STANDING
    store.report(Section.NODES, "a", encode(nodes(QUIET)[0]))
    watch._follow()
    assert watch.standing == STANDING  # looked up a moment ago
