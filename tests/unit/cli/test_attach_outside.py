"""What is done about a hang of ranks without hooks, where told to act."""

from __future__ import annotations

import dataclasses
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from holdfast.contract.identity import read_identity
from holdfast_sidecar.cli import attach
from holdfast_sidecar.cli.attach import OutsideWatch
from holdfast_sidecar.cli.attach_watch import Console
from holdfast_sidecar.config.paths import Paths
from holdfast_sidecar.config.settings import Settings, SidecarSettings
from holdfast_sidecar.ranks.unhooked import OutsideLook, OutsideRank
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import Member, Plan
from holdfast_sidecar.records.reports import NodeReport
from holdfast_sidecar.startup import Site
from holdfast_sidecar.store.orders import LocalState, Orders
from holdfast_sidecar.store.protocol import Lease, Section, View

PLAN = Plan(
    attempt=0,
    epoch=1,
    state="evidence",
    members=[Member("a", "x", 0, 0, 1), Member("b", "y", 1, 1, 1)],
    incident="i1",
    cause="hang",
    culprit_node="a",
    culprit_ranks=[0],
)


@dataclass
class Agreed:
    """In place of the coordinator: what was decided, and what it was told."""

    kept_by: tuple[str, ...] = ()
    told: list[LocalState] = field(default_factory=list)

    def orders(self) -> Orders:
        reports = {
            node: encode(NodeReport(node, "i", 1, 0, 1, 0, True, evidence_for="i1"))
            for node in self.kept_by
        }
        view = View(Lease(1, "a/x"), "s", {Section.NODES: reports})
        return Orders(plan=PLAN, lease=view.lease, store_up=True, view=view)

    def tell(self, state: LocalState) -> None:
        self.told.append(state)


@dataclass
class Seen:
    """In place of the probe: one rank."""

    who: OutsideRank
    is_gone: bool = False

    def read(self, now_s: float) -> list[OutsideLook]:
        return [OutsideLook(self.who, now_s, is_gone=self.is_gone, state="T")]


@pytest.fixture
def rank() -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen(["sleep", "60"])
    yield started
    started.kill()
    started.wait()


def watch(rank: subprocess.Popen[bytes], agreed: Agreed, tmp_path: Path) -> OutsideWatch:
    identity = read_identity(rank.pid)
    assert identity is not None
    seen: Any = Seen(OutsideRank(0, 0, rank.pid, identity.start_ticks))
    coordinator: Any = agreed
    settings = dataclasses.replace(Settings(), sidecar=SidecarSettings(mode="act"))
    site = Site("j", "a", Paths(tmp_path / "shm", tmp_path / "state"), settings, attached=True)
    return OutsideWatch(site, seen, coordinator, Console(lambda line: None, "", 0.0))


def keeps(*found: object) -> dict[int, str]:
    return {}


def test_the_culprit_is_ended_once_every_node_has_kept_its_evidence(
    rank: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attach, "keep_outside_evidence", keeps)
    agreed = Agreed(kept_by=("a",))
    watching = watch(rank, agreed, tmp_path)
    watching.look(1.0, 1.0)
    watching.look(2.0, 2.0)
    assert rank.poll() is None
    assert agreed.told[-1].evidence_for == "i1"
    agreed.kept_by = ("a", "b")
    watching.look(3.0, 3.0)
    assert rank.wait(5.0) == -9


def test_a_node_that_does_not_keep_its_evidence_is_not_waited_for_for_ever(
    rank: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attach, "keep_outside_evidence", keeps)
    watching = watch(rank, Agreed(kept_by=("a",)), tmp_path)
    watching.look(1.0, 1.0)
    watching.look(1.0 + Settings().policy.evidence_timeout_s + 0.1, 12.0)
    assert rank.wait(5.0) == -9


def test_evidence_that_hangs_does_not_stop_the_watch_and_is_waited_for_only_so_long(
    rank: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, calls = threading.Event(), []

    def hangs(incident: str, *found: object) -> dict[int, str]:
        calls.append(incident)
        assert answers.wait(60.0)
        return {0: "in the kernel"}

    monkeypatch.setattr(attach, "keep_outside_evidence", hangs)
    agreed = Agreed(kept_by=("a", "b"))
    watching = watch(rank, agreed, tmp_path)
    watching.look(100.0, 1.0)
    watching.look(100.0 + Settings().policy.evidence_timeout_s - 0.1, 2.0)
    assert rank.poll() is None
    assert (agreed.told[-1].evidence_for, calls) == ("", ["i1"])
    watching.look(100.0 + Settings().policy.evidence_timeout_s + 0.1, 2.2)
    assert rank.wait(5.0) == -9
    answers.set()
    while agreed.told[-1].evidence_for != "i1":
        watching.look(300.0, 3.0)
    assert agreed.told[-1].where_ranks_stood == {"0": "in the kernel"}


def test_evidence_that_fails_ends_the_rank_once_the_time_for_it_is_over(
    rank: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*found: object) -> dict[int, str]:
        raise OSError(5, "input/output error")

    monkeypatch.setattr(attach, "keep_outside_evidence", fails)
    watching = watch(rank, Agreed(kept_by=("b",)), tmp_path)
    watching.look(1.0, 1.0)
    watching.look(2.0, 2.0)
    assert rank.poll() is None
    assert watching.runner.failed["keep_evidence"] == 2
    watching.look(12.0, 12.0)
    assert rank.wait(5.0) == -9


def test_a_disk_that_takes_no_evidence_is_not_waited_for(
    rank: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*found: object) -> dict[int, str]:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(attach, "keep_outside_evidence", fails)
    agreed = Agreed()
    watching = watch(rank, agreed, tmp_path)
    watching.look(1.0, 1.0)
    assert rank.poll() is None
    agreed.kept_by = ("b",)
    watching.look(2.0, 2.0)
    assert rank.wait(5.0) == -9
