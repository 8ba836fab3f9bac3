"""What the loop remembers of its ranks from tick to tick; all of it ends with the attempt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.identity import ProcessIdentity
from holdfast_sidecar.config.settings import OVERSLEPT_S, NumbersSettings
from holdfast_sidecar.observation import RankHistory, RankLook, follow


@dataclass
class Attention:
    """Histories of the ranks of the newest attempt, by rank."""

    attempt: int = -1
    histories: dict[int, RankHistory] = field(default_factory=dict)
    awake_since_s: float = float("-inf")
    numbers: NumbersSettings = field(default_factory=NumbersSettings)
    _looked_s: float | None = None

    def take_in(self, looks: Sequence[RankLook], now_s: float) -> None:
        """Remember one more look at every rank."""
        if self._looked_s is not None and now_s - self._looked_s > OVERSLEPT_S:
            self.awake_since_s = now_s
        self._looked_s = now_s
        self.attempt = looks[0].identity.attempt if looks else -1
        self.histories = {
            look.rank: follow(self.histories.get(look.rank), look, self.numbers)
            for look in sorted(looks, key=lambda look: look.rank)
        }

    def looks(self) -> list[RankLook]:
        """The newest look at each rank."""
        return [history.look for history in self.histories.values()]

    def seen_at(self, now_s: float) -> dict[int, RankHistory]:
        """Histories of the ranks that were looked at just now; nobody is judged by an old look."""
        return {rank: one for rank, one in self.histories.items() if one.look.at_s == now_s}

    def dead_ranks(self) -> list[ProcessIdentity]:
        """The processes of ranks that are gone."""
        return [
            ProcessIdentity(history.look.identity.pid, history.look.identity.start_ticks)
            for history in self.histories.values()
            if history.look.is_gone
        ]
