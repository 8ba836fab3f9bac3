"""What keeps a sidecar that may leave: a checkpoint on its way; of a job whose one launcher died,
the newest snapshot; a Prometheus that has yet to hear how the run ended.

In the second case nobody is left to agree with (a single node's Redis died with the launcher): all
ranks were this node's, so their sidecar seals what they left.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.owned import owned_file
from holdfast.removing import unlink
from holdfast_sidecar.checkpoint.directory import checkpoint_url
from holdfast_sidecar.checkpoint.writer.client import Desk
from holdfast_sidecar.checkpoint.writer.requests import Seal, WriteParts
from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.policy.checkpoint_choice import (
    ABOUT_NUMBERS,
    first_that_counts,
    onset_of,
    trusted_now,
)
from holdfast_sidecar.policy.checkpoint_order import last_step, newest_held, writers_of
from holdfast_sidecar.records.checkpoint import (
    CheckpointOrder,
    LedgerEntry,
    SavedPart,
    SnapshotReport,
)
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.plan import TERMINAL, Plan
from holdfast_sidecar.records.reports import RankReport
from holdfast_sidecar.staying import (
    TELLING,
    WRITING,
    Stay,
    read_stay,
    write_last_word,
    write_stay,
)
from holdfast_sidecar.store.orders import Orders
from holdfast_sidecar.store.protocol import Section

log = logging.getLogger(__name__)


@dataclass
class Parting:
    """Keeps a sidecar that may leave, for as long as there is something to write down."""

    node: str
    shm: str
    settings: Settings
    desk: Desk
    marker: Path
    """Lies there while this sidecar stays only to write or to tell: its launcher then waits, and
    says for what."""
    summons: Path | None = None
    """Lies there once this node's launcher was told to end; None: there is no launcher of ours."""
    new_identifier: Callable[[], str] = lambda: secrets.token_hex(4)
    is_awaited: Callable[[float], bool] = lambda now_s: False
    """Whether a Prometheus is expected that has not heard of the end (monotonic time)."""
    _since_s: float | None = None
    _is_hurried: bool = False
    _is_told_to_end: bool = False
    _order: CheckpointOrder | None = None
    _plan: Plan | None = None
    _part: SavedPart | None = None
    _is_over: bool = field(default=False)
    _last_word: str = ""

    def hurry(self) -> None:
        """Nobody waits any more until the end was heard. From another thread."""
        self._is_hurried = True

    def keeps(self, orders: Orders, now_s: float) -> bool:
        """Whether this sidecar must stay, now that it may leave. `now_s` is monotonic."""
        if self._since_s is None:
            self._since_s = now_s
        is_shipping = self._order is not None and not self._is_over
        order = orders.checkpoint
        if orders.store_up and order is not None and order.state == "writing":
            is_shipping = True
        stayed_s = now_s - self._since_s
        stay = None
        if is_shipping and stayed_s < WRITING.most_s:
            stay = WRITING
        elif stayed_s < TELLING.most_s and self._has_last_words(orders) and self.is_awaited(now_s):
            stay = TELLING
        self._mark(stay, "" if order is None else order.trouble)
        return stay is not None

    @property
    def is_told_to_end(self) -> bool:
        """Whether this node's launcher was: by a person, or by a scheduler."""
        if not self._is_told_to_end and self.summons is not None:
            self._is_told_to_end = self.summons.exists()
        return self._is_told_to_end

    def _has_last_words(self, orders: Orders) -> bool:
        """The leader of a run that is over, or any node whose launcher was told to end."""
        if self._is_hurried:
            return False
        if self.is_told_to_end:
            return True
        plan = orders.plan
        is_over = plan is not None and plan.state in TERMINAL
        return is_over and orders.store_up and orders.is_leader

    def _mark(self, stay: Stay | None, trouble: str) -> None:
        """Say what is waited for; at the end, what came of a checkpoint that was waited for."""
        try:
            if trouble and stay is not WRITING and read_stay(self.marker) == WRITING:
                self._last_word = trouble
            if stay is None and self._last_word:
                write_last_word(self.marker, self._last_word)
            elif stay is None:
                unlink(owned_file(self.marker), missing_ok=True)
            elif read_stay(self.marker) != stay:
                log.info("staying: %s", stay.words)
                write_stay(self.marker, stay)
        except OSError as error:
            log.warning("the launcher can't be told whether to wait: %s", error)

    def rescue(
        self, orders: Orders, snapshot: SnapshotReport | None, ranks: Sequence[RankReport]
    ) -> None:
        """The launcher is dead: write down and seal the newest snapshot, a bit at every tick."""
        if self._is_over:
            return
        try:
            if self._order is None:
                self._begin(orders, snapshot, ranks)
            if self._order is not None and self._plan is not None:
                self._go_on(self._order, self._plan)
        except OSError as error:
            log.warning("the newest snapshot could not be written down: %s", error)
            self._is_over = True

    def _begin(
        self, orders: Orders, snapshot: SnapshotReport | None, ranks: Sequence[RankReport]
    ) -> None:
        plan = orders.plan
        if plan is None or snapshot is None or not self._is_alone(plan):
            self._is_over = plan is not None and not self._is_alone(plan)
            return
        below = trusted_now(plan, ranks, onset_of(ranks))
        below = 0 if plan.cause in ABOUT_NUMBERS else below
        step = newest_held(plan.world_size, snapshot.held, below)
        saved = last_step(_ledger(orders), plan, {rank.rank: rank for rank in ranks})
        if step <= saved:
            self._is_over = True
            return
        identifier = self.new_identifier()
        self._plan = plan
        self._order = CheckpointOrder(
            identifier=identifier,
            attempt=plan.attempt,
            epoch=plan.epoch,
            step=step,
            path=checkpoint_url(self.settings.checkpoint, step, identifier),
            state="writing",
            deadline_s=0.0,
            mode="snapshot",
            trigger="failure",
            writers=writers_of(plan),
            since=first_that_counts(plan),
        )
        log.warning("the launcher is gone: the snapshot of step %d is written down", step)

    def _go_on(self, order: CheckpointOrder, plan: Plan) -> None:
        if self._part is None:
            made = self.desk.ask(WriteParts(order, list(range(plan.world_size)), self.shm))
            if made is None:
                return
            self._part = SavedPart(order.identifier, files=made.files, seconds=made.seconds)
        sealed = self.desk.ask(Seal(order, plan, [self._part]))
        if sealed is not None:
            log.warning("checkpoint %s of step %d is complete", order.identifier, order.step)
            self._is_over = True

    def _is_alone(self, plan: Plan) -> bool:
        """Whether every rank of a job that has not ended was this node's, and it may act."""
        return (
            plan.state not in TERMINAL
            and {member.node for member in plan.members} == {self.node}
            and bool(self.settings.checkpoint.dir)
            and self.settings.sidecar.mode == "act"
        )


def _ledger(orders: Orders) -> list[LedgerEntry]:
    if orders.view is None:
        return []
    texts = orders.view.section(Section.LEDGER).values()
    return [entry for text in texts if (entry := decode(LedgerEntry, text)) is not None]
