"""What a rank's page says of its snapshots: the words that the sidecar reads."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.contract.page import Word
from holdfast.recording.interface import Recording
from holdfast.snapshots import retention
from holdfast.snapshots.retention import Known


@dataclass(frozen=True)
class SnapshotReportWriter:
    """One rank's words. Steps are told plus one, so that 0 is none."""

    recording: Recording

    def wants(self, size_bytes: int) -> None:
        """How large a slot it needs; 0: it takes no snapshots."""
        self.recording.set_word(Word.SNAPSHOT_WANTED, size_bytes)

    def sealed(self, step: int) -> None:
        """One more is taken."""
        self.recording.set_word(Word.SNAPSHOT_SEALED, step + 1)
        self._add(Word.SNAPSHOTS_TAKEN, 1)

    def skipped(self) -> None:
        """One that was due is not."""
        self._add(Word.SNAPSHOTS_SKIPPED, 1)

    def known(self, known: Known) -> None:
        """Which exists, and up to which all is decided."""
        if known.existing is not None:
            self.recording.set_word(Word.SNAPSHOT_EXISTING, known.existing + 1)
        settled = retention.settled(known)
        if settled is not None:
            self.recording.set_word(Word.SNAPSHOT_SETTLED, settled + 1)

    def blocked(self, spent_ns: int) -> None:
        """What the newest one kept the loop."""
        self.recording.set_word(Word.SNAPSHOT_LAST_NS, spent_ns)
        if self.recording.word(Word.SNAPSHOT_FIRST_NS) == 0:
            self.recording.set_word(Word.SNAPSHOT_FIRST_NS, spent_ns)
        self._add(Word.SNAPSHOT_BLOCKED_NS, spent_ns)

    def _add(self, word: Word, more: int) -> None:
        self.recording.set_word(word, self.recording.word(word) + more)
