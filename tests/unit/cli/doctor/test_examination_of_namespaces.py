"""`holdfast doctor` says which processes are seen from where it runs, and what that costs."""

from __future__ import annotations

from pathlib import Path

from holdfast_sidecar.cli.doctor import NOTE, OK, WARN
from holdfast_sidecar.cli.doctor.host import FIRST_NAMESPACE, check_first_process, check_processes


def proc(folder: Path, namespace: str, first: str) -> Path:
    (folder / "self/ns").mkdir(parents=True)
    (folder / "self/ns/pid").symlink_to(namespace)
    (folder / "1").mkdir()
    (folder / "1/comm").write_text(f"{first}\n")
    return folder


def test_on_the_machine_itself_all_are_seen(tmp_path: Path) -> None:
    found = check_processes(proc(tmp_path, FIRST_NAMESPACE, "systemd"))
    assert (found.verdict, found.line) == (OK, "those of the whole machine are seen")


def test_in_a_pod_that_shares_them_those_of_its_containers_are(tmp_path: Path) -> None:
    found = check_processes(proc(tmp_path, "pid:[4026533201]", "pause"))
    assert (found.verdict, found.line) == (OK, "those of all containers of this pod are seen")


def test_in_a_container_alone_it_is_said_what_is_lost_and_how_it_is_mended(tmp_path: Path) -> None:
    found = check_processes(proc(tmp_path, "pid:[4026533201]", "holdfast"))
    assert found.verdict == NOTE
    for word in ("state, stacks and exits", "shareProcessNamespace: true", "`holdfast run`"):
        assert word in found.line


def test_where_it_can_t_be_read_nothing_is_claimed(tmp_path: Path) -> None:
    assert check_processes(tmp_path).verdict == NOTE


def test_a_shell_as_first_process_is_warned_of_as_it_passes_no_signal_on(tmp_path: Path) -> None:
    (found,) = check_first_process(proc(tmp_path / "shell", "pid:[4026533201]", "sh"))
    assert found.verdict == WARN
    assert "begin its command with `exec`" in found.line
    assert check_first_process(proc(tmp_path / "ours", "pid:[4026533201]", "holdfast")) == []
    assert check_first_process(proc(tmp_path / "machine", FIRST_NAMESPACE, "systemd")) == []
