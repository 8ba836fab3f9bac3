"""The checkpoints there are, rebuilt from storage alone, and which of them to resume from.

The manifests say what exists, the verdict files beside them what became of it. A checkpoint counts
only when the newest one goes back to it: an attempt that resumed from further back has abandoned
what lay ahead, however high its step.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from holdfast.contract.checkpoint_files import MARK, is_own_name, mark_of, marked
from holdfast.contract.page import checkpoint_name
from holdfast.contract.permit import NotPermitted
from holdfast.contract.storage import (
    LAST,
    Folder,
    NotOurs,
    child,
    is_url,
    list_children,
    open_folder,
    strange_owner,
)
from holdfast_sidecar.checkpoint.manifest import (
    NAME,
    InvalidManifest,
    Manifest,
    NoManifest,
    append_verdict,
    claimed_job,
    is_account,
    is_void,
    read_accounts,
    read_manifest,
    read_verdicts,
    verify_sizes,
)
from holdfast_sidecar.records.checkpoint import LedgerEntry
from holdfast_sidecar.records.formatting import natural_order
from holdfast_sidecar.records.plan import Candidate

log = logging.getLogger(__name__)

FOLDER = re.compile(r"step-\d{8,}-.+")
"""What `checkpoint_name` makes. Others begin so too; what is Holdfast's is said by the mark inside.
"""


NAMES_SHOWN = 5


class NothingResumable(Exception):
    """There are checkpoints, and none can be resumed from: starting from nothing would throw them
    away. The text is one line for people."""


@dataclass(frozen=True)
class StoredCheckpoint:
    """A sealed checkpoint on storage. `failed_attempts`: attempts whose ranks couldn't load it."""

    folder: Folder
    manifest: Manifest
    failed_attempts: frozenset[int] = frozenset()
    is_poisoned: bool = False
    poisoned_for: str = ""
    """Why, where the verdict says it."""
    is_good: bool = False
    is_whole: bool = True
    """Every file is there, in its size."""
    is_ours: bool = False
    """Made by Holdfast, as its mark says, under our own account: it may be removed."""

    @property
    def identifier(self) -> str:
        """Its name in the ledger."""
        return self.manifest.identifier

    @property
    def may_be_resumed(self) -> bool:
        """Worth trying, as far as can be told without reading the bytes."""
        return self.is_whole and not self.is_poisoned and self.manifest.is_finite

    @property
    def verdict(self) -> str:
        """`complete`, `good` or `poisoned`."""
        if self.is_poisoned:
            return "poisoned"
        return "good" if self.is_good else "complete"

    def goes_back_to(self, present: Collection[str]) -> str:
        """The newest checkpoint before it that is still there; empty when none is."""
        before = (self.manifest.parent, *self.manifest.ancestors)
        return next((name for name in before if name in present), "")

    def entry(self) -> LedgerEntry:
        """As it stands in the shared ledger."""
        return LedgerEntry(
            identifier=self.identifier,
            path=self.folder.url,
            step=self.manifest.step,
            attempt=self.manifest.attempt,
            epoch=self.manifest.epoch,
            parent=self.manifest.parent,
            verdict=self.verdict,
            size_bytes=self.manifest.size_bytes,
            world_size=self.manifest.world_size,
            at_unix_s=self.manifest.created_unix_s,
            load_failures=len(self.failed_attempts),
            requested_by=self.manifest.requested_by,
            trigger=self.manifest.trigger,
            nodes=[member.node for member in self.manifest.layout],
            blocked_s=self.manifest.blocked_s,
            write_s=self.manifest.write_s,
        )


def read_ledger(root: str, job: str | None, key: bytes | None = None) -> list[StoredCheckpoint]:
    """Every sealed checkpoint of this job (None: of any) under `root`, newest first.

    Raises OSError when the storage is away: what can't be seen is not nothing.
    """
    kept = []
    for folder in _folders(root):
        with _strangers_passed_over(folder, logging.WARNING):
            if found := _read(folder, job, key):
                kept.append(found)
    return sorted(kept, key=lambda k: k.manifest.order, reverse=True)


def torn_folders(root: str) -> list[Folder]:
    """Folders in which Holdfast began a checkpoint and never sealed it (or is writing it now)."""
    torn = []
    for folder in _folders(root):
        with _strangers_passed_over(folder):
            if (is_void(folder) or not folder.exists(NAME)) and mark_of(folder) is not None:
                torn.append(folder)
    return torn


def may_be_removed(folder: Folder, job: str) -> bool:
    """Whether Holdfast made this folder for this job, under our own account. Raises OSError."""
    try:
        marked(folder, job)
    except NotPermitted:
        return False
    return True


@dataclass(frozen=True)
class Untouched:
    """Folders that lie among the checkpoints and are never written into nor removed, by name."""

    foreign: list[str]
    older: list[str]
    """Checkpoints of a Holdfast that put no mark into them yet: they can be resumed from."""

    def describe(self, root: str) -> list[str]:
        """A line on each kind."""
        lines = []
        if self.foreign:
            lines.append(f"{root} also holds {_some(self.foreign)}: not Holdfast's, left alone")
        if self.older:
            lines.append(
                f"{_some(self.older)} in {root}: without Holdfast's mark, as an older version saved"
                " them, so never removed by it; remove yourself what is yours and not needed"
            )
        return lines


def untouched(root: str) -> Untouched:
    """What lies under `root` without Holdfast's mark, as far as one may look. Raises OSError where
    `root` itself can't be read."""
    foreign: list[str] = []
    older: list[str] = []
    for name in list_children(root):
        if name.startswith("."):
            continue
        folder = open_folder(child(root, name))
        try:
            if folder.exists(MARK):
                continue
            is_older = FOLDER.fullmatch(name) is not None and bool(
                claims_to_be_sealed(folder) or read_accounts(folder)
            )
        except OSError:
            is_older = False  # nobody may look into it: another user's, lost+found, a prefix
        (older if is_older else foreign).append(name)
    return Untouched(foreign, older)


def untouched_here(root: str) -> list[str]:
    """A line on each kind of such folders, for a word in time; see `other_owners`. What lies behind
    a URL the leader's writer says."""
    if not root or is_url(root):
        return []
    try:
        return untouched(root).describe(root)
    except OSError:
        return []


def claims_to_be_sealed(folder: Folder) -> bool:
    """Whether a manifest of ours lies there, believed or not. Raises OSError."""
    return folder.exists(NAME) and claimed_job(folder) is not None


def _some(names: list[str]) -> str:
    names = sorted(names, key=natural_order)
    shown = ", ".join(names[:NAMES_SHOWN])
    return f"{shown} and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else shown


def other_owners(root: str, job: str) -> list[str]:
    """Whose checkpoints lie in a directory in which there is none of this job.

    For a word in time, so it looks into directories alone and takes what can't be read as nothing.
    """
    if not root or is_url(root):
        return []
    owners = set()
    try:
        for folder in _folders(root):
            with _strangers_passed_over(folder):
                if folder.exists(NAME):
                    owners.add(claimed_job(folder))
    except OSError:
        return []
    return [] if job in owners else sorted(owner for owner in owners if owner is not None)


def lineage(kept: Iterable[StoredCheckpoint]) -> list[StoredCheckpoint]:
    """The newest checkpoint and those it goes back to, newest first."""
    by_identifier = {k.identifier: k for k in kept}
    if not by_identifier:
        return []
    return list(_ancestry(_newest(by_identifier), by_identifier))


def candidates(kept: Iterable[StoredCheckpoint]) -> list[Candidate]:
    """What to try to resume from, best first. The ranks check the bytes."""
    return [
        Candidate(k.identifier, k.folder.url, k.manifest.step, is_good=k.is_good)
        for k in lineage(kept)
        if k.may_be_resumed
    ]


def reasons_against(
    root: str, kept: Iterable[StoredCheckpoint], job: str | None, key: bytes | None
) -> dict[str, str]:
    """Why each of this job's checkpoints can't be resumed from, by directory name. Raises OSError.

    One that is not believed counts as another job's only when it says so itself; and as nobody's
    when it says nothing, and nothing else in it is of Holdfast's making.
    """
    against = {k.folder.name: _against(k) for k in kept}
    for folder in _folders(root):
        with _strangers_passed_over(folder):
            try:
                _read_believed(folder, key)
            except NoManifest:
                continue
            except InvalidManifest as error:
                claimed = claimed_job(folder)
                is_ours = claimed == job if claimed is not None else _has_traces(folder)
                if job is None or is_ours:
                    against[folder.name] = str(error)
    return against


def _has_traces(folder: Folder) -> bool:
    """Whether it bears our mark, or what a rank says of its part (older ones have no mark)."""
    return mark_of(folder) is not None or any(map(is_account, folder.names()))


def _against(kept: StoredCheckpoint) -> str:
    if kept.is_poisoned:
        return kept.poisoned_for or "it is poisoned"
    if not kept.is_whole:
        return "files are missing or cut off"
    if not kept.manifest.is_finite:
        return "its numbers are not finite"
    return "it is on an abandoned branch"


def note_failed_load(kept: StoredCheckpoint, attempt: int, limit: int) -> StoredCheckpoint:
    """Write down that this attempt's ranks couldn't load it; poisoned when `limit` attempts did.

    Raises OSError.
    """
    if attempt in kept.failed_attempts:
        return kept
    append_verdict(kept.folder, "unloaded", {"attempt": attempt})
    failed = kept.failed_attempts | {attempt}
    poisoned = kept.is_poisoned or len(failed) >= limit
    if poisoned and not kept.is_poisoned:
        attempts = ", ".join(map(str, sorted(failed)))
        return poison(
            replace(kept, failed_attempts=failed), f"it could not be loaded in attempts {attempts}"
        )
    return replace(kept, failed_attempts=failed)


def poison(kept: StoredCheckpoint, reason: str) -> StoredCheckpoint:
    """Write down that it must not be resumed from, if nobody has yet. Raises OSError."""
    if kept.is_poisoned:
        return kept
    append_verdict(kept.folder, "poisoned", {"reason": reason})
    log.warning("checkpoint %s is poisoned: %s", kept.folder.name, reason)
    return replace(kept, is_poisoned=True, poisoned_for=reason)


def call_good(kept: StoredCheckpoint, reason: str) -> StoredCheckpoint:
    """Write down that it proved good, if nobody has yet. Raises OSError."""
    if kept.is_good or kept.is_poisoned:
        return kept
    append_verdict(kept.folder, "good", {"reason": reason})
    return replace(kept, is_good=True)


def _newest(by_identifier: dict[str, StoredCheckpoint]) -> StoredCheckpoint:
    """The last one in time. Attempts may count anew (state lost, storage kept), so a checkpoint
    that goes back to another one is later than that one, whatever their numbers say."""
    newest = max(by_identifier.values(), key=lambda k: k.manifest.order)
    seen = {newest.identifier}
    while True:
        children = [
            k
            for k in by_identifier.values()
            if k.goes_back_to(by_identifier) == newest.identifier and k.identifier not in seen
        ]
        if not children:
            return newest
        newest = max(children, key=lambda k: k.manifest.order)
        seen.add(newest.identifier)


def _ancestry(
    newest: StoredCheckpoint, by_identifier: dict[str, StoredCheckpoint]
) -> Iterator[StoredCheckpoint]:
    seen: set[str] = set()
    present: StoredCheckpoint | None = newest
    while present is not None and present.identifier not in seen:
        yield present
        seen.add(present.identifier)
        present = by_identifier.get(present.goes_back_to(by_identifier))


def _folders(root: str) -> list[Folder]:
    names = filter(FOLDER.fullmatch, list_children(root))
    return [open_folder(child(root, name)) for name in names]


@contextlib.contextmanager
def _strangers_passed_over(folder: Folder, level: int = logging.DEBUG) -> Iterator[None]:
    """A folder that another user keeps to himself is none of this job's, whatever it is called.

    What is ours and can't be read remains an error: it is not nothing.
    """
    try:
        yield
    except PermissionError:
        if not (stranger := strange_owner(folder)):
            raise
        log.log(level, "%s is passed over: it is another user's (%s)", folder.name, stranger)


def _read_believed(folder: Folder, key: bytes | None) -> Manifest:
    """The manifest of a folder that may be believed; raises InvalidManifest, OSError.

    In a directory where all may write, anybody could else say what is loaded, and by a manifest
    that seems newer have the honest ones removed.
    """
    manifest = read_manifest(folder, key)
    if stranger := strange_owner(folder):
        raise InvalidManifest(
            f"it belongs to another user ({stranger}): to go on from it, copy it, so that the copy"
            " is yours"
        )
    name = checkpoint_name(manifest.step, manifest.identifier)
    if folder.name != name:
        raise InvalidManifest(f"it was saved as {name}: give it its name again")
    return manifest


def _read(folder: Folder, job: str | None, key: bytes | None) -> StoredCheckpoint | None:
    try:
        manifest = _read_believed(folder, key)
    except NoManifest:
        return None
    except InvalidManifest as error:
        log.warning("%s is not believed to be a checkpoint: %s", folder.name, error)
        return None
    if job is not None and manifest.job != job:
        return None
    names = folder.names()
    failed = [said.get("attempt") for said in read_verdicts(folder, names, "unloaded")]
    poisoned = [str(said.get("reason", "")) for said in read_verdicts(folder, names, "poisoned")]
    return StoredCheckpoint(
        folder,
        manifest,
        failed_attempts=frozenset(attempt for attempt in failed if isinstance(attempt, int)),
        is_poisoned=bool(poisoned),
        poisoned_for=next(filter(None, poisoned), ""),
        is_good=any(True for _ in read_verdicts(folder, names, "good")),
        is_whole=not verify_sizes(folder, manifest),
        is_ours=may_be_removed(folder, manifest.job),
    )


# Which checkpoints to remove: all but the newest few, never the newest nor the newest good one.
#
# Only what bears Holdfast's mark for this job, belongs to our own account, and holds no file but
# those that Holdfast's manifests and accounts name.

DAY_S = 24 * 3600.0
LEFT_ALONE_S = DAY_S


@dataclass(frozen=True)
class Removal:
    """A checkpoint to remove, and why nobody needs it."""

    kept: StoredCheckpoint
    why: str


def superfluous(
    kept: Iterable[StoredCheckpoint], keep: int, older_than_s: float = 0.0, now_unix_s: float = 0.0
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
    kept: StoredCheckpoint,
    line: Sequence[StoredCheckpoint],
    newest: Sequence[StoredCheckpoint],
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


def recorded_files(kept: Iterable[StoredCheckpoint]) -> frozenset[str]:
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
