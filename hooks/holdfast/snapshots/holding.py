"""One kind of order that wants the snapshot of a certain step, and wants it kept for a while."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.contract.page import Order, OrderKind, Reply, ReplyState
from holdfast.recording.interface import Recording
from holdfast.snapshots.snapshotter import Taking


@dataclass
class Holding:
    """What this rank does about orders of one kind."""

    kind: OrderKind
    recording: Recording
    taking: Taking
    on_copied: Callable[[str], None] = lambda identifier: None
    order: Order | None = None
    """The newest one that was heard."""
    boundary: int | None = None
    """At which it is carried out: the first one from its step on. None: not come to yet."""
    steps: frozenset[int] = frozenset()
    """Steps that must stay in their slots."""
    _is_awaited: bool = False
    """Whether it is still to be copied."""

    def hear(self, order: Order | None, crossed: tuple[int, int]) -> None:
        """An order that was not heard before; None: it was replaced by one of another sort.

        `crossed`: the last two boundaries before this one.
        """
        before, self.order = self.order, order
        if order is None:
            self._is_awaited, self.steps = False, frozenset()
            return
        is_new = before is None or before.identifier != order.identifier
        if is_new:
            self.boundary = None
        if is_new and self._was_answered(order):
            self._is_awaited = False
        elif order.is_withdrawn:
            if self._is_awaited or is_new:
                self._reply(order, ReplyState.VOID)
            self._is_awaited = False
        elif is_new:
            self._arm(order, *crossed)
        self._keep(order)

    def wants(self, step: int) -> bool:
        """Whether the snapshot of this boundary is still to be copied for it."""
        if not self._is_awaited or self.order is None or step < self.order.step:
            return False
        if self.boundary is None:
            self.boundary = step
            self._keep(self.order)
        return self.boundary == step

    def answer(self, step: int, is_last: bool = False) -> None:
        """Say so if what is wanted is in its slot, or will not be. `is_last`: the loop ends."""
        order, boundary = self.order, self.boundary
        if not self._is_awaited or order is None or (step < order.step and not is_last):
            return
        newest = self.taking.newest
        if boundary is not None and self.taking.has(boundary):
            self._is_awaited = False
            if newest is not None and newest.step == boundary:
                self._reply(order, ReplyState.COPIED, newest.size_bytes, newest.blocked_ns)
            else:
                self._reply(order, ReplyState.COPIED)
            self.on_copied(order.identifier)
        elif boundary is None or not self.taking.is_copying(boundary):
            self._is_awaited = False
            none = ReplyState.LEFT if is_last and boundary is None else ReplyState.VOID
            self._reply(order, ReplyState.FAILED if self.taking.obstacle else none)

    def _arm(self, order: Order, older: int, newer: int) -> None:
        """Awaited from now on, or found already: the last one may be the very one."""
        if older < order.step <= newer and self.taking.has(newer):
            self.boundary = newer
        elif self.taking.has(order.step):
            self.boundary = order.step
        self._is_awaited = order.step > newer or self.boundary is not None
        if not self._is_awaited:
            self._reply(order, ReplyState.MISSED)
        elif self.taking.obstacle:
            self._is_awaited = False
            self._reply(order, ReplyState.FAILED)
        else:
            self._reply(order, ReplyState.ARMED)

    def _keep(self, order: Order) -> None:
        held = order.step if self.boundary is None else self.boundary
        kept = set() if order.is_withdrawn else {held}
        self.steps = frozenset(kept | ({order.keeps - 1} if order.keeps else set()))

    def _was_answered(self, order: Order) -> bool:
        """By an earlier loop of this process."""
        return self.kind is OrderKind.CHECKPOINT and self.recording.answered == order.identifier

    def _reply(
        self, order: Order, state: ReplyState, size_bytes: int = 0, duration_ns: int = 0
    ) -> None:
        step = order.step if self.boundary is None else self.boundary
        reply = Reply(state, step, size_bytes, duration_ns, order.identifier)
        self.recording.reply(reply, self.kind)
