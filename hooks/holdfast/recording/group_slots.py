"""Which of a rank's process groups are timed apart: four have a slot each, in the record and page.

The default group has the first. The others get the next as they are made; one that is used and
has none takes that of one that never was. Groups of one rank need none: nobody waits there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.contract.page import GROUPS_TIMED, Word
from holdfast.recording.recorder import Recorder

NO_SLOT = -1

CALLS = tuple(Word(Word.COLLECTIVES_1 + slot) for slot in range(GROUPS_TIMED))
SENT = tuple(Word(Word.SENT_BYTES_1 + slot) for slot in range(GROUPS_TIMED))


class GroupSlots:
    """Slots of the groups this rank is in, and what is counted in them."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._members: dict[int, tuple[str, int]] = {}
        self._taken: list[int | None] = [None] * GROUPS_TIMED
        self._calls_before = [0] * GROUPS_TIMED
        self.sent = [0] * GROUPS_TIMED
        """Bytes so far."""
        self.known: dict[int | str, int] = {id(None): 0}
        """Slot by a group's identity and by its name, for the hot path; `None` is the default
        group. What is not in it may have one yet: see `slot`. The groups themselves are not held,
        so that they end when torch lets them go."""
        self.tell: Callable[[], None] = lambda: None
        """Called when a slot went to another group."""

    def slot(self, group: Any) -> int:
        """The slot of a process group, or of one by its name; NO_SLOT where it has none."""
        key = group if type(group) is str else id(group)
        slot = self.known.get(key)
        return self._adopt(key) if slot is None else slot

    def count(self, slot: int, size: int, calls: int = 1) -> None:
        """So many more calls in the group of this slot, and bytes."""
        recorder, word = self._recorder, CALLS[slot]
        recorder.set_word(word, recorder.word(word) + calls)
        self.sent[slot] = size = self.sent[slot] + size
        recorder.set_word(SENT[slot], size)

    def of_names(self) -> dict[str, int]:
        """Slot by name, of the groups that have one."""
        return {
            self._members[identity][0]: slot
            for slot, identity in enumerate(self._taken)
            if identity is not None
        }

    def follow(self, world: Any) -> None:
        """Groups were made or ended. world: torch's `distributed_c10d._world`."""
        self._members = {
            id(group): (str(world.pg_names[group]), len(ranks))
            for group, ranks in dict(world.pg_group_ranks).items()
            if group in world.pg_names
        }
        default = id(getattr(world, "default_pg", None))
        timed = [identity for identity, (_, size) in self._members.items() if size > 1]
        for slot, identity in enumerate(self._taken):
            if identity is not None and identity not in timed:
                self._taken[slot] = None
        if default in timed and self._taken[0] != default:
            self._take(0, default)
        waiting = iter([identity for identity in timed if identity not in (*self._taken, default)])
        for slot in range(1, GROUPS_TIMED):
            if self._taken[slot] is None and (identity := next(waiting, None)) is not None:
                self._take(slot, identity)
        self._know(default)

    def _adopt(self, key: int | str) -> int:
        identity = self._identity(key)
        if identity is None:
            return NO_SLOT
        if identity not in self._taken:
            idle = [slot for slot in range(1, GROUPS_TIMED) if self._is_idle(slot)]
            if not idle or self._members[identity][1] < 2:
                self.known[key] = NO_SLOT
                return NO_SLOT
            self._take(idle[-1], identity)
            default = self._taken[0]
            self._know(id(None) if default is None else default)
            self.tell()
        return self._taken.index(identity)

    def _identity(self, key: int | str) -> int | None:
        if isinstance(key, int):
            return key if key in self._members else None
        names = {name: identity for identity, (name, _) in self._members.items()}
        return names.get(key)

    def _is_idle(self, slot: int) -> bool:
        return self._recorder.word(CALLS[slot]) == self._calls_before[slot]

    def _take(self, slot: int, identity: int) -> None:
        self._taken[slot] = identity
        self._calls_before[slot] = self._recorder.word(CALLS[slot])

    def _know(self, default: int) -> None:
        """Every look-up answers as the slots are now; the table stays the same object."""
        self.known.clear()
        for slot, identity in enumerate(self._taken):
            if identity is not None:
                self.known[identity] = self.known[self._members[identity][0]] = slot
        self.known[id(None)] = self.known.get(default, NO_SLOT)
