from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from bench import __main__ as bench
from bench.benchmark import Benchmark, NotRun, Sample, Task
from bench.figures import at_most
from bench.results import Run

RUN = Run("2026-01-01T00:00:00+00:00", "aaa", "full", None)


class Meter:
    """A benchmark whose tasks can be cut, can be impossible, and are counted."""

    def __init__(self, values: dict[str, float | BaseException]) -> None:
        self.values = values
        self.measured: list[str] = []

    def benchmark(self, limit: float = 10.0) -> Benchmark:
        return Benchmark(
            name="meter",
            rows=tuple(self.values),
            tasks=lambda quick: [
                Task(row, row, partial(self._measure, row)) for row in self.values
            ],
            figures=lambda samples: [
                at_most(row, "s", _value([s for s in samples if s["row"] == row]), limit)
                for row in self.values
            ],
        )

    def _measure(self, row: str) -> list[Sample]:
        self.measured.append(row)
        value = self.values[row]
        if isinstance(value, BaseException):
            raise value
        return [{"contestant": "Holdfast", "value": value}]


def _value(samples: list[Sample]) -> float | None:
    return samples[0]["value"] if samples else None


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(bench, "RESULTS", tmp_path)
    return tmp_path / "meter.json"


def test_a_missed_goal_is_exit_code_1_and_a_met_one_0(results: Path) -> None:
    assert bench._run(Meter({"a": 11.0}).benchmark(), RUN, resume=False) == 1
    assert bench._run(Meter({"a": 9.0}).benchmark(), RUN, resume=False) == 0


def test_what_could_not_be_run_is_written_as_not_run(results: Path) -> None:
    assert bench._run(Meter({"a": NotRun("no network")}).benchmark(), RUN, resume=False) == 0
    content = json.loads(results.read_text())
    assert content["figures"][0]["met"] == "not run"
    assert content["raw"][0]["not_run"] == "no network"
    assert set(content) == {"name", "machine", "commit", "figures", "raw"}


def test_a_run_that_is_cut_goes_on_where_it_was(results: Path) -> None:
    cut = Meter({"a": 1.0, "b": KeyboardInterrupt()})
    with pytest.raises(KeyboardInterrupt):
        bench._run(cut.benchmark(), RUN, resume=False)
    assert not results.exists()
    again = Meter({"a": 1.0, "b": 2.0})
    assert bench._run(again.benchmark(), RUN, resume=True) == 0
    assert again.measured == ["b"]
    assert [s["row"] for s in json.loads(results.read_text())["raw"]] == ["a", "b"]


def test_only_measures_one_row(results: Path) -> None:
    bench._run(Meter({"a": 1.0, "b": 2.0}).benchmark(), RUN, resume=False)
    meter = Meter({"a": 5.0, "b": 6.0})
    only = Run("2026-01-02T00:00:00+00:00", "bbb", "full", "b")
    bench._run(meter.benchmark(), only, resume=False)
    assert meter.measured == ["b"]
    values = {f["name"]: f["value"] for f in json.loads(results.read_text())["figures"]}
    assert values == {"a": 1.0, "b": 6.0}


def test_an_unknown_row_is_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["launch", "--only", "nonsense"]) == 2
    assert "has no row 'nonsense'" in capsys.readouterr().err
