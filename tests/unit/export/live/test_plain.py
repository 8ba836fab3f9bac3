from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.export.live.pretend_views import NOW, troubled

from holdfast_sidecar.export.live.packing import from_plain, to_plain
from holdfast_sidecar.export.live.view import LiveView

JOB = troubled(4, has_gpus=True)
VIEW = replace(
    JOB,
    ranks=[replace(one, phase_since_unix_s=NOW - 1) for one in JOB.ranks],
    nodes=[replace(one, heartbeat_unix_s=NOW - 1) for one in JOB.nodes],
)
"""Every list of it has something in it; times that come many at once are told in whole seconds."""


def through_json(view: LiveView) -> LiveView | None:
    return from_plain(json.loads(json.dumps(to_plain(view), allow_nan=False)))


def test_a_view_comes_back_as_it_was() -> None:
    assert through_json(VIEW) == VIEW


def test_every_field_is_told() -> None:
    assert all((VIEW.ranks, VIEW.nodes, VIEW.incidents, VIEW.findings, VIEW.slow, VIEW.heat.rows))
    assert set(to_plain(VIEW)) == {one.name for one in dataclasses.fields(LiveView)}


def test_an_empty_view_comes_back_as_it_was() -> None:
    assert through_json(LiveView()) == LiveView()


@pytest.mark.parametrize("told", [None, 3, "x", [], {}, {"run": "no version"}])
def test_what_is_no_view_is_none(told: Any) -> None:
    assert from_plain(told) is None


def test_what_a_newer_sidecar_tells_besides_is_left_out() -> None:
    told = to_plain(VIEW) | {"weather": "fine", "version": 2}
    told["ranks"]["of"].append("mood")
    told["ranks"]["rows"] = [[*row, "good"] for row in told["ranks"]["rows"]]
    view = from_plain(told)
    assert view is not None
    assert view.version == 2
    assert view.ranks == VIEW.ranks


def test_what_an_older_one_does_not_tell_is_left_at_its_default() -> None:
    assert from_plain({"version": 1, "run": "llm"}) == LiveView(run="llm")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("step", "twelve"),
        ("step", 1.5),
        ("step_s", float("nan")),
        ("run", 7),
        ("is_leader", 1),
        ("ranks", "all"),
        ("ranks", {"of": 3, "rows": []}),
        ("account", [1]),
        ("checkpoint", "none"),
    ],
)
def test_what_is_of_another_kind_is_left_at_its_default(field: str, value: Any) -> None:
    view = from_plain(to_plain(VIEW) | {field: value})
    assert view is not None
    default = getattr(LiveView(), field)
    assert getattr(view, field) == default
    assert replace(view, **{field: getattr(VIEW, field)}) == VIEW


def test_rows_that_are_none_are_left_out() -> None:
    told = to_plain(VIEW)
    told["nodes"]["rows"] += ["row", None, 3]
    view = from_plain(told)
    assert view is not None
    assert view.nodes == VIEW.nodes


def test_a_number_that_json_cannot_say_is_none() -> None:
    view = replace(VIEW, step_s=float("inf"), mfu=float("nan"))
    back = through_json(view)
    assert back is not None
    assert (back.step_s, back.mfu) == (None, None)
