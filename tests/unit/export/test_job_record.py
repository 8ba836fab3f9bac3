from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast_sidecar.cli.main import cli
from holdfast_sidecar.config.paths import Paths
from holdfast_sidecar.export.job_record import (
    STEPS_EVERY_S,
    JobRecord,
    RecordKeeping,
    read_record,
    read_requeues,
)
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.plan import Member, Plan, Requeues
from holdfast_sidecar.records.reports import AgentReport, NodeReport, RankReport
from holdfast_sidecar.records.steps import SlownessReport
from holdfast_sidecar.store.protocol import Section


def sections(step: int, **plan: object) -> Mapping[Section, Mapping[str, str]]:
    facts = {"attempt": 0, "epoch": 1, "state": "running"}
    wanted = Plan(**(facts | plan))  # type: ignore[arg-type]
    ranks = [RankReport(0, 0, 1, step, "forward", 0.0, 0.1, 0.1)]
    report = NodeReport("a", "i", 1, 0, 0, wanted.attempt, True, ranks=ranks)
    return {Section.PLAN: {"current": encode(wanted)}, Section.NODES: {"a": encode(report)}}


def keeping(root: Path, node: str = "a", directory: str = "") -> RecordKeeping:
    return RecordKeeping(Paths(shm=root, state=root / "j" / node), directory)


def kept(root: Path) -> JobRecord:
    found = read_record(root / "j")
    assert found is not None
    return found[0]


def test_a_change_of_plan_is_written_at_once_and_of_steps_one_now_and_then(tmp_path: Path) -> None:
    now_s = [100.0]
    record = RecordKeeping(Paths(shm=tmp_path, state=tmp_path / "j" / "a"), "", lambda: now_s[0])
    assert not record.keep({}, is_last=True)
    assert read_record(tmp_path / "j") is None
    assert record.keep(sections(3), is_last=False)
    assert not record.keep(sections(9), is_last=False)
    assert kept(tmp_path).step == 3
    assert record.keep(sections(10), is_last=True)
    assert kept(tmp_path).step == 10
    now_s[0] += STEPS_EVERY_S
    assert record.keep(sections(11), is_last=False)
    assert record.keep(sections(12, state="done"), is_last=False)
    assert (kept(tmp_path).state, kept(tmp_path).step) == ("done", 12)


def test_what_could_not_be_restored_is_kept_when_its_ranks_are_gone(tmp_path: Path) -> None:
    record = keeping(tmp_path)
    told = Finding(Kind.NOT_RESTORABLE, "a", 1.0, 1.0, [0], ["ema['f'] is …; pass save="])
    report = NodeReport("a", "i", 1, 0, 0, 0, True, findings=[told])
    began = {"began_unix_s": 5.0}
    record.keep({**sections(3, **began), Section.NODES: {"a": encode(report)}}, is_last=False)
    assert kept(tmp_path).unrestorable == ["ema['f'] is …; pass save="]
    record.keep(sections(4, attempt=1, **began), is_last=True)
    assert kept(tmp_path).unrestorable == ["ema['f'] is …; pass save="]
    record.keep(sections(1, began_unix_s=9.0), is_last=True)
    assert kept(tmp_path).unrestorable == []


def test_what_a_job_waits_for_between_two_attempts_is_kept(tmp_path: Path) -> None:
    record = keeping(tmp_path)
    few = NodeReport("b", "i", 1, 0, 0, 0, True, waiting="1 of 2 nodes are here")
    ended = sections(3, state="ended")
    record.keep({**ended, Section.NODES: {"b": encode(few)}}, is_last=False)
    assert (kept(tmp_path).state, kept(tmp_path).waits) == ("waiting", "1 of 2 nodes are here")
    record.keep(ended, is_last=False)
    assert (kept(tmp_path).state, kept(tmp_path).waits) == ("ended", "")
    running = sections(3, attempt=1)
    record.keep({**running, Section.NODES: {"b": encode(few)}}, is_last=False)
    assert kept(tmp_path).state == "running"


def test_an_attempt_that_has_not_stepped_does_not_hide_how_far_the_job_came(
    tmp_path: Path,
) -> None:
    record = keeping(tmp_path)
    record.keep(sections(30), is_last=True)
    record.keep(sections(0, attempt=1), is_last=False)
    assert kept(tmp_path).step == 30
    record.keep(sections(21, attempt=1), is_last=True)
    assert kept(tmp_path).step == 21


def test_the_node_that_knows_the_newest_attempt_is_believed(tmp_path: Path) -> None:
    keeping(tmp_path, "b").keep(sections(50, attempt=2), is_last=True)
    keeping(tmp_path, "a").keep(sections(60, attempt=1), is_last=True)
    (tmp_path / "j" / "c").mkdir()
    (tmp_path / "j" / "c" / "job.json").write_text("torn")
    assert kept(tmp_path).attempt == 2


def judged(step: int, ending: bool = False) -> Mapping[Section, Mapping[str, str]]:
    """A running job whose leader has judged it up to this step."""
    ranks = [RankReport(0, 0, 1, step, "forward", 0.0, 0.1, 0.1, ending=ending)]
    told = NodeReport(
        "a", "i", 1, 0, 0, 0, True, ranks=ranks, slow=SlownessReport(0, step, 1, 1.0 + step)
    )
    return {**sections(step), Section.NODES: {"a": encode(told)}}


def test_the_last_steps_before_ranks_leave_are_kept_however_lately_it_was_written(
    tmp_path: Path,
) -> None:
    record = keeping(tmp_path)
    record.keep(judged(100), is_last=False)
    assert not record.keep(judged(140), is_last=False)
    record.keep(judged(143, ending=True), is_last=True)
    performance = kept(tmp_path).performance
    assert performance is not None
    assert performance.standing is not None
    assert performance.standing.step == 140


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_SET_PATHS_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def test_the_status_of_a_job_that_is_gone_is_told_from_its_record(home: Path) -> None:
    record = keeping(home, directory="/ck")
    record.keep(sections(60, state="done"), is_last=False)
    told = CliRunner().invoke(cli, ["status", "--job", "j"])
    assert told.exit_code == 0, told.output
    assert told.output.startswith("job j: ended: done, attempt 0, ")
    assert "came to     step 60\n" in told.output
    assert "saved in    /ck (holdfast checkpoint list --job j)\n" in told.output
    record.keep(sections(70, attempt=1, state="stopped", exit_code=65), is_last=False)
    told = CliRunner().invoke(cli, ["status", "--job", "j", "--json"])
    assert told.exit_code == 1
    assert '"is_healthy": false' in told.output
    record.keep(sections(80, attempt=2), is_last=True)
    told = CliRunner().invoke(cli, ["status", "--job", "j"])
    assert "! attempt 2 broke off" in told.output
    assert CliRunner().invoke(cli, ["status", "--job", "never-was"]).exit_code == 3


def test_a_job_that_somebody_interrupted_is_not_called_broken_off(home: Path) -> None:
    members = [Member("a", "i", 0, 0, 1)]
    left = AgentReport("a", "i", "left", 0, 1, 1, "", 1, 1, left_for="SIGINT")
    stopped = {"state": "stopped", "exit_code": 1, "message": "0 of 0 restarts are used up"}
    for plan in ({}, stopped):
        seen = {**sections(60, members=members, **plan), Section.AGENTS: {"a": encode(left)}}
        keeping(home).keep(seen, is_last=True)
        found = kept(home)
        assert found.trouble == "attempt 0 was interrupted: its launcher received SIGINT (Ctrl-C)"
    told = CliRunner().invoke(cli, ["status", "--job", "j"])
    assert told.exit_code == 1
    assert told.output.startswith("job j: ended: interrupted, attempt 0, ")
    assert "said        0 of 0 restarts are used up" in told.output


def test_the_checkpoints_of_a_job_that_is_gone_are_found(home: Path) -> None:
    (home / "ck").mkdir()
    keeping(home, directory=str(home / "ck")).keep(sections(60, state="done"), is_last=False)
    told = CliRunner().invoke(cli, ["checkpoint", "list", "--job", "j"])
    assert told.output == f"no checkpoint in {home / 'ck'}\n"


def test_how_often_a_job_asked_to_be_started_again_is_read_by_its_next_run(tmp_path: Path) -> None:
    """The newest word counts, whichever attempt it is of: a new server numbers them anew."""
    vain = [Requeues(count, 40, "slurm-7", has_stepped=True) for count in (2, 3)]
    for number, (node, requeues) in enumerate(zip("ab", vain, strict=True)):
        asked = sections(40, attempt=9 - number, state="stopped", exit_code=75, requeues=requeues)
        keeping(tmp_path, node).keep(asked, is_last=True)
        os.utime(tmp_path / "j" / node / "job.json", (number, number))
    assert read_requeues(tmp_path / "j") == vain[1]
    done = sections(40, attempt=8, state="done", requeues=vain[1])
    keeping(tmp_path, "b").keep(done, is_last=True)
    assert read_requeues(tmp_path / "j") == Requeues(), "the count is closed"


def test_that_a_launch_made_a_step_is_known_to_its_next_run_though_all_of_it_was_killed(
    tmp_path: Path,
) -> None:
    launch = Requeues(launch="slurm-7")
    record = keeping(tmp_path)
    record.keep(sections(0, requeues=launch), is_last=False)
    assert not read_requeues(tmp_path / "j").has_stepped
    record.keep(sections(1, requeues=launch), is_last=False)
    assert read_requeues(tmp_path / "j").has_stepped
    record.keep(sections(0, attempt=1, requeues=launch), is_last=True)
    assert read_requeues(tmp_path / "j").has_stepped
    record.keep(sections(0, began_unix_s=9.0, requeues=launch), is_last=True)
    assert not read_requeues(tmp_path / "j").has_stepped, "a run that did not go on from it"
