"""What the rows about a rank's death come to."""

from __future__ import annotations

import time
from typing import Any

import pytest
from bench.benchmark import Sample
from bench.detection.death_figures import death_figures, everywhere_figures
from bench.detection.everywhere import Heard, parse_heard, samples_of
from bench.detection.spread import percentile
from bench.figures import NOT_RUN, Figure, at_least


def death(known_ms: float | None, pidfd_ms: float = 400.0) -> Sample:
    known = {} if known_ms is None else {"known_s": known_ms / 1e3}
    return {"row": "death", "contestant": "Holdfast", "pidfd_s": pidfd_ms / 1e3, **known}


def met(figures: list[Figure]) -> dict[str, Any]:
    return {figure.name: figure.met for figure in figures if figure.goal}


def test_without_samples_nothing_is_met_nor_missed() -> None:
    assert {f.met for f in [*death_figures([]), *everywhere_figures([])]} == {NOT_RUN}


def test_quick_deaths_meet_every_goal() -> None:
    assert set(met(death_figures([death(1.0)] * 99 + [death(9.0)])).values()) == {True}


def test_what_a_peer_says_counts_for_the_peer_alone() -> None:
    peer = {"row": "death", "contestant": "torchrun", "told_s": 0.5}
    figures = death_figures([death(1.0), peer, {**peer, "told_s": 0.7}])
    assert set(met(figures).values()) == {True}
    (told,) = (f for f in figures if f.name.startswith("rank SIGKILLed: torchrun"))
    assert told.value == pytest.approx(600.0)


@pytest.mark.parametrize(
    ("samples", "missed"),
    [
        ([death(3.0, 4000)] * 3, "rank SIGKILLed: its sidecar knows, p50"),
        ([death(1.0)] * 97 + [death(11.0)] * 3, "rank SIGKILLed: its sidecar knows, p99"),
        ([death(1.0, 39.0)] * 3, "rank SIGKILLed: pidfd / sidecar"),
        ([death(1.0), death(None)], "rank SIGKILLed: not noticed, or not as a crash"),
    ],
)
def test_each_goal_can_be_missed(samples: list[Sample], missed: str) -> None:
    assert [name for name, is_met in met(death_figures(samples)).items() if not is_met] == [missed]


def log(*rest: str) -> str:
    return "".join(f"2026-11-20 18:08:{line}\n" for line in rest)


HEARD = (
    "07,250 INFO holdfast_sidecar.controller.coordinator: heard: attempt 4 is ended: crash"
    ", ranks [2] on node c, incident ab12"
)


def test_a_sidecars_log_says_when_it_heard_of_whose_crash() -> None:
    other = "09,000 INFO holdfast_sidecar.loop: heard: attempt 5 is ended: grow"
    (heard,) = parse_heard(log("06,001 INFO holdfast_sidecar.loop: no longer found", HEARD, other))
    second = time.mktime(time.strptime("2026-11-20 18:08:07", "%Y-%m-%d %H:%M:%S"))
    assert (heard.attempt, heard.rank) == (4, 2)
    assert heard.at_unix_s == pytest.approx(second + 0.251)


def test_what_counts_is_the_last_sidecar_and_that_all_blame_the_same_rank() -> None:
    lines: list[Sample] = [
        {"rank": 2, "attempt": 4, "struck_unix_s": 100.0},
        {"rank": 1, "attempt": 5, "struck_unix_s": 200.0},
        {"rank": 0, "attempt": 6, "done": True},
    ]
    logs = [
        [Heard(4, 2, 100.01), Heard(5, 0, 200.02)],
        [Heard(4, 2, 100.03)],
    ]
    whole, broken = samples_of(lines, logs)
    assert whole["last_s"] == pytest.approx(0.03)
    assert whole["is_right"]
    assert "last_s" not in broken
    assert not broken["is_right"]
    rows = [{"row": "everywhere", **sample} for sample in (whole, broken)]
    assert met(everywhere_figures(rows)) == {
        "rank SIGKILLed: all sidecars know, p99": True,
        "rank SIGKILLed: all sidecars know: of somebody else": False,
    }


def test_a_percentile_is_a_value_that_was_measured() -> None:
    assert percentile([], 0.5) is None
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([float(n) for n in range(1, 101)], 0.99) == 99.0


def test_a_figure_that_must_reach_a_limit() -> None:
    assert at_least("name", "ratio", 40.0, 40.0).met is True
    assert at_least("name", "ratio", 39.9, 40.0).met is False
    assert at_least("name", "ratio", None, 40.0).met == NOT_RUN
