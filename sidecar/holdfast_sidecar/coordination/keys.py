"""Every Redis key of a job, its writer and its lifetime. Command set: Redis 7.0.

All keys of a job share the hash tag `{job}`, so that a cluster keeps them on one shard and one
script may touch them all. Every key expires: RUNNING_TTL_S after its last refresh while the job
lives (sidecars refresh), ENDED_TTL_S once it has ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

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
