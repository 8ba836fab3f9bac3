"""The step boundary: the moment before the next batch is asked for, if no gradient waits then.

There snapshots are taken, and orders are looked at: an armed step is saved when all ranks arrived
at it, a stop is obeyed. What was ordered for a step that is none is done at the next one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.contract.page import Order, OrderKind, Phase, Reply, ReplyState, Word, checkpoint_name
from holdfast.contract.storage import child, open_folder
from holdfast.guard import Guard
from holdfast.recording.interface import Recording, count_error
from holdfast.recording.placement import WRITE_TIMEOUT_S, Placement
from holdfast.snapshots.schedule import Rounds
from holdfast.state.agreement import Agreement, BoardLost
from holdfast.state.data_position import Position
from holdfast.state.registered import is_trained, sharded_modules, stepped_parameters
from holdfast.state.saving import Mark, Savable, SaveFailed, write_checkpoint
from holdfast.state.state_trial import StateTrial

log = logging.getLogger(__name__)

_CHECKPOINT, _STOP = OrderKind.CHECKPOINT, OrderKind.STOP

ANCESTORS = 32
"""More checkpoints than anyone keeps."""


@dataclass
class Boundary:
    """What a rank does between two steps. One per attempt."""

    recording: Recording
    place: Placement
    savable: Savable
    root: str | None
    """Path or URL of this job's checkpoints; None: nothing can be saved."""
    job: str = ""
    ancestors: tuple[str, ...] = ()
    write_timeout_s: float = WRITE_TIMEOUT_S
    rounds: Rounds | None = None
    """Snapshots; None where this rank takes none."""
    has_snapshots: bool = True
    """Whether any rank may take them; all ranks know alike."""
    clock_ns: Callable[[], int] = time.monotonic_ns
    _armed: Order | None = field(default=None)
    _before: int | None = None
    """The boundary before this one."""
    _cross_rounds: Callable[..., None] = lambda *_: None
    _sharded: list[Any] = field(init=False)
    _kept: list[Any] = field(init=False)
    """FSDP2's modules that hold nothing that is trained: a script may keep a teacher gathered."""
    _trial: StateTrial = field(init=False)
    _try_state: Callable[[int], None] = lambda _: None
    _reshard: Callable[[Any], None] = lambda _: None

    def __post_init__(self) -> None:
        guard = Guard(lambda: count_error(self.recording))
        registered = self.savable.registered
        stepped = stepped_parameters(registered.optimizers)
        self._sharded, self._kept = [], []
        for module in sharded_modules(registered.models):
            is_kept = not is_trained(module, stepped)
            (self._kept if is_kept else self._sharded).append(module)
        self._reshard = guard.wrap("that shards modules again", lambda part: part.reshard(), None)
        self._trial = StateTrial(self.recording, self.savable, self.place)
        if self.root is None and not self.has_snapshots:
            self._trial.is_over = True  # nothing is ever saved, by any rank
        self._try_state = guard.wrap("that tries the state", self._trial.cross, None)
        if self.rounds is not None:
            self._cross_rounds = guard.wrap("snapshots", self.rounds.cross, None)
            self.rounds.on_copied = self.descend_from

    @property
    def unrestorable(self) -> list[str]:
        """What the trial of the state has said."""
        return self._trial.said

    def go_on_from(self, ancestors: tuple[str, ...], snapshot: tuple[int, int] | None) -> None:
        """What was resumed from: the checkpoints it goes back to, and which snapshot it was."""
        self.ancestors = ancestors
        self._trial.is_over = True  # it came back
        if self.rounds is not None:
            self.rounds.taking.shelf.resumed = snapshot
            self.rounds.is_resumed = True

    def descend_from(self, identifier: str) -> None:
        """What is saved from now on goes back to this checkpoint."""
        self.ancestors = (identifier, *self.ancestors)[:ANCESTORS]

    def cross(self, step: int, position: Callable[[], Position]) -> bool:
        """Carry out what is ordered for this boundary or since the last one; False: leave the
        loop."""
        self._shard_again(with_kept=self.has_snapshots)
        if not self._trial.is_over:
            self._try_state(step)
            if self._trial.refusal and self.rounds is not None:
                self.rounds.taking.obstacle = self._trial.refusal
                self.recording.set_word(Word.SNAPSHOT_WANTED, 0)
        order = self.recording.order(_CHECKPOINT)
        if self.rounds is not None:
            order = self._go_round(self.rounds, order, step, position)
        if order is not None and order.identifier != self.recording.answered:
            self._hear(order, step)
        elif order is not None and order.is_withdrawn and self._armed is not None:
            self._withdraw(self._armed, ReplyState.VOID)
        if self._armed is not None and self._armed.step <= step:
            armed, self._armed = self._armed, None
            self._save(replace(armed, step=step), position)
        self._before = step
        stop = self.recording.order(_STOP)
        return stop is None or step < stop.step

    def _shard_again(self, with_kept: bool) -> None:
        """FSDP2 leaves its root gathered behind an evaluation, and shards each module when it is
        asked for its state. On every rank alike, whoever takes a snapshot: the next forward pass
        gathers what is not, and one that does so alone waits for all others."""
        for module in self._sharded:
            self._reshard(module)
        for module in self._kept if with_kept else ():
            self._reshard(module)

    def leave(self) -> None:
        """The loop ends: what is still armed will not be reached."""
        if self.rounds is not None:
            Guard(lambda: count_error(self.recording)).run("last snapshot", self.rounds.leave)
        if self._armed is not None:
            self._withdraw(self._armed, ReplyState.LEFT)

    def _go_round(
        self, rounds: Rounds, order: Order | None, step: int, position: Callable[[], Position]
    ) -> Order | None:
        """Do what is due about snapshots; answers an order that is to be saved directly."""
        rounds.taking.ancestors = self.ancestors
        if order is None or order.slots == 0:
            self._cross_rounds(step, position, None)
            return order
        if self._armed is not None:
            self._withdraw(self._armed, ReplyState.VOID)
        self._cross_rounds(step, position, order)
        return None

    def _hear(self, order: Order, step: int) -> None:
        """A new order, which replaces one that is armed."""
        if self._armed is not None:
            self._withdraw(self._armed, ReplyState.VOID)
        if order.is_withdrawn:
            self._withdraw(order, ReplyState.VOID)
        elif order.step <= (step - 1 if self._before is None else self._before):
            self._withdraw(order, ReplyState.MISSED)
        elif order.slots or not self._can_save:
            self._withdraw(order, ReplyState.FAILED)
        else:
            self._armed = order
            self._reply(order, ReplyState.ARMED)

    @property
    def _can_save(self) -> bool:
        is_possible = self.root is not None and bool(self.savable) and self.place.is_joined
        return is_possible and not self._trial.refusal

    def _save(self, order: Order, position: Callable[[], Position]) -> None:
        before = self.recording.enter(Phase.SAVING)
        try:
            if not self._agree(order, "go", True, order.deadline_ns):
                self._reply(order, ReplyState.VOID)
                return
            self._shard_again(with_kept=True)
            self._reply(order, ReplyState.SAVING)
            start_ns = self.clock_ns()
            until_ns = start_ns + int(self.write_timeout_s * 1e9)
            size_bytes = self._write(order, position, until_ns)
            wrote = self._agree(order, "wrote", size_bytes is not None, until_ns)
            if wrote and size_bytes is not None:
                self.descend_from(order.identifier)
                spent_ns = self.clock_ns() - start_ns
                self._reply(order, ReplyState.SAVED, size_bytes, spent_ns)
            else:
                self._reply(order, ReplyState.FAILED)
        finally:
            self.recording.enter(before)

    def _write(self, order: Order, position: Callable[[], Position], until_ns: int) -> int | None:
        """Bytes written; None when it failed, which is no reason to end the training."""
        assert self.root is not None
        place = child(self.root, checkpoint_name(order.step, order.identifier))
        sizes: list[int] = []

        def meet() -> None:
            if not self._agree(order, "ready", True, until_ns):
                raise SaveFailed("another rank could not write its own part")

        def write() -> None:
            mark = self._mark(order, position())
            folder = open_folder(place)
            sizes.append(write_checkpoint(folder, self.savable, mark, self.place, meet))

        # A fresh guard, so that every failed save is told, and ten of them switch nothing off.
        guard = Guard(lambda: count_error(self.recording))
        guard.run(f"that saves step {order.step}", write)
        if not sizes:
            self._agree(order, "ready", False, until_ns)
        return sizes[0] if sizes else None

    def _mark(self, order: Order, position: Position) -> Mark:
        return Mark(
            job=self.job,
            attempt=order.attempt,
            step=order.step,
            identifier=order.identifier,
            ancestors=self.ancestors,
            position=position,
        )

    def _agree(self, order: Order, question: str, yes: bool, until_ns: int) -> bool:
        left_s = (until_ns - self.clock_ns()) / 1e9
        try:
            yes = yes and self._question(order, "step").is_also_mine(str(order.step))
            return self._question(order, question).vote(yes, max(left_s, 0.0))
        except BoardLost as error:
            log.warning("holdfast: no checkpoint at step %d: %s", order.step, error)
            return False

    def _withdraw(self, order: Order, state: ReplyState) -> None:
        """This rank will not save this one, so nobody shall wait for it."""
        self._armed = None
        self._agree(order, "go", False, order.deadline_ns)
        self._reply(order, state)

    def _question(self, order: Order, question: str) -> Agreement:
        return self.place.agreement(f"checkpoint/{order.identifier}/{question}")

    def _reply(
        self, order: Order, state: ReplyState, size_bytes: int = 0, duration_ns: int = 0
    ) -> None:
        reply = Reply(state, order.step, size_bytes, duration_ns, order.identifier)
        self.recording.reply(reply)
