"""Which checkpoints to remove: all but the newest few, never the last that can be resumed from."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable
from pathlib import Path

from holdfast_sidecar.checkpoints.account import read_accounts
from holdfast_sidecar.checkpoints.ledger import Kept, lineage
from holdfast_sidecar.checkpoints.manifest import NAME

log = logging.getLogger(__name__)

LEFT_ALONE_S = 24 * 3600.0


def superfluous(kept: Iterable[Kept], keep: int) -> list[Path]:
    """Sealed checkpoints to remove, oldest first.

    What counts towards `keep` is what can be resumed from. The rest (poisoned, damaged, of an
    abandoned branch) goes once it is older than the oldest that is kept; until then it is evidence.
    """
    everything = list(kept)
    line = [k for k in lineage(everything) if k.may_be_resumed]
    wanted = line[: max(keep, 1)]
    if not wanted:
        return []
    oldest = wanted[-1].manifest.created_unix_s
    chosen = {k.identifier for k in wanted}
    gone = [
        k
        for k in everything
        if k.identifier not in chosen and (k.manifest.created_unix_s < oldest or k in line)
    ]
    return [k.path for k in sorted(gone, key=lambda k: k.manifest.created_unix_s)]


def abandoned(torn: Iterable[Path], job: str, attempt: int, now_unix_s: float) -> list[Path]:
    """Torn directories that an earlier attempt of this job left: nobody writes into them any more.

    Attempts may count anew, so one of a later attempt may be as old; and one without any rank's
    account can't be told from another job's. Those go when they were left alone for a day.
    `now_unix_s` is the storage's clock (a file's time just written there).
    """
    return [path for path in torn if _is_abandoned(path, job, attempt, now_unix_s)]


def _is_abandoned(path: Path, job: str, attempt: int, now_unix_s: float) -> bool:
    accounts = read_accounts(path)
    if any(account.job != job or account.attempt == attempt for account in accounts):
        return False
    if accounts and all(account.attempt < attempt for account in accounts):
        return True
    return _touched_unix_s(path) < now_unix_s - LEFT_ALONE_S


def remove(paths: Iterable[Path]) -> list[Path]:
    """Remove these; answers what is gone. A failure is logged and tried again another time."""
    gone = []
    for path in paths:
        try:
            # Without its manifest it is no checkpoint any more, even if the rest stays behind.
            (path / NAME).unlink(missing_ok=True)
            shutil.rmtree(path)
        except OSError as error:
            log.warning("can't remove %s: %s", path.name, error)
            continue
        log.info("removed checkpoint %s", path.name)
        gone.append(path)
    return gone


def _touched_unix_s(path: Path) -> float:
    try:
        times = [entry.stat().st_mtime for entry in (path, *path.rglob("*"))]
    except OSError:
        return float("inf")  # someone is at it
    return max(times)
