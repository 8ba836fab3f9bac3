"""`holdfast checkpoint plan`: the reasoning, from a job, from storage, or supposed."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from holdfast_sidecar.cli.checkpoint import checkpoint
from holdfast_sidecar.config.settings import BadInput


@pytest.fixture(autouse=True)
def _away_from_home(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(checkpoint, ["plan", *arguments])


def test_supposed_figures_need_neither_job_nor_storage() -> None:
    told = run("--mtbf", "3h", "--blocked", "500ms", "--write", "40s").output
    assert "optimum     1 min 44 s by Young, 1 min 44 s by Daly" in told
    assert "taken       1 min 44 s: Daly's optimum" in told
    assert "failures twice as often" in told
    assert "a rank" not in told, "nothing is known of a job's memory"


def test_the_bound_that_applied_is_named() -> None:
    told = run("--mtbf", "3h", "--blocked", "10ms", "--write", "100s").output
    assert "taken       2 min: 1.2 times what writing one takes" in told
    at_most = run(
        "--mtbf",
        "100d",
        "--blocked",
        "10s",
        "--write",
        "9s",
        "--set",
        "checkpoint.most_every_s=20m",
    )
    assert "taken       20 min: at least as often as checkpoint.most_every_s asks" in at_most.output


def test_for_scripts_it_is_json() -> None:
    told = json.loads(run("--mtbf", "3h", "--blocked", "500ms", "--write", "40s", "--json").output)
    assert told["schedule"]["interval"]["bound"] == "optimum"
    assert told["prospect"]["lost_s"] == pytest.approx(told["prospect"]["interval_s"] / 2 + 40)
    assert len(told["what_if"]) == 5


@pytest.mark.parametrize("given", [("--mtbf", "soon"), ("--write", "0"), ()])
def test_what_makes_no_sense_is_one_line(given: tuple[str, ...]) -> None:
    assert isinstance(run(*given).exception, BadInput)
