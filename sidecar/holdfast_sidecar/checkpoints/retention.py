"""Which checkpoints to remove: all but the newest few, never the newest nor the newest good one.

Only what bears Holdfast's mark for this job, belongs to our own account, and holds no file but
those that Holdfast's manifests and accounts name.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from holdfast.checkpoint_files import MARK, is_own_name, mark_of, marked
from holdfast.permit import NotPermitted
from holdfast.storage import LAST, Folder, NotOurs
from holdfast_sidecar.checkpoints.account import is_account, read_accounts
from holdfast_sidecar.checkpoints.ledger import Kept, lineage
from holdfast_sidecar.checkpoints.manifest import NAME

log = logging.getLogger(__name__)

DAY_S = 24 * 3600.0
LEFT_ALONE_S = DAY_S


@dataclass(frozen=True)
class Removal:
    """A checkpoint to remove, and why nobody needs it."""

    kept: Kept
    why: str


def superfluous(
    kept: Iterable[Kept], keep: int, older_than_s: float = 0.0, now_unix_s: float = 0.0
) -> list[Removal]:
    """Sealed checkpoints of one job to remove, oldest first.

    Of those that can be resumed from, the newest `keep` stay, less what is older than
    `older_than_s` (0: no limit); the newest one and the newest good one always do. The rest
    (poisoned, damaged, of an abandoned branch) goes once it is older than the oldest of the newest
    `keep`; until then it is evidence. What does not bear our mark counts, and always stays.
    """
    everything = list(kept)
    line = [k for k in lineage(everything) if k.may_be_resumed]
    newest = line[: max(keep, 1)]
    if not newest:
        return []
    treasured = {line[0].identifier, next((k.identifier for k in line if k.is_good), "")}
    not_before_unix_s = now_unix_s - older_than_s if older_than_s > 0 else 0.0
    gone = [
        Removal(k, why)
        for k in everything
        if k.is_ours
        and k.identifier not in treasured
        and (why := _reason(k, line, newest, not_before_unix_s))
    ]
    return sorted(gone, key=lambda removal: removal.kept.manifest.created_unix_s)


def _reason(
    kept: Kept,
    line: Sequence[Kept],
    newest: Sequence[Kept],
    not_before_unix_s: float,
) -> str:
    """Why it is not needed; empty when it is."""
    if kept in newest:
        return "it is too old" if kept.manifest.created_unix_s < not_before_unix_s else ""
    if kept in line:
        return "a newer one is kept" if len(newest) == 1 else f"{len(newest)} newer ones are kept"
    if kept.manifest.created_unix_s >= newest[-1].manifest.created_unix_s:
        return ""
    if kept.may_be_resumed:
        return "it is on an abandoned branch"
    return kept.poisoned_for or "it can't be resumed from"


def abandoned(torn: Iterable[Folder], job: str, attempt: int, now_unix_s: float) -> list[Folder]:
    """Torn folders that an earlier attempt of this job left: nobody writes into them any more.

    Attempts may count anew, so one of a later attempt may be as old: it goes when it was left alone
    for a day. `now_unix_s` is the storage's clock (a file's time just written there).
    """
    return [folder for folder in torn if _is_abandoned(folder, job, attempt, now_unix_s)]


def _is_abandoned(folder: Folder, job: str, attempt: int, now_unix_s: float) -> bool:
    mark = mark_of(folder)
    if mark is None or mark.job != job or mark.attempt == attempt:
        return False
    return mark.attempt < attempt or _touched_unix_s(folder) < now_unix_s - LEFT_ALONE_S


def remove(folders: Iterable[Folder], job: str, recorded: Collection[str] = ()) -> list[Folder]:
    """Remove these of one job; answers what is gone. A failure is logged and tried again later.

    `recorded`: files that the manifests of this job's checkpoints name. A user's function gives
    them mostly the same names again, also where it was killed before its rank could tell.
    """
    gone = []
    for folder in folders:
        try:
            _remove(folder, job, recorded)
        except (NotOurs, NotPermitted) as error:
            log.warning("%s stays, with all its files: %s", folder.name, error)
            continue
        except OSError as error:
            log.warning("can't remove %s: %s", folder.name, error)
            continue
        log.info("removed checkpoint %s", folder.name)
        gone.append(folder)
    return gone


def recorded_files(kept: Iterable[Kept]) -> frozenset[str]:
    """Names of all files that the manifests of our own checkpoints promise."""
    return frozenset(name for k in kept if k.is_ours for name in k.manifest.files)


def _remove(folder: Folder, job: str, recorded: Collection[str]) -> None:
    permit = marked(folder, job)
    told = {name for account in read_accounts(folder) for name in account.files}

    def turn(name: str) -> int | None:
        """Without its manifest it is no checkpoint any more, even if the rest stays behind; what
        says whose the rest is goes last."""
        if name == NAME:
            return 0
        if name == MARK:
            return LAST
        if is_account(name):
            return 2
        return 1 if is_own_name(name) or name in told or name in recorded else None

    folder.remove_known(turn, permit)


def _touched_unix_s(folder: Folder) -> float:
    try:
        times = [folder.modified_unix_s(name) for name in folder.names()]
    except OSError:
        return float("inf")  # someone is at it
    return max(times, default=float("inf"))  # nothing yet: someone has just begun
