"""Which directories of finished jobs stay in the state directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from holdfast_sidecar.config.settings import PathSettings
from holdfast_sidecar.export.job_record import JobRecord
from holdfast_sidecar.launcher.finished_jobs import DISCARDED, KEPT, SILENT_S, trim
from holdfast_sidecar.records.codec import encode

NOW_S = 1_800_000_000.0


@pytest.fixture
def paths(tmp_path: Path) -> PathSettings:
    (tmp_path / "state").mkdir()
    (tmp_path / "shm").mkdir()
    return PathSettings(shm_dir=str(tmp_path / "shm"), state_dir=str(tmp_path / "state"))


def left(paths: PathSettings, job: str, age_s: float, state: str = "done") -> Path:
    """What a job leaves that ended so long ago; empty state: its launch failed before a plan."""
    node = Path(paths.state_dir) / job / "n0"
    node.mkdir(parents=True, mode=0o700)
    node.parent.chmod(0o700)
    (node / "incidents" / "i1").mkdir(parents=True, mode=0o700)
    (node / "incidents" / "i1" / "incident.json").write_text("{}")
    (node / "sidecar.lock").write_text("1-abc")
    (node / "sidecar.log").write_text("a line\n")
    (node.parent / "server.json").write_text("{}")
    if state:
        (node / "job.json").write_text(encode(JobRecord(state, 0, 7, 0, "", "")))
    grow_old(node.parent, age_s)
    return node


def grow_old(folder: Path, age_s: float) -> None:
    at = NOW_S - age_s
    for path in (*folder.rglob("*"), folder):
        os.utime(path, (at, at), follow_symlinks=False)


def jobs(paths: PathSettings) -> list[str]:
    return sorted(path.name for path in Path(paths.state_dir).iterdir())


def test_the_newest_fifty_stay(paths: PathSettings) -> None:
    for number in range(KEPT + 5):
        left(paths, f"job-{number:02}", age_s=7200.0 + number)
    trim(paths, now_unix_s=NOW_S)
    assert jobs(paths) == [f"job-{number:02}" for number in range(KEPT)]


def trimmed(paths: PathSettings) -> list[str]:
    """What stays where nothing that is finished may."""
    trim(paths, kept=0, now_unix_s=NOW_S)
    return jobs(paths)


def test_a_job_that_ended_a_moment_ago_stays(paths: PathSettings) -> None:
    left(paths, "just-now", age_s=600.0)
    left(paths, "long-ago", age_s=7200.0)
    assert trimmed(paths) == ["just-now"]


@pytest.mark.parametrize("state", ["running", ""])
def test_one_that_never_said_it_is_over_stays_for_a_day(paths: PathSettings, state: str) -> None:
    left(paths, "killed", SILENT_S - 60, state)
    assert trimmed(paths) == ["killed"]
    grow_old(Path(paths.state_dir) / "killed", SILENT_S + 60)
    assert trimmed(paths) == []


def test_a_running_job_stays_however_old_what_it_wrote_is(paths: PathSettings) -> None:
    left(paths, "in-shared-memory", 10 * SILENT_S)
    (Path(paths.shm_dir) / f"holdfast-{os.getuid()}" / "in-shared-memory").mkdir(parents=True)
    lock = left(paths, "locked", 10 * SILENT_S) / "sidecar.lock"
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert trimmed(paths) == ["in-shared-memory", "locked"]


def test_what_is_not_ours_by_everything_in_it_stays(paths: PathSettings, tmp_path: Path) -> None:
    root = Path(paths.state_dir)
    (left(paths, "with-a-file-of-the-user-s", 10 * SILENT_S).parent / "notes.txt").touch()
    (left(paths, "with-one-in-a-node", 10 * SILENT_S) / "model.pt").touch()
    (root / "nobody-s" / "data").mkdir(parents=True, mode=0o700)
    (root / "no-mark" / "n0").mkdir(parents=True, mode=0o700)
    (root / "no-mark" / "n0" / "sidecar.log").touch()
    (root / ".machine").mkdir()
    other = tmp_path / "elsewhere"
    left(PathSettings(state_dir=str(other)), "linked", 10 * SILENT_S)
    (root / "linked").symlink_to(other / "linked")
    for job in root.iterdir():
        if not job.is_symlink():
            grow_old(job, 10 * SILENT_S)
    before = jobs(paths)
    assert trimmed(paths) == before
    assert (other / "linked" / "n0" / "job.json").exists()


@pytest.mark.parametrize("where", ["incidents/i1", "evidence/attempt-0", "server"])
def test_notes_that_lie_beside_what_was_kept_keep_all_of_it(
    paths: PathSettings, where: str
) -> None:
    node = left(paths, "with-notes", 10 * SILENT_S)
    (node / where).mkdir(parents=True, exist_ok=True, mode=0o700)
    (node / where / "notes.txt").touch()
    grow_old(node.parent, 10 * SILENT_S)
    assert trimmed(paths) == ["with-notes"]
    assert (node / "job.json").exists()
    (node / where / "notes.txt").unlink()
    grow_old(node.parent, 10 * SILENT_S)
    assert trimmed(paths) == []


KEPT_OF_A_JOB = """
    server/redis.sock server/password server/server.log
    evidence/attempt-0/stack-local-0.txt evidence/attempt-0/fatal-local-11.txt
    evidence/attempt-0/warm-interpreter-1.stderr
    evidence/attempt-0/traces/ab12/rank-3.json.gz evidence/attempt-0/traces/ab12/rank-3.facts.json
    incidents/c4626c59.tar.gz incidents/c4626c59.tar.gz.new incidents/c4626c59/incident.json.new
    incidents/c4626c59/kernel.log incidents/c4626c59/settings.json incidents/c4626c59/software.json
    incidents/c4626c59/decision.json incidents/c4626c59/aftermath.json
    incidents/c4626c59/machine.json incidents/c4626c59/first-error.json
    incidents/c4626c59/kept.json incidents/c4626c59/bundle.json incidents/c4626c59/sidecar.log
    incidents/c4626c59/rank-0.page incidents/c4626c59/rank-0.json incidents/c4626c59/output-0.log
    incidents/c4626c59/rank-12-stacks.txt incidents/c4626c59/child-77-stacks.txt
    incidents/c4626c59/rank-0-collectives.json incidents/c4626c59/rank-0-stderr.log
    incidents/c4626c59/stack-local-0.txt incidents/c4626c59/fatal-local-0.txt
"""


def test_whatever_a_job_with_an_incident_keeps_goes_with_it(paths: PathSettings) -> None:
    node = left(paths, "failed", 7200.0)
    for name in KEPT_OF_A_JOB.split():
        (node / name).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        (node / name).touch()
    grow_old(node.parent, 7200.0)
    assert trimmed(paths) == []


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to give a file to another user")
def test_what_holds_a_file_of_another_user_stays_whole(paths: PathSettings) -> None:
    node = left(paths, "shared", 10 * SILENT_S)
    os.chown(node / "incidents" / "i1" / "incident.json", 4711, 4711)
    assert trimmed(paths) == ["shared"]
    assert (node / "job.json").exists()


def test_what_an_earlier_launch_had_no_time_for_is_finished(paths: PathSettings) -> None:
    node = left(paths, f".old{DISCARDED}", 7200.0)
    (node / "job.json").unlink()
    (node / "sidecar.lock").unlink()
    (Path(paths.state_dir) / f".mine{DISCARDED}").mkdir()
    (Path(paths.state_dir) / f".mine{DISCARDED}" / "thesis.tex").touch()
    assert trimmed(paths) == [f".mine{DISCARDED}"]


def test_no_state_directory_is_nothing_to_trim(tmp_path: Path) -> None:
    trim(PathSettings(shm_dir=str(tmp_path), state_dir=str(tmp_path / "missing")))
