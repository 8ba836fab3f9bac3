import errno
import resource
from pathlib import Path

import pytest

from holdfast.contract.storage import open_folder
from holdfast.contract.url_storage import UrlFolder
from holdfast_sidecar.cli.doctor import Check, command, host
from holdfast_sidecar.cli.doctor import job as directories
from holdfast_sidecar.cli.doctor import job as redis_server
from holdfast_sidecar.cli.doctor import job as restoring
from holdfast_sidecar.cli.doctor import job as software
from holdfast_sidecar.cli.doctor import job as torchrun
from holdfast_sidecar.config.settings import (
    CheckpointSettings,
    PathSettings,
    Settings,
    SidecarSettings,
    SnapshotSettings,
)
from holdfast_sidecar.export.job_record import JobRecord
from holdfast_sidecar.linux.files import KernelTrees
from holdfast_sidecar.policy.replication import SnapshotSpace
from holdfast_sidecar.records.codec import encode


@pytest.mark.parametrize(
    ("version", "verdict"),
    [("2.13.0+cpu", "ok"), ("2.10.0", "ok"), ("2.9.1", "fail"), ("1.13", "fail"), (None, "warn")],
)
def test_a_torch_too_old_fails_and_none_is_enough_to_watch(
    version: str | None, verdict: str
) -> None:
    assert software.judge_torch(version).verdict == verdict


def test_a_python_too_old_fails() -> None:
    assert software.judge_python((3, 10, 9), "0").verdict == "fail"
    assert software.judge_python((3, 11, 0), "0").verdict == "ok"


def test_a_python_without_a_gil_fails() -> None:
    check = software.judge_python((3, 13, 0), "0", has_gil=False)
    assert (check.verdict, "free-threaded" in check.line) == ("fail", True)


@pytest.mark.parametrize(
    ("scope", "is_root", "verdict"),
    [(None, False, "ok"), (0, False, "ok"), (1, False, "note"), (2, True, "ok"), (3, True, "note")],
)
def test_ptrace_scope_costs_native_stacks_and_sight_of_locks(
    scope: int | None, is_root: bool, verdict: str
) -> None:
    check = host.judge_ptrace(scope, is_root)
    assert check.verdict == verdict
    assert ("locks" in check.line) is (scope == 1)


def test_tracing_that_was_tried_and_refused_is_no_tracing_whatever_the_settings_say() -> None:
    refused = host.judge_ptrace(0, True, may_trace=False)
    assert (refused.verdict, "seccomp" in refused.line) == ("note", True)
    assert host.judge_ptrace(0, True, may_trace=True).verdict == "ok"
    assert "ptrace_scope = 3" in host.judge_ptrace(3, True, may_trace=False).line


def test_what_evidence_will_lack_is_said() -> None:
    assert host.judge_py_spy("/usr/bin/py-spy").verdict == "ok"
    missing = host.judge_py_spy("")
    assert missing.verdict == "note"
    assert "no stack is kept of a stopped rank" in missing.line
    assert missing.line.endswith("`pip install 'holdfast[stacks]'`")
    assert host.judge_kernel_log(True).verdict == "ok"
    assert host.judge_kernel_log(False).verdict == "note"


def test_limits_that_bite_are_warned_of() -> None:
    assert host.judge_open_files(1024).verdict == "warn"
    assert host.judge_open_files(65536).verdict == "ok"
    assert host.judge_open_files(resource.RLIM_INFINITY).verdict == "ok"
    assert host.judge_core_dumps(0).verdict == "ok"
    assert host.judge_core_dumps(-1).verdict == "note"
    assert host.judge_pidfd(False).verdict == "warn"


def test_a_clock_that_is_not_synchronised_is_warned_of() -> None:
    assert [host.judge_clock(state).verdict for state in (0, 5, None)] == ["ok", "warn", "note"]
    assert redis_server.judge_skew(0.5, 60.0).verdict == "ok"
    far_off = redis_server.judge_skew(90.0, 60.0)
    assert far_off.verdict == "warn"
    assert "90.0 s ahead of the Redis server's" in far_off.line
    assert "this node would be kept out of a job" in far_off.line
    behind = redis_server.judge_skew(-2.0, 60.0)
    assert (behind.verdict, "2.0 s behind" in behind.line) == ("warn", True)
    for warned in (behind, host.judge_clock(5)):
        assert "a change of leader may shorten or lengthen a pause" in warned.line


def test_every_rung_is_shown_and_one_in_the_wrong_order_fails() -> None:
    assert {check.verdict for check in command.check_timeouts(Settings())} == {"ok"}
    wrong = Settings(sidecar=SidecarSettings(lease_s=11.0, mode="watch"))
    failed = [check for check in command.check_timeouts(wrong) if check.verdict == "fail"]
    assert [check.what for check in failed] == ["timeouts", "settings"]
    assert "sidecar.grace_s = 10 s does not hold" in failed[0].line


def test_nothing_that_had_to_be_made_stays(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    settings = Settings(
        paths=PathSettings(shm_dir=str(tmp_path), state_dir=str(tmp_path / "a/b/state")),
        checkpoint=CheckpointSettings(dir=str(tmp_path / "runs/one")),
    )
    _, state, checkpoints = directories.check_directories(settings, ranks=1)
    assert (state.verdict, checkpoints.verdict in ("ok", "warn")) == ("ok", True)
    assert [path.name for path in tmp_path.rglob("*")] == ["runs"]


def test_what_is_not_holdfasts_among_the_checkpoints_is_named(tmp_path: Path) -> None:
    for name in ("step-1000", "step-00001001", "step-200"):
        (tmp_path / "ck" / name).mkdir(parents=True)
    settings = Settings(
        paths=PathSettings(shm_dir=str(tmp_path), state_dir=str(tmp_path / "state")),
        checkpoint=CheckpointSettings(dir=str(tmp_path / "ck")),
    )
    *_, last = directories.check_directories(settings, ranks=1)
    line = (
        f"{tmp_path}/ck also holds step-200, step-1000, step-00001001: not Holdfast's, left alone"
    )
    assert last == Check("checkpoints", "note", line)


def test_a_directory_in_which_everybody_may_rename_what_is_ours_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directories, "LITTLE_BYTES", 0)
    settings = Settings(
        paths=PathSettings(shm_dir=str(tmp_path), state_dir=str(tmp_path / "state")),
        checkpoint=CheckpointSettings(dir=str(tmp_path / "ck")),
    )
    verdicts = {}
    (tmp_path / "ck").mkdir()
    for mode in (0o777, 0o1777, 0o775):
        (tmp_path / "ck").chmod(mode)
        verdicts[mode] = directories.check_directories(settings, ranks=1)[-1].verdict
    assert verdicts == {0o777: "warn", 0o1777: "ok", 0o775: "ok"}


def test_what_was_there_before_stays(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    paths = PathSettings(shm_dir=str(tmp_path), state_dir=str(tmp_path / "state"))
    directories.check_directories(Settings(paths=paths), ranks=1)
    assert (tmp_path / "state").is_dir()


def test_the_kernel_s_log_of_the_machine_that_is_meant_is_tried(tmp_path: Path) -> None:
    def log_of(root: Path) -> Check:
        checks = host.check_machine(KernelTrees(str(root)))
        return next(check for check in checks if check.what == "kernel log")

    assert log_of(tmp_path).verdict == "note"
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").touch()
    assert log_of(tmp_path).verdict == "ok"


def test_a_url_for_checkpoints_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(url: str) -> Check:
        return directories.check_directories(
            Settings(checkpoint=CheckpointSettings(dir=url)), ranks=1
        )[-1]

    assert look("memory://doctor/run") == Check("checkpoints", "ok", "memory://doctor/run")
    assert open_folder("memory://doctor/run").names() == []
    assert "pip install gcsfs" in look("gs://bucket/run").line

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Access Denied")

    monkeypatch.setattr(UrlFolder, "write", refuse)
    refused = look("memory://doctor/run")
    assert refused == Check(
        "checkpoints", "fail", "memory://doctor/run can't be written: Access Denied"
    )


def test_plain_torchrun_is_told_what_it_needs() -> None:
    unset = torchrun.check_torchrun({})
    assert {check.verdict for check in unset} == {"note"}
    assert "--max-restarts 1 or more" in unset[1].line
    good = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "PET_MAX_RESTARTS": "3"}
    assert {check.verdict for check in torchrun.check_torchrun(good)} == {"ok"}
    assert torchrun.check_torchrun({"PET_MAX_RESTARTS": "0"})[1].verdict == "fail"


@pytest.mark.parametrize(
    ("found", "verdict", "says"),
    [
        (
            SnapshotSpace(100 * 10**9, 200 * 10**9),
            "ok",
            "50.0 GB may be taken (50% of what is free)",
        ),
        (
            SnapshotSpace(0, 200 * 10**9),
            "warn",
            "shared memory is short: enlarge it (docker --shm-size)",
        ),
        (SnapshotSpace(100 * 10**9, 200 * 10**9, 10**9), "warn", "memory is short: free some"),
    ],
)
def test_memory_that_no_models_snapshots_fit_into_is_warned_of(
    found: SnapshotSpace, verdict: str, says: str
) -> None:
    check = host.judge_memory(SnapshotSettings(), found)
    assert check.verdict == verdict
    assert says in check.line


def test_snapshots_that_are_off_need_no_memory() -> None:
    assert (
        host.judge_memory(SnapshotSettings(every_steps=-1), SnapshotSpace(0, 0)).verdict == "note"
    )


def test_a_shared_memory_that_is_not_there_is_named_elsewhere() -> None:
    nowhere = Settings(paths=PathSettings(shm_dir="/nothing/there"))
    assert host.check_memory(nowhere) == []


def test_a_job_that_could_not_be_resumed_is_warned_of_with_what_to_do(tmp_path: Path) -> None:
    assert [check.verdict for check in restoring.check_restoring(tmp_path)] == ["ok"]
    told = "optimizer['state'] …; pass save= and load= functions"
    for job, reasons in (("ill", [told]), ("well", [])):
        (tmp_path / job / "a").mkdir(parents=True)
        record = JobRecord("running", 0, 9, 0, "", "", unrestorable=reasons)
        (tmp_path / job / "a" / "job.json").write_text(encode(record))
    (check,) = restoring.check_restoring(tmp_path)
    assert (check.verdict, check.line) == ("warn", f"job ill could not be resumed: {told}")
