"""The list of what comes after a snapshot: known ahead, and never older than the ledger."""

from __future__ import annotations

import dataclasses

from holdfast_sidecar.controller.snapshots import ResumePreview
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.plan import Candidate
from holdfast_sidecar.store.protocol import Lease

LEASE = Lease(1, "n0/i")
BEFORE = Cluster()
AFTER = dataclasses.replace(BEFORE, ledger_texts={"a": "{}"})


class Shelf:
    """The part of storage that is asked."""

    def __init__(self) -> None:
        self.looks: set[str] = set()

    def candidates(self, occasion: str) -> list[Candidate]:
        self.looks.add(occasion)
        return [Candidate("a", "/c/a", len(self.looks))]


def test_what_was_found_holds_until_the_ledger_changes() -> None:
    outlook = ResumePreview(shelf := Shelf())  # type: ignore[arg-type]
    outlook.keep(LEASE, BEFORE, 1.0)
    outlook.keep(LEASE, BEFORE, 2.0)
    assert outlook.candidates(LEASE, BEFORE) == [Candidate("a", "/c/a", 1)]
    assert outlook.candidates(LEASE, AFTER) is None
    outlook.keep(LEASE, AFTER, 3.0)
    assert outlook.candidates(LEASE, AFTER) == [Candidate("a", "/c/a", 2)]
    assert len(shelf.looks) == 2


def test_another_leader_may_have_changed_what_is_there() -> None:
    outlook = ResumePreview(Shelf())  # type: ignore[arg-type]
    outlook.keep(LEASE, BEFORE, 1.0)
    assert outlook.candidates(Lease(3, "n0/i"), BEFORE) is None
