"""Network file systems, by what their clients tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_sidecar.components.host.storage import (
    MountsProbe,
    Traffic,
    find_mount,
    parse_import,
    parse_mounts,
    parse_mountstats,
)

MOUNTINFO = """\
22 1 0:21 / / rw - ext4 /dev/vda rw
40 22 0:50 / /data rw,relatime shared:1 - nfs4 server:/export rw,vers=4.1
41 22 0:51 / /data/fast rw - lustre mgs@tcp:/fast rw
42 22 0:52 / /with\\040blank rw - nfs server:/other rw
nonsense
"""

MOUNTSTATS = """\
device proc mounted on /proc with fstype proc
device server:/export mounted on /data with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.1
\tage:\t1234
\txprt:\ttcp 0 0 1 0 24 {sends} {receives} 0 1213 0 2 0 1213
\txprt:\ttcp 0 0 1 0 24 5 5 0 1213 0 2 0 1213
\tper-op statistics
\t        NULL: 1 1 0 44 24 0 0 0 0
\t        READ: 10 12 2 44 24 0 0 0 0
\t       WRITE: 10 12 {timeouts} 44 24 0 0 0 0
device gone:/x mounted on /with\\040blank with fstype nfs statvers=1.1
\txprt:\tudp 1 2
\txprt:\ttcp 0 0 1 0 24 many few 0 0 0
"""


def write(root: Path, sends: int, receives: int, timeouts: int = 1) -> None:
    folder = root / "proc/self"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mountinfo").write_text(MOUNTINFO)
    text = MOUNTSTATS.format(sends=sends, receives=receives, timeouts=timeouts)
    (folder / "mountstats").write_text(text)


def probe(root: Path, path: str = "/data/checkpoints") -> MountsProbe:
    return MountsProbe(root / "proc", root / "sys", lambda: {"checkpoint": path})


def test_what_is_sent_and_received_is_summed_over_connections() -> None:
    text = MOUNTSTATS.format(sends=100, receives=90, timeouts=1)
    assert parse_mountstats(text) == {
        "/data": Traffic(105, 95, 3),
        "/with blank": Traffic(0, 0, 0),
    }
    assert parse_mountstats("") == {}


def test_a_path_lies_on_the_longest_mount_above_it() -> None:
    mounts = parse_mounts(MOUNTINFO)
    assert find_mount("/data/fast/x", mounts) == ("/data/fast", "lustre")
    assert find_mount("/data/faster", mounts) == ("/data", "nfs4")
    assert find_mount("/database", mounts) == ("/", "ext4")
    assert find_mount("/x", []) == ("", "")


def test_a_server_that_answers_nothing_more_is_silent_since_then(tmp_path: Path) -> None:
    mounts = probe(tmp_path)
    silent = []
    for at_s, sends, receives in [
        (0.0, 100, 100),
        (10.0, 130, 130),
        (20.0, 131, 130),
        (30.0, 131, 130),
        (50.0, 140, 130),
        (60.0, 141, 141),
    ]:
        write(tmp_path, sends, receives)
        (storage,) = mounts.read(at_s)
        silent.append(storage.silent_s)
    assert silent == [0.0, 0.0, 0.0, 10.0, 30.0, 0.0]
    assert (storage.purpose, storage.kind, storage.point, storage.timeouts) == (
        "checkpoint",
        "nfs4",
        "/data",
        3,
    )


def test_a_mount_that_rests_owes_nothing_though_a_lost_connection_left_a_gap(
    tmp_path: Path,
) -> None:
    mounts = probe(tmp_path)
    for at_s in (0.0, 100.0, 1000.0):
        write(tmp_path, 105, 100)
        assert mounts.read(at_s)[0].silent_s == 0.0


def test_counts_that_go_backwards_are_a_mount_made_anew(tmp_path: Path) -> None:
    mounts = probe(tmp_path)
    for at_s, sends, receives in [(0.0, 100, 100), (10.0, 110, 100), (20.0, 3, 3)]:
        write(tmp_path, sends, receives)
        (storage,) = mounts.read(at_s)
    assert storage.silent_s == 0.0


def test_local_file_systems_and_unused_mounts_are_not_told_of(tmp_path: Path) -> None:
    write(tmp_path, 1, 0)
    assert probe(tmp_path, "/home/me").read(0.0) == ()


def test_lustre_tells_which_connection_is_not_well(tmp_path: Path) -> None:
    write(tmp_path, 1, 1)
    imports = tmp_path / "sys/kernel/debug/lustre/osc"
    for name, state in [("fast-OST0000", "FULL"), ("fast-OST0001", "DISCONN")]:
        (imports / name).mkdir(parents=True)
        (imports / name / "import").write_text(f"import:\n    name: x\n    state: {state}\n")
    (storage,) = probe(tmp_path, "/data/fast").read(0.0)
    assert (storage.kind, storage.state) == ("lustre", "fast-OST0001: DISCONN")
    assert parse_import("garbage\x00") == ""


def test_a_machine_that_hides_its_mounts_is_a_failure_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        probe(tmp_path).read(0.0)
