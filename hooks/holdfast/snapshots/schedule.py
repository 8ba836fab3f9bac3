"""What a rank does about snapshots at a boundary: when one is due, who wants it, what is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from holdfast.contract import environment
from holdfast.contract.page import Order, OrderKind
from holdfast.rank import process
from holdfast.recording.interface import Recording
from holdfast.recording.placement import Placement
from holdfast.snapshots.holding import Holding
from holdfast.snapshots.replica_ack import Partner
from holdfast.snapshots.slot import Author
from holdfast.snapshots.slot_pool import SlotPool, own_folder
from holdfast.snapshots.snapshotter import Taking
from holdfast.state.data_position import Position
from holdfast.state.saving import Savable

_SNAPSHOT, _PEER = OrderKind.SNAPSHOT, OrderKind.PEER


@dataclass
class Rounds:
    """One per attempt. In a boundary at which nothing is due, a few words are looked at."""

    recording: Recording
    taking: Taking
    on_copied: Callable[[str], None] = lambda identifier: None
    """Told of each checkpoint order whose snapshot is in its slot."""
    is_resumed: bool = False
    """Whether this attempt goes on from saved state, so that optimizers have theirs already."""
    _first: int | None = None
    _crossed: tuple[int, int] | None = None
    """The last two boundaries before this one, the newer one last."""
    _cadence: Order | None = None
    """The newest one by which slots were looked at."""
    _checkpoint: Holding = field(init=False)
    _peer: Holding = field(init=False)

    def __post_init__(self) -> None:
        self._checkpoint = Holding(OrderKind.CHECKPOINT, self.recording, self.taking)
        self._checkpoint.on_copied = lambda identifier: self.on_copied(identifier)
        self._peer = Holding(_PEER, self.recording, self.taking)

    def cross(self, step: int, position: Callable[[], Position], checkpoint: Order | None) -> None:
        """Do what is due at this boundary. `checkpoint`: an order that wants a snapshot."""
        taking = self.taking
        crossed = self._crossed or (step - 2, step - 1)
        self._crossed = (crossed[1], step)
        cadence, peer = self.recording.order(_SNAPSHOT), self.recording.order(_PEER)
        if not taking.is_planned:
            self._plan(step, position, cadence)
        taking.finish_behind()
        if cadence is not None and not taking.is_ready:
            taking.prepare(cadence.slots)
        elif cadence is not None and cadence is not self._cadence:
            self._cadence = cadence if taking.look_again(cadence.slots) else self._cadence
        if checkpoint is not self._checkpoint.order or peer is not self._peer.order:
            self._hear(checkpoint, peer, crossed)
        wanted = [order.wants(step) for order in (self._checkpoint, self._peer)]
        if any(wanted):
            self._hold()
        if any(wanted) or (cadence is not None and is_due(cadence.every, step, crossed[1])):
            taking.take(step, position, 0 if cadence is None else cadence.slots, must=any(wanted))
        elif step >= taking.next_question:
            taking.ask(step)
        self._checkpoint.answer(step)
        self._peer.answer(step)

    def leave(self) -> None:
        """The loop ends: what is wanted for a later step will not be reached."""
        self.taking.leave()
        for order in (self._checkpoint, self._peer):
            order.answer(self._crossed[1] if self._crossed else 0, is_last=True)

    def _plan(self, step: int, position: Callable[[], Position], cadence: Order | None) -> None:
        """After the first step, at which optimizers make their state, unless it was loaded.

        Then slots of before are waited for: else the next steps would be in no snapshot.
        """
        if self._first is None:
            self._first = step
        if self.is_resumed or step > self._first:
            self.taking.plan(step, position())
        if self.is_resumed and cadence is not None:
            self.taking.await_slots(cadence.slots)

    def _hear(self, checkpoint: Order | None, peer: Order | None, crossed: tuple[int, int]) -> None:
        if checkpoint is not self._checkpoint.order:
            self._checkpoint.hear(checkpoint, crossed)
        if peer is not self._peer.order:
            self._peer.hear(peer, crossed)
        self._hold()

    def _hold(self) -> None:
        self.taking.hold(self._checkpoint.steps | self._peer.steps)


def is_due(every: int, step: int, before: int) -> bool:
    """Whether a multiple of `every` lies behind the boundary before, up to this one."""
    return every > 0 and step // every > before // every


def has_snapshots(env: Mapping[str, str]) -> bool:
    """Whether ranks of this job may take snapshots, as each of them was started alike."""
    return bool(env.get(environment.PAGE_DIR, "")) and env.get(environment.SNAPSHOTS) != "0"


def read_rounds(
    env: Mapping[str, str], recording: Recording, place: Placement, savable: Savable
) -> Rounds | None:
    """Snapshots as this rank was started; None when it takes none.

    A user's own save function writes files, which no slot can hold.
    """
    folder = env.get(environment.PAGE_DIR, "")
    if not has_snapshots(env) or process.current() is None:
        return None
    if not savable.registered or savable.save is not None or not place.is_joined:
        return None
    author = Author(
        job=env.get(environment.JOB, ""),
        attempt=int(env.get(environment.ATTEMPT, "0")),
        epoch=int(env.get(environment.EPOCH, "0")),
        rank=place.rank,
        world_size=place.world_size,
    )
    has_partner = place.world_size > place.local_world_size
    waits = env.get(environment.PEER_COPIES) == "sync" and has_partner
    partner = Partner(recording, float(env[environment.PEER_TIMEOUT])) if waits else None
    taking = Taking(
        recording,
        place,
        savable,
        author,
        SlotPool(own_folder(folder), place.rank, author.attempt),
        partner,
    )
    return Rounds(recording, taking)
