"""One kind of order that wants the snapshot of a certain step, and wants it kept for a while."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.page import Order, OrderKind, Reply, ReplyState
from holdfast.recording import Recording
from holdfast.snapshots.taking import Taking


@dataclass
class Holding:
    """What this rank does about orders of one kind."""

    kind: OrderKind
    recording: Recording
    taking: Taking
    on_copied: Callable[[str], None] = lambda identifier: None
    order: Order | None = None
    """The newest one that was heard."""
    steps: frozenset[int] = frozenset()
    """Steps that must stay in their slots."""
    _is_awaited: bool = False
    """Whether it is still to be copied."""

    def hear(self, order: Order | None, step: int) -> None:
        """An order that was not heard before; None: it was replaced by one of another sort."""
        before, self.order = self.order, order
        if order is None:
            self._is_awaited, self.steps = False, frozenset()
            return
        is_new = before is None or before.identifier != order.identifier
        if is_new and self._was_answered(order):
            self._is_awaited = False
        elif order.is_withdrawn:
            if self._is_awaited or is_new:
                self._reply(order, ReplyState.VOID)
            self._is_awaited = False
        elif is_new:
            self._arm(order, step)
        kept = set() if order.is_withdrawn else {order.step}
        self.steps = frozenset(kept | ({order.keeps - 1} if order.keeps else set()))

    def wants(self, step: int) -> bool:
        """Whether the snapshot of this boundary is still to be copied for it."""
        return self._is_awaited and self.order is not None and self.order.step == step

    def answer(self, step: int) -> None:
        """Say so if what is wanted is in its slot, or will not be."""
        order = self.order
        if not self._is_awaited or order is None or step < order.step:
            return
        newest = self.taking.newest
        if self.taking.has(order.step):
            self._is_awaited = False
            if newest is not None and newest.step == order.step:
                self._reply(order, ReplyState.COPIED, newest.size_bytes, newest.blocked_ns)
            else:
                self._reply(order, ReplyState.COPIED)
            self.on_copied(order.identifier)
        elif not self.taking.is_copying(order.step):
            self._is_awaited = False
            self._reply(order, ReplyState.FAILED if self.taking.obstacle else ReplyState.VOID)

    def _arm(self, order: Order, step: int) -> None:
        """Awaited from now on, or found already: the last one may be the very one."""
        self._is_awaited = order.step >= step or self.taking.has(order.step)
        if not self._is_awaited:
            self._reply(order, ReplyState.MISSED)
        elif self.taking.obstacle:
            self._is_awaited = False
            self._reply(order, ReplyState.FAILED)
        else:
            self._reply(order, ReplyState.ARMED)

    def _was_answered(self, order: Order) -> bool:
        """By an earlier loop of this process."""
        return self.kind is OrderKind.CHECKPOINT and self.recording.answered == order.identifier

    def _reply(
        self, order: Order, state: ReplyState, size_bytes: int = 0, duration_ns: int = 0
    ) -> None:
        reply = Reply(state, order.step, size_bytes, duration_ns, order.identifier)
        self.recording.reply(reply, self.kind)
