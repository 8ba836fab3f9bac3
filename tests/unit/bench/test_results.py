from __future__ import annotations

from pathlib import Path

from bench.benchmark import Sample
from bench.results import Run, Unfinished, borrowed, judged, read_samples, together, write_results

FIRST = Run("2026-01-01T00:00:00+00:00", "aaa", "full", None)
LATER = Run("2026-01-02T00:00:00+00:00", "bbb", "full", None)
QUICK = Run("2026-01-03T00:00:00+00:00", "ccc", "quick", None)


def sample(run: Run, row: str, contestant: str, value: float = 1.0) -> Sample:
    return run.stamp(row, f"{row}/{contestant}", {"contestant": contestant, "value": value})


def test_a_full_run_replaces_everything() -> None:
    before = [sample(FIRST, "kill", "torchrun"), sample(QUICK, "kill", "Holdfast")]
    new = [sample(LATER, "kill", "Holdfast")]
    assert together(before, new, LATER) == new


def test_only_replaces_its_row_and_keeps_the_others() -> None:
    kept, replaced = sample(FIRST, "stop", "Holdfast"), sample(FIRST, "kill", "Holdfast")
    new = [sample(LATER, "kill", "Holdfast")]
    only = Run(LATER.started, LATER.commit, "full", "kill")
    assert together([kept, replaced], new, only) == [kept, *new]


def test_a_quick_run_judges_its_own_samples_against_the_peers_of_the_full_run() -> None:
    peer, own = sample(FIRST, "kill", "torchrun"), sample(FIRST, "kill", "Holdfast")
    fresh = sample(QUICK, "kill", "Holdfast")
    everything = together([peer, own], [fresh], QUICK)
    assert own in everything  # a quick run takes nothing away from the full one
    assert judged(everything) == [peer, fresh]
    assert "2026-01-01T00:00:00+00:00 at aaa" in borrowed(judged(everything), QUICK)


def test_a_second_quick_run_replaces_the_first() -> None:
    again = Run("2026-01-04T00:00:00+00:00", "ddd", "quick", None)
    old, new = sample(QUICK, "kill", "Holdfast"), sample(again, "kill", "Holdfast")
    assert together([old], [new], again) == [new]


def test_nothing_is_said_about_earlier_runs_when_all_samples_are_new() -> None:
    assert borrowed([sample(FIRST, "kill", "Holdfast")], FIRST) == ""


def test_a_sample_that_could_not_be_run_is_not_judged() -> None:
    absent = FIRST.stamp("kill", "kill/NVRx", {"not_run": "it can't be installed"})
    assert judged([absent]) == []


def test_a_cut_run_goes_on_as_itself_and_tries_again_what_could_not_be_run(
    tmp_path: Path,
) -> None:
    unfinished = Unfinished(tmp_path / "launch.unfinished")
    done = sample(FIRST, "kill", "Holdfast")
    unfinished.write(FIRST, [done, FIRST.stamp("kill", "kill/NVRx", {"not_run": "no network"})])
    assert unfinished.read(LATER) == (FIRST, [done])


def test_a_cut_run_that_asked_for_something_else_is_not_resumed(tmp_path: Path) -> None:
    unfinished = Unfinished(tmp_path / "launch.unfinished")
    unfinished.write(FIRST, [sample(FIRST, "kill", "Holdfast")])
    assert unfinished.read(QUICK) == (QUICK, [])


def test_results_are_written_whole_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "results" / "launch.json"
    assert read_samples(path) == []
    kept = [sample(FIRST, "kill", "Holdfast")]
    write_results(path, {"name": "launch", "raw": kept})
    assert read_samples(path) == kept
    assert [entry.name for entry in path.parent.iterdir()] == ["launch.json"]
