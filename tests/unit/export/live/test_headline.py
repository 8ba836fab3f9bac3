from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.export.picture import INCIDENTS
from tests.unit.ranks.large_job import Job, picture

from holdfast_sidecar.export.live.build import context_of, gather
from holdfast_sidecar.export.live.view import LiveView
from holdfast_sidecar.records.findings import Finding, Kind, Remedy

CRASH = replace(INCIDENTS["i2"], culprit_node="node-1", culprit_ranks=[9], attempt=3)


def seen(**job: Any) -> LiveView:
    quiet: dict[str, Any] = {"slow": None, "incidents": {}}
    return gather(context_of(picture(Job(16, **{**quiet, **job})), "llm", None))


def test_a_job_that_runs_well_is_green() -> None:
    view = seen()
    assert (view.light, view.headline) == ("green", "running, and nothing is wrong")
    assert view.warnings == []


def test_a_job_that_ended_well_is_green() -> None:
    view = seen(state="done")
    assert (view.light, view.headline) == ("green", "every rank ended well")


def test_a_job_that_was_stopped_over_a_failure_is_red() -> None:
    view = seen(state="stopped", plan={"exit_code": 3, "message": "no restart is left"})
    assert view.light == "red"
    assert view.headline == "stopped with exit code 3: no restart is left"


def test_a_job_that_somebody_stopped_is_grey() -> None:
    view = seen(state="stopped", plan={"message": "asked for by ada"})
    assert (view.light, view.headline) == ("grey", "stopped: asked for by ada")


@pytest.mark.parametrize(("state", "light"), [("ended", "red"), ("running", "yellow")])
def test_an_open_incident_is_red_until_its_attempt_runs_again(state: str, light: str) -> None:
    view = seen(state=state, incidents={"i2": CRASH})
    assert view.light == light
    assert view.headline.startswith("Rank 9 on node node-1 crashed")


def test_an_incident_that_is_over_is_no_trouble() -> None:
    over = replace(CRASH, recovered_unix_s=300.0, decided="restart")
    assert seen(incidents={"i2": over}).light == "green"


def test_a_leader_that_waits_says_for_what() -> None:
    view = seen(state="ended", waiting="a second node")
    assert (view.state, view.waits) == ("waiting", "a second node")
    assert view.headline == "it waits: a second node"


def test_what_an_incident_waits_for_comes_before_what_happened() -> None:
    lost = replace(CRASH, cause="node_lost", decided="")
    view = seen(state="ended", waiting="1 of 2 nodes are here", incidents={"i2": lost})
    assert view.light == "red"
    assert view.headline.startswith("it waits: 1 of 2 nodes are here; Node node-1 was lost")
    assert "not decided" not in view.headline
    assert not any("it waits" in line for line in view.warnings)


def test_a_finding_that_is_acted_on_is_red_and_others_are_yellow() -> None:
    stall = Finding(Kind.STALL, "node-0", 5.0, 0.9, [0], acts=True)
    disk = Finding(Kind.DISK_FULL, "node-0", 5.0, 0.9)
    view = seen(findings=(disk, stall))
    assert (view.light, view.headline) == ("red", "stall on node-0")
    assert view.warnings == ["disk_full on node-0"]
    assert seen(findings=(disk,)).light == "yellow"


def test_a_finding_that_is_only_worth_knowing_leaves_the_light_green() -> None:
    told = Finding(Kind.LINK_DOWN, "node-0", 5.0, 0.9, remedy=Remedy.NONE)
    view = seen(findings=(told,))
    assert view.light == "green"
    assert len(view.findings) == 1


def test_a_short_silence_leaves_the_light_green_until_it_lasts() -> None:
    now = seen().now_unix_s
    doubt = Finding(Kind.STALL, "node-0", now - 5, 0.4, [0])
    assert seen(findings=(doubt,)).light == "green"
    assert len(seen(findings=(doubt,)).findings) == 1
    lasting = replace(doubt, since_unix_s=now - 25)
    assert (seen(findings=(lasting,)).light, seen(findings=(lasting,)).headline) == (
        "yellow",
        "stall on node-0",
    )
    assert seen(findings=(replace(doubt, acts=True),)).light == "red"
    assert seen(findings=(replace(doubt, kind=Kind.HANG),)).light == "yellow"


def test_who_is_slow_for_good_is_yellow() -> None:
    view = seen(slow=5)
    assert view.light == "yellow"
    assert view.headline.startswith("rank 5 on node-0, +31 % since step 1200: cpu_quota")


def test_the_worst_comes_first() -> None:
    stall = Finding(Kind.STALL, "node-0", 5.0, 0.9, [0], acts=True)
    view = seen(slow=5, findings=(stall,))
    assert view.headline == "stall on node-0"
    assert len(view.warnings) == 1


def test_of_very_many_warnings_the_first_are_told() -> None:
    disks = tuple(Finding(Kind.DISK_FULL, f"node-{n}", 5.0, 0.9) for n in range(100))
    view = seen(findings=disks)
    assert view.warnings[-1] == "and 87 more of the kind"
    assert len(view.warnings) == 13


def test_without_an_attempt_there_is_nothing_to_judge_yet() -> None:
    shown = picture(Job(8, slow=None, incidents={}))
    assert shown.orders.view is not None
    bare = replace(shown.orders.view, sections={})
    orders = replace(shown.orders, view=bare, plan=None, nodes={})
    view = gather(context_of(replace(shown, orders=orders), "llm", None))
    assert (view.light, view.headline) == ("grey", "no attempt has been formed yet")
    assert view.state == "waiting"


def test_a_job_without_a_leader_says_so() -> None:
    shown = picture(Job(8, slow=None, incidents={}))
    assert shown.orders.view is not None
    unled = replace(shown.orders.view, lease=replace(shown.orders.view.lease, candidate=""))
    orders = replace(shown.orders, view=unled, is_leader=False)
    view = gather(context_of(replace(shown, orders=orders), "llm", None))
    assert (view.light, view.headline) == ("yellow", "nobody leads")
