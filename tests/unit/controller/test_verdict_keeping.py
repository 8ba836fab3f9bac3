"""The leader's hand for verdicts, against storage that takes its time or takes nothing."""

from __future__ import annotations

from holdfast_sidecar.checkpoint.writer.client import StorageUnanswered
from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.controller.checkpoint_orders import VerdictKeeping
from holdfast_sidecar.policy.cluster import Cluster, parse_cluster
from holdfast_sidecar.records.checkpoint import LedgerEntry
from holdfast_sidecar.records.plan import Candidate, Plan
from holdfast_sidecar.store.memory_store import MemoryServer, MemoryStore
from holdfast_sidecar.store.protocol import Lease

LEFT = [Candidate("c", "/c/c", 50)]


class SlowStorage:
    """Answers every second time it is asked."""

    def __init__(self, error: OSError | None = None) -> None:
        self._error = error
        self.asked: list[tuple[str, str, str]] = []

    def give_verdict(self, identifier: str, verdict: str, reason: str) -> LedgerEntry | None:
        self.asked.append((identifier, verdict, reason))
        if len(self.asked) % 2:
            raise StorageUnanswered
        if self._error is not None:
            raise self._error
        return LedgerEntry(identifier, "/c/c", 50, 0, 1, "", verdict, 1, 2, 0.0)


class Leader:
    def __init__(self, storage: SlowStorage) -> None:
        self.store = MemoryStore(MemoryServer(clock=lambda: 0.0))
        self.lease: Lease = self.store.campaign("a", 9.0, 0)
        self.keeping = VerdictKeeping(self.store, CheckpointSettings(), storage)  # type: ignore[arg-type]

    def abandon(self) -> bool:
        return self.keeping.abandon(self.lease, Cluster(), LEFT, "why")


def test_the_plan_waits_until_storage_knows_what_was_left_behind() -> None:
    storage = SlowStorage()
    leader = Leader(storage)
    assert leader.abandon()
    assert not leader.abandon()
    assert storage.asked == [("c", "poisoned", "why")] * 2, "one question, asked until answered"
    assert parse_cluster(leader.store.read()).ledger["c"].verdict == "poisoned"


def test_the_ledger_hears_of_it_also_when_nobody_asks_again() -> None:
    leader = Leader(SlowStorage())
    assert leader.abandon()
    leader.keeping.follow(leader.lease, Cluster())
    assert parse_cluster(leader.store.read()).ledger["c"].verdict == "poisoned"


def test_no_restart_waits_for_storage_that_refuses() -> None:
    storage = SlowStorage(OSError(30, "Read-only file system"))
    leader = Leader(storage)
    assert leader.abandon()
    leader.keeping.follow(leader.lease, Cluster())
    assert not leader.abandon()
    assert len(storage.asked) == 2


def test_what_storage_refused_is_said_again_while_the_job_runs() -> None:
    storage = SlowStorage(OSError(30, "Read-only file system"))
    leader = Leader(storage)
    leader.abandon()
    leader.abandon()
    plan = Plan(1, 1, "running")
    for now in (100.0, 101.0, 102.0):
        leader.keeping.keep(leader.lease, Cluster(), plan, now)
    assert len(storage.asked) == 4, "once more, and then left alone"
    storage._error = None
    for now in (140.0, 141.0, 142.0):
        leader.keeping.keep(leader.lease, Cluster(), plan, now)
    assert len(storage.asked) == 6, "and no more once it is said"
    assert parse_cluster(leader.store.read()).ledger["c"].verdict == "poisoned"
