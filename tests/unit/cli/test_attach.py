"""What `holdfast attach` prints: for the shell that starts the ranks, and while it watches."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast_sidecar.cli.attach_watch import HINT_S, Console
from holdfast_sidecar.cli.main import cli
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.plan import Incident
from holdfast_sidecar.store.protocol import Lease, Section, View


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def console(lines: list[str]) -> Console:
    return Console(lines.append, "no rank yet", began_s=0.0)


def view(*incidents: Incident) -> View:
    texts = {one.identifier: encode(one) for one in incidents}
    return View(Lease(1, "a/i"), "s", {Section.INCIDENTS: texts})


def test_the_variables_are_what_a_shell_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_SET_PATHS_STATE_DIR", str(tmp_path / "a state"))
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.delenv("HOLDFAST_JOB", raising=False)
    result = CliRunner().invoke(cli, ["attach", "--environment"])
    assert result.exit_code == 0, result.output
    told = subprocess.run(
        ["sh", "-c", f"PYTHONPATH=/mine\n{result.stdout}\nenv"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert "HOLDFAST_ATTACH=1" in told
    assert "HOLDFAST_JOB=slurm-17" in told
    evidence = f"{tmp_path}/a state/slurm-17/{{node}}/evidence/attempt-{{attempt}}"
    assert f"HOLDFAST_EVIDENCE_DIR={evidence}" in told
    (path,) = [line for line in told if line.startswith("PYTHONPATH=")]
    assert path.endswith("/holdfast/bootstrap:/mine")


def test_a_process_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    result = CliRunner().invoke(cli, ["attach", "--job", "j", "--match", "no such command"])
    assert result.exit_code == 2
    assert "no process of yours is 'no such command'" in result.output


def test_ranks_are_told_as_they_come_and_go(console: Console, lines: list[str]) -> None:
    console.look({}, [], None, 1.0)
    console.look({0: 7, 1: 8}, [], None, 2.0)
    console.look({0: 7, 1: 8}, [], None, 3.0)
    console.look({1: 9}, [], None, 4.0)
    assert lines == [
        "watching rank 0 (process 7)",
        "watching rank 1 (process 8)",
        "watching rank 1 (process 9)",
        "rank 0 (process 7) has ended",
        "rank 1 (process 8) has ended",
    ]


def test_it_is_over_only_after_ranks_were_seen_and_all_have_gone(console: Console) -> None:
    console.look({}, [], None, 1.0)
    assert console.alone_for_s(100.0) == 0.0
    console.look({0: 7}, [], None, 101.0)
    assert console.alone_for_s(150.0) == 0.0
    console.look({}, [], None, 151.0)
    console.look({}, [], None, 152.0)
    assert console.alone_for_s(153.0) == 2.0
    console.look({0: 9}, [], None, 154.0)
    assert console.alone_for_s(155.0) == 0.0


def test_a_finding_is_told_once_and_an_incident_whenever_more_is_known(
    console: Console, lines: list[str]
) -> None:
    hang = Finding(Kind.HANG, "a", 0.0, 0.9, [1], ["silent"])
    opened = Incident("x", 0, "hang", "a", [1], 0.9, 5.0, 6.0, "observe")
    for _ in range(2):
        console.look({0: 7}, [hang], view(opened), 2.0)
    assert lines[1] == "found hang: rank 1 on node a (90% sure): silent"
    assert lines[2].startswith("incident x: Rank 1 on node a hung while its peers waited for it")
    assert len(lines) == 3
    assert console.is_in_trouble
    over = Incident(**{**vars(opened), "recovered_unix_s": 17.0})
    console.look({0: 7}, [], view(over), 3.0)
    assert lines[3].startswith("incident x (over after 12.0 s): ")
    assert not console.is_in_trouble


def test_whoever_forgot_the_variables_is_told_so_once(console: Console, lines: list[str]) -> None:
    for now_s in (1.0, HINT_S + 1.0, HINT_S + 2.0):
        console.look({}, [], None, now_s)
    assert lines == ["no rank yet"]
