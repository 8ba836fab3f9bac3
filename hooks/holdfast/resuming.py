"""Tries the checkpoints to resume from, newest first, until all ranks have loaded the same one.

Each is checked first: no byte is unpickled before every rank's share of the hashes matched. A
candidate that one rank can't load is left by all.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast import environment
from holdfast.agreement import BoardLost
from holdfast.checkpoint_files import (
    Damaged,
    check_file,
    check_nothing_is_added,
    read_promises,
    share_out,
)
from holdfast.checkpoint_source import load_checkpoint
from holdfast.guard import Guard
from holdfast.loading import Loaded, LoadFailed
from holdfast.page import Phase, Word
from holdfast.placement import Placement
from holdfast.recording import Recording, count_error
from holdfast.saving import Savable
from holdfast.storage import open_folder

log = logging.getLogger(__name__)

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

    @property
    def name(self) -> str:
        """As people know it."""
        return self.path.rstrip("/").rpartition("/")[2]


@dataclass(frozen=True)
class Resumed:
    """The checkpoint that all ranks loaded."""

    candidate: Candidate
    loaded: Loaded


def parse_candidates(text: str) -> list[Candidate]:
    """The launcher's list; raises ResumeFailed when it is none."""
    try:
        return [
            Candidate(str(item["identifier"]), str(item["path"]), int(item["step"]))
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
) -> Resumed | None:
    """Load the first candidate that all ranks can load; None when there is none to try."""
    if not candidates or not savable:
        return None
    if not place.is_joined:
        raise ResumeFailed(
            "resume() came before torch.distributed.init_process_group; the ranks have to agree "
            "on a checkpoint, so call it after"
        )
    guard = Guard(lambda: count_error(recording))
    before = recording.enter(Phase.RESTORING)
    try:
        for index, candidate in enumerate(candidates):
            loaded = _try(index, candidate, savable, place, key, guard)
            if loaded is not None:
                recording.set_word(Word.RESUMED_STEP, loaded.step)
                recording.set_word(Word.STEP, loaded.step)
                return Resumed(candidate, loaded)
            failures = recording.word(Word.RESUME_FAILURES)
            recording.set_word(Word.RESUME_FAILURES, failures | 1 << min(index, 63))
    finally:
        recording.enter(before)
    tried = ", ".join(candidate.name for candidate in candidates)
    raise ResumeFailed(
        f"none of the checkpoints could be loaded ({tried}); the reasons are in the log above. "
        "Training does not start from nothing by itself: move the checkpoints away if it shall"
    )


def _try(
    index: int,
    candidate: Candidate,
    savable: Savable,
    place: Placement,
    key: bytes | None,
    guard: Guard,
) -> Loaded | None:
    """Check, vote, load, vote. None: some rank (perhaps this one) can't load it."""
    checks = _attempt(candidate, guard, lambda: _check(candidate, place, key))
    if not _agreed(index, "checked", place, checks):
        return None
    found: list[Loaded] = []
    loads = _attempt(
        candidate,
        guard,
        lambda: found.append(load_checkpoint(open_folder(candidate.path), savable, place)),
    )
    return found[0] if _agreed(index, "loaded", place, loads) else None


def _check(candidate: Candidate, place: Placement, key: bytes | None) -> None:
    folder = open_folder(candidate.path)
    promises = read_promises(folder, key)
    check_nothing_is_added(folder, place.rank, promises)
    for file in share_out(promises, place.local_rank, place.local_world_size):
        check_file(folder, file)


def _agreed(index: int, what: str, place: Placement, yes: bool) -> bool:
    try:
        return place.agreement(f"resume/{index}/{what}").vote(yes, VOTE_TIMEOUT_S)
    except BoardLost as error:
        raise ResumeFailed(f"the other ranks can't be reached any more: {error}") from error


def _attempt(candidate: Candidate, guard: Guard, do: Callable[[], object]) -> bool:
    """Whether it worked. Whatever a user's object raises, this rank still casts its vote."""
    name = candidate.name

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

    return guard.wrap(f"that loads checkpoint {name}", attempt, False)()


def read_key(env: Mapping[str, str] = os.environ) -> bytes | None:
    """The key that manifests of this job are sealed with; None when none is configured."""
    path = env.get(environment.CHECKPOINT_KEY_FILE, "")
    return Path(path).expanduser().read_bytes().strip() if path else None
