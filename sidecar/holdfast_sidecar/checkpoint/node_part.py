"""This node's part of a coordinated checkpoint: follows its ranks, then has their files made.

What ranks wrote by themselves is hashed; what they only copied is written from their slots. Both is
the writer's work: here it is asked for, tick after tick, and nothing waits.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from holdfast.contract.page import Identity, Reply, ReplyState
from holdfast_sidecar.checkpoint.writer.client import StorageRequests
from holdfast_sidecar.checkpoint.writer.requests import HashFiles, Question, WriteParts, WrittenPart
from holdfast_sidecar.records.checkpoint import CheckpointOrder, SavedPart

log = logging.getLogger(__name__)


class SaveReply(Protocol):
    """The part of a look at a rank that matters here."""

    @property
    def identity(self) -> Identity:
        """Whose page it is."""

    @property
    def reply(self) -> Reply | None:
        """Its newest reply to a checkpoint order."""


def states_of(order: CheckpointOrder, looks: Iterable[SaveReply]) -> dict[str, str]:
    """rank -> how far it got with this very order; ranks that said nothing of it are `none`."""
    states = {}
    for look in looks:
        if look.identity.attempt == order.attempt:
            reply = _reply_to(order, look)
            state = ReplyState.NONE if reply is None else reply.state
            states[str(look.identity.rank)] = state.name.lower()
    return states


def blocked_s(order: CheckpointOrder, looks: Iterable[SaveReply]) -> float:
    """What this order kept the slowest loop of this node, seconds."""
    replies = (_reply_to(order, look) for look in looks)
    return max((reply.duration_ns / 1e9 for reply in replies if reply is not None), default=0.0)


SAVING = frozenset({ReplyState.SAVING, ReplyState.SAVED, ReplyState.COPIED})


def steps_of(order: CheckpointOrder, looks: Iterable[SaveReply]) -> set[int]:
    """The boundaries at which this node's ranks save or copy: one, unless they are out of step."""
    replies = (_reply_to(order, look) for look in looks)
    return {reply.step for reply in replies if reply is not None and reply.state in SAVING}


@dataclass
class NodePart:
    """Answers at every tick how far this node's part is, and never waits.

    A part is done once `files` is filled; until then only states and progress are told.
    """

    node: str
    shm: str
    """Directory of this node's shared memory, where the slots lie."""
    desk: StorageRequests
    _part: SavedPart | None = None
    _asked: Question[WrittenPart] | None = None

    def follow(self, order: CheckpointOrder | None, looks: Iterable[SaveReply]) -> SavedPart | None:
        """This node's part of `order` as of now; None without an order."""
        if order is None or not order.path:
            self._drop("the order is gone")
            return None
        if self._part is None or self._part.identifier != order.identifier:
            self._drop("another order came")
            self._part = SavedPart(order.identifier)
        seen = list(looks)
        states = states_of(order, seen) or self._part.states
        kept_s = max(self._part.blocked_s, blocked_s(order, seen))
        self._part = replace(self._part, states=states, blocked_s=kept_s)
        steps = steps_of(order, seen)
        if len(steps) == 1:
            self._part = replace(self._part, step=min(steps))
        elif steps:
            told = ", ".join(map(str, sorted(steps)))
            self._part = replace(self._part, error=f"its ranks came to boundaries {told}")
        if order.state in ("complete", "void"):
            self._drop(f"the order is {order.state}")
        elif not (self._part.files or self._part.error):
            self._part = self._work(order, self._part)
        return self._part

    def silent_for(self) -> float:
        """How long storage has owed an answer without a sign of life, seconds; 0: it does not."""
        return self.desk.hangs_for()

    def _work(self, order: CheckpointOrder, part: SavedPart) -> SavedPart:
        question = self._question(order, part)
        if question is None:
            return part
        self._asked = question
        try:
            made = self.desk.ask(question)
        except OSError as error:
            self._asked = None
            log.warning("no part of checkpoint %s: %s", order.identifier, error)
            return replace(part, error=str(error))
        if made is None:
            so_far = self.desk.progress(question)
            return replace(part, done_bytes=so_far.done_bytes, total_bytes=so_far.total_bytes)
        self._asked = None
        missing = "" if made.files else f"there is no file of ranks {question.ranks}"
        return replace(part, files=made.files, seconds=made.seconds, error=missing)

    def _question(self, order: CheckpointOrder, part: SavedPart) -> HashFiles | WriteParts | None:
        """What is to be done now; None: nothing yet, or nothing by this node."""
        if order.state == "writing":
            mine = sorted(int(rank) for rank, node in order.writers.items() if node == self.node)
            return WriteParts(_as_first_seen(order), mine, self.shm) if mine else None
        saved = bool(part.states) and all(state == "saved" for state in part.states.values())
        if order.state == "armed" and saved:
            path = order.path if part.step < 0 else order.at(part.step).path
            return HashFiles(order.identifier, path, sorted(map(int, part.states)))
        return None

    def _drop(self, why: str) -> None:
        if self._asked is not None:
            self.desk.abandon(self._asked, why)
            self._asked = None


def _as_first_seen(order: CheckpointOrder) -> CheckpointOrder:
    """Only what no leader changes meanwhile, so that the question stays the same."""
    return CheckpointOrder(
        identifier=order.identifier,
        attempt=order.attempt,
        epoch=0,
        step=order.step,
        path=order.path,
        state="writing",
        deadline_s=0.0,
        mode=order.mode,
        trigger=order.trigger,
        writers=order.writers,
        since=order.since,
    )


def _reply_to(order: CheckpointOrder, look: SaveReply) -> Reply | None:
    reply = look.reply
    if reply is None or look.identity.attempt != order.attempt:
        return None
    return reply if reply.identifier == order.identifier else None
