"""Permits are given for what is ours, and taken for nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.contract.checkpoint_files import FolderMark, claim_folder, marked
from holdfast.contract.ending_processes import signal_child, signal_group, signal_handle
from holdfast.contract.owned import owned_file
from holdfast.contract.page import checkpoint_name
from holdfast.contract.permit import (
    Child,
    DirectoryEntry,
    Handle,
    Licence,
    NotOurChild,
    NotPermitted,
    Permit,
    Stored,
    own_child,
    own_group,
    own_session,
)
from holdfast.contract.removing import rmdir, rmtree, unlink
from holdfast.contract.storage import LocalFolder

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes files of another user: needs root")


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(("sleep", "60"), start_new_session=True) as process:
        yield process
        process.kill()


def test_a_child_is_ours_until_it_is_reaped(child: subprocess.Popen[bytes]) -> None:
    signal_child(own_child(child.pid))
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    own_child(child.pid)  # nobody else can get its number yet
    assert child.wait() == -signal.SIGKILL
    with pytest.raises(NotOurChild):
        own_child(child.pid)
    signal_child(own_child(child))  # as of a Popen: there is nothing left to do


@pytest.mark.parametrize("pid", [-1, 0, 1, pytest.param(os.getpid(), id="itself")])
def test_nobody_else_is_a_child(pid: int) -> None:
    for ask in (own_child, own_group):
        with pytest.raises(ProcessLookupError):
            ask(pid)
    with pytest.raises(ProcessLookupError):
        own_session(os.getpid(), [pid])


def test_what_a_child_started_is_ours_as_a_fork_servers_child_is() -> None:
    command = "sleep 60 & echo $!; wait"
    with subprocess.Popen(("sh", "-c", command), stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        grandchild = int(server.stdout.readline())
        assert "child of child" in own_child(grandchild).proof
        signal_child(own_child(grandchild))
        assert server.wait() is not None


def test_a_group_is_ours_when_a_child_leads_it_and_when_that_has_ended() -> None:
    command = "sleep 60 & echo $!"
    with subprocess.Popen(
        ("sh", "-c", command), stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as leader:
        assert leader.stdout is not None
        left = int(leader.stdout.readline())
        leader.wait()
        own_session(left, [leader.pid])
        signal_group(own_group(leader))
        assert leader.stdout.read() == ""  # who held it has ended
    with pytest.raises(NotOurChild):
        own_group(leader.pid)


def test_a_child_without_a_group_of_its_own_leads_none() -> None:
    with subprocess.Popen(("sleep", "60")) as process:
        with pytest.raises(NotOurChild, match="leads no group"):
            own_group(process.pid)
        process.kill()


def test_a_permit_for_one_kind_is_none_for_another(
    tmp_path: Path, child: subprocess.Popen[bytes]
) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    pidfd = os.pidfd_open(child.pid)
    as_child = own_child(child.pid)
    for end in (signal_group, signal_handle):
        with pytest.raises(NotPermitted):
            end(as_child)
    for wrong in (
        owned_file(file),
        Permit(Licence.OWN_FILE, Child(child.pid), "x"),
        Permit(Licence.OWN_CHILD, Handle(pidfd, signal.SIGKILL), "x"),
    ):
        for end in (signal_child, signal_group, signal_handle):
            with pytest.raises(NotPermitted):
                end(wrong)
    for remove in (unlink, rmdir, rmtree):
        for wrong in (
            as_child,
            Permit(Licence.OWN_CHILD, DirectoryEntry(str(file)), "x"),
            Permit(Licence.MARK, Stored(str(tmp_path)), "x"),
        ):
            with pytest.raises(NotPermitted):
                remove(wrong)
    os.close(pidfd)
    assert child.poll() is None
    assert file.exists()


def test_a_file_of_ours_is_removed_by_path_and_by_descriptor(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("x")
    above = os.open(tmp_path, os.O_RDONLY)
    unlink(owned_file(tmp_path / "a"))
    unlink(owned_file("b", above))
    unlink(owned_file("b", above), missing_ok=True)
    with pytest.raises(FileNotFoundError):
        unlink(owned_file(tmp_path / "a"))
    os.close(above)
    assert list(tmp_path.iterdir()) == []


@needs_root
def test_a_file_of_another_user_is_not_removed(tmp_path: Path) -> None:
    file = tmp_path / "theirs"
    file.write_text("x")
    os.chown(file, 65534, 65534)
    above = os.open(tmp_path, os.O_RDONLY)
    for where in ((file,), ("theirs", above)):
        with pytest.raises(NotPermitted, match="uid 65534"):
            owned_file(*where)
    os.close(above)
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]


def test_the_mark_of_one_job_is_none_for_another(tmp_path: Path) -> None:
    mark = FolderMark("job", 1, 10, "abc")
    folder = LocalFolder(tmp_path / checkpoint_name(10, "abc"))
    claim_folder(folder, mark)
    assert marked(folder, "job").licence is Licence.MARK
    with pytest.raises(NotPermitted):
        marked(folder, "other")
    folder.path.rename(tmp_path / "moved")
    for name in ("moved", "unmarked"):
        with pytest.raises(NotPermitted):
            marked(LocalFolder(tmp_path / name), "job")
