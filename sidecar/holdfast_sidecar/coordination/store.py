"""What coordination asks of a store. Two twins keep this contract: memory and Redis.

Nothing here decides; who may lead and what is ordered is judged in `decisions`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Flag, auto
from typing import Protocol

from holdfast_sidecar.coordination.account_turn import Turn
from holdfast_sidecar.coordination.keys import Section

ALL_SECTIONS = tuple(Section)

OPEN_SECTIONS = tuple(section for section in Section if section is not Section.KEY)
"""What anybody who looks may see; the attempt's secret is read by sidecars alone."""


class StoreUnavailable(Exception):
    """The store can't be asked right now: refused, timed out, failing over, loading."""


class Heard(Flag):
    """What a wait heard; false when the time was over instead."""

    NOTHING = 0
    ORDERS = auto()
    REPORTS = auto()
    ANYTHING = ORDERS | REPORTS


@dataclass(frozen=True)
class Lease:
    """Who leads. `candidate` is empty when nobody does."""

    epoch: int
    candidate: str


@dataclass(frozen=True)
class Bid:
    """What a candidate campaigns with, see `Store.campaign`."""

    candidate: str
    lease_s: float
    floor: int

    @property
    def incarnation(self) -> str:
        """Which sidecar of its node this is, see NodeReport.candidate."""
        return self.candidate.rpartition("/")[2]


@dataclass(frozen=True)
class View:
    """What a store holds about the job, read in one go.

    `server` names the server's run and replication history: when it changes, deadlines counted
    from older readings start again.
    """

    lease: Lease
    server: str
    sections: Mapping[Section, Mapping[str, str]] = field(default_factory=dict)

    def section(self, section: Section) -> Mapping[str, str]:
        """Fields of a section; empty when it does not exist."""
        return self.sections.get(section, {})


def without_secrets(view: View) -> View:
    """The view as it may be handed around, written down and shown."""
    return replace(view, sections={s: view.section(s) for s in OPEN_SECTIONS if s in view.sections})


class Store(Protocol):
    """One job's place to agree. Every call may raise StoreUnavailable."""

    def campaign(self, candidate: str, lease_s: float, floor: int, deposed: str = "") -> Lease:
        """Renew this candidate's lease, or take a free one; answer who leads.

        A newly taken lease gets epoch max(highest granted, floor) + 1; a renewed one keeps its
        epoch unless that is below `floor`, then it too is raised past it. A lease that `deposed`
        holds counts as free.
        """

    def resign(self, candidate: str) -> None:
        """Give the lease back if this candidate holds it."""

    def report(self, section: Section, field: str, value: str | None, *, wake: bool = True) -> None:
        """Write (None: remove) an unguarded field that has one writer.

        `wake` is for news; a mere heartbeat passes False, or n nodes would wake n nodes each beat.
        """

    def report_as(
        self,
        section: Section,
        field: str,
        value: str,
        incarnations: Collection[str],
        *,
        wake: bool = True,
    ) -> str | None:
        """`report`, unless what is there is of another incarnation than these: its text then, and
        nothing is written. None: it was."""

    def claim(
        self, section: Section, field: str, value: str, expected: str | None = None
    ) -> str | None:
        """Write the field if it holds `expected` (None: is absent); answer what it then holds."""

    def order(
        self, lease: Lease, section: Section, field: str, value: str | None, expected: str | None
    ) -> bool:
        """Write (None: remove) a guarded field and wake everyone, in one atomic step.

        Done only while `lease` is the one in force and the field holds `expected` (None: is
        absent); answers whether it was done.
        """

    def turn_account(self, lease: Lease, turn: Turn) -> Mapping[str, str]:
        """Close what is open in the run's account, by the store's own clock, and open the next.

        Done only while `lease` is in force, and wakes nobody; answers the account's fields, none
        when it was not done.
        """

    def read(self, sections: Collection[Section] = OPEN_SECTIONS) -> View:
        """Lease and server, and these sections, at one instant."""

    def exchange(
        self, field: str, value: str, bid: Bid, *, wake: bool, instead_of: Collection[str] = ()
    ) -> tuple[Lease, View]:
        """`report` on a node, `campaign` and `read` of everything, in this order, in one message.

        While the node's report is of another incarnation than the candidate's, and of none of
        `instead_of`, it is only read: two sidecars under one name would depose each other for ever.

        On a machine that is busy, as after a death, each answer may be ten milliseconds away.
        """

    def wait(self, timeout_s: float) -> Heard:
        """Sleep until someone wrote, or the time is over. Wake-ups may be lost or be spurious."""

    def time(self) -> float:
        """The store's own wall clock, seconds, which is the same for whoever asks."""

    def keep(self, ttl_s: float) -> None:
        """Let every key of the job expire this long from now."""
