"""What the kernel doesn't show proves nothing: a /proc made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.detectors.scene import look

from holdfast_sidecar.closer_look import Scrutiny
from holdfast_sidecar.detectors.immobility import proof_of_standing
from holdfast_sidecar.observation import RankLook
from holdfast_sidecar.probes import process
from holdfast_sidecar.probes.closely import CloserProbe

PID = 1000
LOCKED = "202 0x7f00 0x189 0x0 0x0 0x0 0xffffffff 0x7ffe10 0x7f5d20\n"
STAT = "{pid} ({name}) S 1 1 1 0 -1 0 0 0 0 0 5 5 0 0 20 0 1 0 77 0 0 {zeros} {status}\n"


@pytest.fixture(autouse=True)
def on_x86(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process.platform, "machine", lambda: "x86_64")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    add(tmp_path, PID, "python")
    return tmp_path


def add(proc: Path, pid: int, name: str, call: str | None = LOCKED, children: str = "") -> None:
    task = proc / str(pid) / "task" / str(pid)
    task.mkdir(parents=True)
    (task / "children").write_text(children)
    if call is not None:
        (task / "syscall").write_text(call)
    (proc / str(pid) / "comm").write_text(f"{name}\n")
    zeros = " ".join(["0"] * 28)
    (proc / str(pid) / "stat").write_text(STAT.format(pid=pid, name=name, zeros=zeros, status=0))


def seen(proc: Path, suspect: RankLook | None = None) -> Scrutiny | None:
    probe, asked = CloserProbe(proc), look(0.0) if suspect is None else suspect
    known = [probe.look([asked], now_s) for now_s in (0.5, 1.0, 1.5)]
    return known[-1].get(0)


def is_proven(proc: Path) -> bool:
    return bool(proof_of_standing(seen(proc), 120.0))


def test_a_lock_in_a_process_that_is_seen_whole_is_proof(proc: Path) -> None:
    assert is_proven(proc)


def test_calls_that_may_not_be_read_prove_nothing(proc: Path) -> None:
    (proc / f"{PID}/task/{PID}/syscall").unlink()
    assert not is_proven(proc)


def test_nor_does_a_lock_on_another_kind_of_machine(
    proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process.platform, "machine", lambda: "aarch64")
    assert not is_proven(proc)


def test_nor_a_kernel_that_lists_no_children(proc: Path) -> None:
    (proc / f"{PID}/task/{PID}/children").unlink()
    assert not is_proven(proc)


def test_nor_more_children_or_threads_than_are_looked_at(
    proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (proc / f"{PID}/task/{PID}/children").write_text(" ".join(map(str, range(2000, 2064))))
    assert not is_proven(proc)
    (proc / f"{PID}/task/{PID}/children").write_text("")
    monkeypatch.setattr("holdfast_sidecar.probes.closely.MOST_THREADS", 1)
    assert not is_proven(proc)


@pytest.mark.parametrize(("name", "proven"), [("pt_data_worker", True), ("wandb-core", False)])
def test_of_children_that_may_not_be_seen_only_torchs_workers_rest(
    proc: Path, name: str, proven: bool
) -> None:
    (proc / f"{PID}/task/{PID}/children").write_text("2000")
    add(proc, 2000, name, call=None)
    assert is_proven(proc) is proven


def test_a_pid_of_another_namespace_is_left_alone(proc: Path) -> None:
    assert seen(proc, replace(look(0.0), process=None)) is None


def test_what_was_seen_is_forgotten_once_the_rank_moves(proc: Path) -> None:
    probe, first = CloserProbe(proc), look(0.0)
    for now_s in (0.5, 1.0):
        known = probe.look([first], now_s)
    assert known[0].before is not None
    known = probe.look([look(1.0, step=11)], 1.1)
    assert (known[0].before, known[0].look.at_s) == (None, 1.1)
    assert probe.look([], 1.2) == {}


def test_it_looks_the_less_often_the_longer_the_silence(proc: Path) -> None:
    probe, silent = CloserProbe(proc), look(0.0)
    times = [0.1 * number for number in range(1, 900)]
    looked = {probe.look([silent], now_s)[0].look.at_s for now_s in times}
    early = [at_s for at_s in looked if at_s <= 3.0]
    late = [at_s for at_s in looked if at_s > 80.0]
    assert len(early) >= 10
    assert len(late) <= 3
