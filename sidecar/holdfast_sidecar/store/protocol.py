"""What coordination asks of a store. Two twins keep this contract: memory and Redis.

Nothing here decides; who may lead and what is ordered is judged in `decisions`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, Flag, auto
from typing import Any, Protocol

from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.reports import NodeReport
from holdfast_sidecar.store.account import Turn

# Every Redis key of a job, its writer and its lifetime. Command set: Redis 7.0.
#
# All keys of a job share the hash tag `{job}`, so that a cluster keeps them on one shard and one
# script may touch them all. Every key expires: RUNNING_TTL_S after its last refresh while the job
# lives (sidecars refresh), ENDED_TTL_S once it has ended.

PREFIX = "holdfast"

RUNNING_TTL_S = 24 * 3600
ENDED_TTL_S = 3600

CURRENT = "current"
"""The one field of a section that holds one record."""

TALLY = "tally"
"""Beside it, where what became of such records is counted."""


class Section(str, Enum):
    """One hash per section. In brackets: field, and who writes it."""

    AGENTS = "agents"  # [node; its launcher or rendezvous handler] AgentReport
    NODES = "nodes"  # [node; its sidecar] NodeReport
    PLAN = "plan"  # ["current"; the leader] Plan
    CHECKPOINT = "checkpoint"  # ["current", "tally"; the leader] CheckpointOrder, CheckpointTally
    ENDPOINTS = "endpoints"  # [attempt; agent of node rank 0] host:port of the attempt's TCPStore
    LEDGER = "ledger"  # [checkpoint identifier; the leader] LedgerEntry
    INCIDENTS = "incidents"  # [incident identifier; the leader] Incident
    REQUESTS = "requests"  # [request identifier; the command line] Request; the leader removes it
    SNAPSHOT = "snapshot"  # ["current"; the leader] SnapshotOrder
    PEER = "peer"  # ["current"; the leader] PeerOrder
    TRACE = "trace"  # ["current"; the leader] TraceOrder
    KEY = "key"  # ["current"; the leader] AttemptKey; a secret: never logged, never shown
    ACCOUNT = "account"  # [see records.account; the leader, by ACCOUNT_TURN] where the time went
    SETTINGS = "settings"  # ["current"; whoever comes first] Settings that all nodes must share


FOR_LEADERS = frozenset({Section.AGENTS, Section.NODES, Section.REQUESTS})
"""Sections whose news only sidecars (and commands that wait) need at once; each of n nodes reports,
so if reports woke the n launchers too, one meeting would cost n² readings."""


@dataclass(frozen=True)
class Keys:
    """The keys of one job."""

    job: str

    @property
    def leader(self) -> str:
        """String `epoch candidate`, living as long as the lease; written by campaign."""
        return f"{PREFIX}:{{{self.job}}}:leader"

    @property
    def epoch(self) -> str:
        """String, the highest epoch ever granted; written by campaign."""
        return f"{PREFIX}:{{{self.job}}}:epoch"

    def section(self, section: Section) -> str:
        """The hash of this section."""
        return f"{PREFIX}:{{{self.job}}}:{section.value}"

    @property
    def orders(self) -> str:
        """Pub/sub channel: who leads, or what is wanted, changed. Messages carry nothing."""
        return f"{PREFIX}:{{{self.job}}}:orders"

    @property
    def reports(self) -> str:
        """Pub/sub channel: something was reported or asked for. Messages carry nothing."""
        return f"{PREFIX}:{{{self.job}}}:reports"

    def channel(self, section: Section) -> str:
        """Where a write to this section is told."""
        return self.reports if section in FOR_LEADERS else self.orders

    def all(self) -> list[str]:
        """Every key that lives in the keyspace (the channels do not)."""
        return [self.leader, self.epoch, *(self.section(section) for section in Section)]


ALL_SECTIONS = tuple(Section)

OPEN_SECTIONS = tuple(section for section in Section if section is not Section.KEY)
"""What anybody who looks may see; the attempt's secret is read by sidecars alone."""


class StoreUnavailable(Exception):
    """The store can't be asked right now: refused, timed out, failing over, loading."""


class WakeUp(Flag):
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

    def wait(self, timeout_s: float) -> WakeUp:
        """Sleep until someone wrote, or the time is over. Wake-ups may be lost or be spurious."""

    def time(self) -> float:
        """The store's own wall clock, seconds, which is the same for whoever asks."""

    def keep(self, ttl_s: float) -> None:
        """Let every key of the job expire this long from now."""


# This sidecar's report as it goes to the store, and as it is met again in what is read.
#
# Beats come oftener than ticks of the loop: many bring nothing new but their number. And what comes
# back of its own need not be parsed.


@dataclass
class OwnReport:
    """The newest, with its text."""

    report: NodeReport | None = None
    text: str = ""
    _said: dict[str, Any] = field(default_factory=dict)
    """All but the beat."""
    _spelt: str = ""

    def spell(self, report: NodeReport) -> str:
        """The report as JSON, which `decode` reads like any other."""
        said = dict(vars(report))
        beat, incarnation = said.pop("beat"), said.pop("incarnation")
        if said != self._said or not self._spelt:
            self._said, self._spelt = said, encode(said)
        who = f'"beat":{beat},"incarnation":{encode(incarnation)}'
        self.report, self.text = report, f"{{{who},{self._spelt[1:]}"
        return self.text

    def recognise(self, text: str) -> NodeReport | None:
        """The report, if this is its text; None: it is somebody else's, or an earlier one."""
        return self.report if self.text == text else None


# Lets a thread that exchanges with the store go on whatever one exchange ran into.
#
# Such a thread that ended without a word would leave a node deaf or mute for the rest of the job.


class ExchangeGuard:
    """Guards one thread's exchanges; an error of our own is logged once, not at every retry."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._logged = ""

    def run(self, exchange: Callable[[], None]) -> Exception | None:
        """Exchange; what ended it, or None. StoreUnavailable is the caller's to tell of."""
        try:
            exchange()
        except StoreUnavailable as error:
            return error
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            if text != self._logged:
                self._logger.exception(
                    "an exchange with the store failed, the next one comes all the same"
                )
                self._logged = text
            return error
        self._logged = ""
        return None
