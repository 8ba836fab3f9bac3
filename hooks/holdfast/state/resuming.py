"""Tries what there is to resume from, newest first, until all ranks have loaded the same state.

Each is checked first: no byte is unpickled before every rank's share of the hashes matched. All
ranks share the hashes where they see the same storage, else those of each node. A candidate that
one rank can't load is left by all.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.contract import environment
from holdfast.contract.checkpoint_files import (
    MANIFEST,
    Damaged,
    check_file,
    check_nothing_is_added,
    read_promises,
    share_checks,
)
from holdfast.contract.page import Phase, Word
from holdfast.contract.storage import open_folder, sight_of
from holdfast.guard import Guard
from holdfast.recording.interface import Recording, count_error
from holdfast.recording.placement import Placement
from holdfast.snapshots.found import Choosing, Found, SlotsOfBefore
from holdfast.snapshots.slot_pool import Name
from holdfast.state.agreement import BoardLost
from holdfast.state.checkpoint_source import load_checkpoint
from holdfast.state.loading import Loaded, LoadFailed, load_state
from holdfast.state.saving import Savable

log = logging.getLogger(__name__)

SNAPSHOT = "snapshot"
"""The tier of a candidate that lies in the ranks' slots."""

VOTE_TIMEOUT_S = 1800.0
"""How long ranks wait for the slowest one to read its share: a terabyte at a gigabyte a second
takes a quarter of an hour. A rank that died ends the attempt long before."""


class ResumeFailed(RuntimeError):
    """There are checkpoints, and none of them could be loaded. Training must not start anew."""


@dataclass(frozen=True)
class Candidate:
    """A checkpoint to try."""

    identifier: str
    path: str
    """Path or URL."""
    step: int
    tier: str = "durable"
    """Or `snapshot`: what lies in the ranks' slots; which step, they agree on by themselves."""
    fetches: tuple[str, ...] = ()
    """Ranks whose copies are brought from other nodes first."""
    since: int = 0
    """First attempt whose slots count."""
    below: int | None = None
    """Only snapshots of fewer steps count; None: any."""
    is_last: bool = False
    """There are checkpoints, and none of them may be gone on from."""

    @property
    def name(self) -> str:
        """As people know it."""
        return self.tier if self.tier == SNAPSHOT else self.path.rstrip("/").rpartition("/")[2]


@dataclass(frozen=True)
class Resumed:
    """What all ranks loaded."""

    loaded: Loaded
    ancestors: tuple[str, ...]
    """Checkpoints that it goes back to, newest first."""
    snapshot: Name | None = None
    """Attempt and step of the snapshot that it was; None: a checkpoint."""


def parse_candidates(text: str) -> list[Candidate]:
    """The launcher's list; raises ResumeFailed when it is none."""
    try:
        return [
            Candidate(
                str(item["identifier"]),
                str(item["path"]),
                int(item["step"]),
                str(item.get("tier", "durable")),
                tuple(item.get("fetches", ())),
                int(item.get("since", 0)),
                None if item.get("below") is None else int(item["below"]),
                bool(item.get("is_last", False)),
            )
            for item in json.loads(text or "[]")
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise ResumeFailed(f"{environment.RESUME} is no list of checkpoints: {error}") from None


def resume(
    candidates: list[Candidate],
    savable: Savable,
    place: Placement,
    recording: Recording,
    key: bytes | None = None,
    snapshots: SlotsOfBefore | None = None,
) -> Resumed | None:
    """Load the first candidate that all ranks can load; None when there is none to try.

    `snapshots`: where this rank's lie; what is left in its slots afterwards is what was loaded.
    """
    if not candidates or not savable:
        if snapshots is not None:
            snapshots.clear()
        return None
    if not place.is_joined:
        raise ResumeFailed(
            "resume() came before torch.distributed.init_process_group; the ranks have to agree "
            "on a checkpoint, so call it after"
        )
    before = recording.enter(Phase.RESTORING)
    try:
        resumed = _Trying(candidates, savable, place, recording, key, snapshots).run()
    except BoardLost as error:
        raise ResumeFailed(f"the other ranks can't be reached any more: {error}") from error
    finally:
        recording.enter(before)
    if resumed is not None:
        recording.set_word(Word.RESUMED_STEP, resumed.loaded.step)
        recording.set_word(Word.STEP, resumed.loaded.step)
    return resumed


@dataclass
class _Trying:
    """Goes through the candidates, in step with all other ranks."""

    candidates: list[Candidate]
    savable: Savable
    place: Placement
    recording: Recording
    key: bytes | None
    snapshots: SlotsOfBefore | None

    def __post_init__(self) -> None:
        self._guard = Guard(lambda: count_error(self.recording))
        self._is_touched = False
        self._failed = 0

    def run(self) -> Resumed | None:
        """What was loaded; None: there is nothing, and nothing was touched."""
        durable = [c for c in self.candidates if c.tier != SNAPSHOT]
        for index, candidate in enumerate(self.candidates):
            if candidate.tier == SNAPSHOT:
                resumed = self._try_snapshots(candidate, max((c.step for c in durable), default=-1))
            else:
                resumed = self._try_durable(index, candidate)
            if resumed is not None:
                return resumed
        if any(candidate.is_last for candidate in self.candidates):
            raise ResumeFailed(
                "no snapshot from before numbers went wrong is whole on all ranks, and every "
                "checkpoint is from after. Training does not start from nothing by itself: move "
                "the checkpoints away if it shall"
            )
        if not durable and not self._is_touched:
            log.warning("holdfast: no snapshot is whole on all ranks; training starts from nothing")
            return None
        tried = ", ".join(candidate.name for candidate in self.candidates)
        raise ResumeFailed(
            f"none of the checkpoints could be loaded ({tried}); the reasons are in the log above. "
            "Training does not start from nothing by itself: move the checkpoints away if it shall"
        )

    def _try_durable(self, index: int, candidate: Candidate) -> Resumed | None:
        """Check, vote, load, vote. None: some rank (perhaps this one) can't load it."""
        if self.snapshots is not None:
            # Before anything is loaded: what they hold is abandoned from here on, and must not be
            # found by a later attempt if this one dies before its own first snapshot.
            self.snapshots.clear()
        loaded: list[Loaded] = []
        is_same = self._is_same_storage(index, candidate)
        checks = self._attempt(candidate.name, lambda: self._check(candidate, is_same))
        if self._agreed(f"{index}/checked", checks):
            loads = self._attempt(
                candidate.name,
                lambda: loaded.append(
                    load_checkpoint(open_folder(candidate.path), self.savable, self.place)
                ),
            )
            if self._agreed(f"{index}/loaded", loads):
                # Blamed only now: where none can be loaded it is the script, or storage that this
                # node can't reach, and blame would make every checkpoint of the job poisoned.
                self.recording.set_word(Word.RESUME_FAILURES, self._failed)
                return Resumed(loaded[0], (candidate.identifier,))
        self._failed |= 1 << min(index, 63)
        return None

    def _try_snapshots(self, candidate: Candidate, floor: int) -> Resumed | None:
        """The newest that all ranks hold, then the one before; none behind step `floor`."""
        if self.snapshots is None:
            return None
        start_s = time.monotonic()
        found = self.snapshots.find(candidate.fetches, candidate.since, candidate.below)
        choosing = Choosing(self.place, VOTE_TIMEOUT_S)
        turn = 0
        while (name := choosing.choose(turn, list(found.snapshots), floor)) is not None:
            loaded = self._load_snapshot(turn, name, found)
            if loaded is not None:
                found.keep_only(name)
                if self.place.rank == 0:
                    spent_ms = (time.monotonic() - start_s) * 1000
                    text = "holdfast: resumed from the snapshot of step %d in %.0f ms"
                    log.info(text, loaded.step, spent_ms)
                return Resumed(loaded, found.ancestors(name), name)
            found.give_up(name)
            turn += 1
        return None

    def _load_snapshot(self, turn: int, name: Name, found: Found) -> Loaded | None:
        title = f"the snapshot of step {name[1]}"
        loaded: list[Loaded] = []
        checks = self._attempt(title, lambda: found.check(name))
        if not self._agreed(f"snapshot/{turn}/checked", checks):
            return None
        self._is_touched = True
        source = found.snapshots[name]
        loads = self._attempt(
            title, lambda: loaded.append(load_state(source, self.savable, self.place))
        )
        return loaded[0] if self._agreed(f"snapshot/{turn}/loaded", loads) else None

    def _is_same_storage(self, index: int, candidate: Candidate) -> bool:
        """Whether all ranks see one and the same manifest, rather than copies on their nodes."""
        try:
            sight = sight_of(open_folder(candidate.path), MANIFEST)
        except OSError:
            sight = ""  # why, `_check` will say
        question = self.place.agreement(f"resume/{index}/same-storage")
        return question.vote(bool(sight) and question.is_also_mine(sight), VOTE_TIMEOUT_S)

    def _check(self, candidate: Candidate, is_same: bool) -> None:
        """This rank's share. A node whose storage only it sees checks all of what it sees."""
        place, folder = self.place, open_folder(candidate.path)
        promises = read_promises(folder, self.key)
        check_nothing_is_added(folder, place.rank, promises)
        first = place.rank - place.local_rank
        here = range(first, first + place.local_world_size)
        ranks = range(place.world_size) if is_same else here
        for file in share_checks(promises, place.rank, ranks):
            check_file(folder, file)

    def _agreed(self, question: str, yes: bool) -> bool:
        return self.place.agreement(f"resume/{question}").vote(yes, VOTE_TIMEOUT_S)

    def _attempt(self, name: str, do: Callable[[], object]) -> bool:
        """Whether it worked. Whatever a user's object raises, this rank still casts its vote."""

        def attempt() -> bool:
            try:
                do()
            except Damaged as error:
                log.warning("holdfast: checkpoint %s is damaged: %s", name, error)
                return False
            except (LoadFailed, OSError, ValueError, TypeError, KeyError, RuntimeError) as error:
                kind = type(error).__name__
                log.warning("holdfast: checkpoint %s can't be loaded: %s: %s", name, kind, error)
                return False
            return True

        return self._guard.wrap(f"that loads checkpoint {name}", attempt, False)()


def read_key(env: Mapping[str, str] = os.environ) -> bytes | None:
    """The key that manifests of this job are sealed with; None when none is configured."""
    path = env.get(environment.CHECKPOINT_KEY_FILE, "")
    return Path(path).expanduser().read_bytes().strip() if path else None
