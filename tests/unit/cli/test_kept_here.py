from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from holdfast_sidecar.cli.recall import bundles, failures, in_brief, tell_failures
from holdfast_sidecar.incidents.explain import tell
from holdfast_sidecar.incidents.first_error import Sign
from holdfast_sidecar.records.plan import Incident

LOST_PEER = "RuntimeError: Connection closed by peer"


def keep(state: Path, node: str, *signs: Sign) -> None:
    directory = state / node / "incidents" / "i1"
    directory.mkdir(parents=True)
    written = {"signs": [dataclasses.asdict(sign) for sign in signs], "order": []}
    (directory / "first-error.json").write_text(json.dumps(written))


def test_what_several_nodes_kept_is_put_together(tmp_path: Path) -> None:
    victim = Sign(0, "a", LOST_PEER, 1, 10.5, "exit")
    cause = Sign(3, "b", "ended by SIGABRT", 1, 10.0, "exit")
    why = Sign(3, "b", "CUDA error: x", 2, 9.9, "rank-3-stderr.log", is_of_log=True)
    keep(tmp_path, "a", victim, cause)
    keep(tmp_path, "b", victim, cause, why)
    found = failures(tmp_path, tell(Incident("i1", 0, "crash")))
    assert [one.rank for one in found] == [3, 0]
    assert tell_failures(found) == [
        "first     rank 3 on node b: CUDA error: x (90% sure it was the first to fail)",
        "then      rank 0 on node a: RuntimeError: Connection closed by peer"
        " (600 ms later, having lost a peer)",
    ]


def test_what_is_no_such_file_is_passed_over(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "incidents" / "i1"
    directory.mkdir(parents=True)
    for text in ("", "[]", '{"signs": [{"rank": 1}]}', '{"signs": 3}'):
        (directory / "first-error.json").write_text(text)
        assert failures(tmp_path, tell(Incident("i1", 0, "crash"))) == []
    assert tell_failures([]) == []


def test_many_that_followed_are_counted(tmp_path: Path) -> None:
    keep(tmp_path, "a", *(Sign(rank, "a", LOST_PEER, 1, 1.0, "exit") for rank in range(8)))
    lines = tell_failures(failures(tmp_path, tell(Incident("i1", 0, "crash"))))
    assert len(lines) == 5
    assert lines[-1].endswith("and 4 more")


def test_bundles_of_this_machine_are_paths_and_those_of_others_tell_their_host(
    tmp_path: Path,
) -> None:
    archive = tmp_path / "a" / "incidents" / "i1.tar.gz"
    archive.parent.mkdir(parents=True)
    archive.touch()
    incident = Incident("i1", 0, "crash", bundles={"a": f"here:{archive}", "b": "there:/x.tar.gz"})
    assert bundles(tmp_path, tell(incident)) == [str(archive), "there:/x.tar.gz"]


def test_a_full_directory_is_told_in_one_line(tmp_path: Path) -> None:
    many = [(tmp_path / "i1" / str(number), 10) for number in range(20)]
    few = [(tmp_path / "attempt-0" / "fatal.txt", 5)]
    assert in_brief([*many, *few]) == [
        (f"{tmp_path}/i1/ (20 files)", 200),
        (str(few[0][0]), 5),
    ]
