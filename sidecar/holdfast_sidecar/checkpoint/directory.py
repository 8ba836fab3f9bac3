"""The job's checkpoints on storage, for the leader: where to save, seal, resume from, remove."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.contract.checkpoint_files import FolderMark, claim_folder
from holdfast.contract.page import checkpoint_name
from holdfast.contract.storage import Folder, NotOurs, absolute, child, is_url, open_folder
from holdfast_sidecar.checkpoint.ledger import (
    DAY_S,
    NothingResumable,
    StoredCheckpoint,
    abandoned,
    call_good,
    candidates,
    may_be_removed,
    note_failed_load,
    poison,
    read_ledger,
    reasons_against,
    recorded_files,
    remove,
    superfluous,
    torn_folders,
    untouched,
)
from holdfast_sidecar.checkpoint.manifest import (
    NAME,
    InvalidManifest,
    Manifest,
    NoManifest,
    PartRecord,
    hash_listed,
    is_void,
    list_rest,
    read_accounts,
    read_manifest,
    verify_sizes,
    write_manifest,
    write_void,
)
from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.records.checkpoint import CheckpointOrder, FileFact, LedgerEntry, SavedPart
from holdfast_sidecar.records.plan import Candidate, Plan

log = logging.getLogger(__name__)

GIVEN_UP = "it was given up before it was sealed"


class NotWhole(OSError):
    """The parts don't make a whole checkpoint, so it is not sealed."""


@dataclass(frozen=True)
class CheckpointDirectory:
    """Storage of one job's checkpoints. Methods touch the file system and may raise OSError."""

    job: str
    settings: CheckpointSettings
    clock: Callable[[], float] = time.time

    def candidates(self) -> list[Candidate]:
        """Checkpoints to try to resume from, best first.

        Raises NothingResumable when there are some and none of them is worth trying.
        """
        if not self.settings.dir:
            return []
        kept = self.kept()
        found = candidates(kept)
        if not found and (against := reasons_against(self._root, kept, self.job, self._key())):
            raise NothingResumable(describe_obstacle(self._root, against))
        return found

    def path(self, step: int, identifier: str) -> str:
        """Where a checkpoint shall lie; empty when no directory is configured."""
        return checkpoint_url(self.settings, step, identifier)

    def kept(self) -> list[StoredCheckpoint]:
        """Every sealed checkpoint, newest first."""
        return read_ledger(self._root, self.job, self._key()) if self.settings.dir else []

    def entries(self) -> list[LedgerEntry]:
        """Every sealed checkpoint as the ledger holds it."""
        return [kept.entry() for kept in self.kept()]

    def finish(
        self,
        order: CheckpointOrder,
        plan: Plan,
        parts: Sequence[SavedPart],
        tell: Callable[[int, int], object] = lambda done, total: None,
    ) -> LedgerEntry:
        """Write the manifest: from then on the checkpoint exists.

        `tell` hears of the bytes of what is hashed only now, and of how many there are. Raises
        OSError when the parts don't make a whole or the manifest can't be written.
        """
        folder = open_folder(order.path)
        if not may_be_removed(folder, self.job):
            raise NotWhole(f"{folder.name} does not bear this job's mark, or has another owner")
        files = merge_parts(parts)
        accounts = read_accounts(folder)
        check_accounts(order, plan, accounts, files)
        if order.mode != "snapshot":  # there every file is a part's
            parts = [*parts, hash_rest(order, folder, accounts, files, tell)]
            files = merge_parts(parts)
        manifest = self._manifest(order, plan, parts, files, accounts)
        if faults := verify_sizes(folder, manifest):
            raise NotWhole(faults[0])
        if is_void(folder):
            raise NotWhole("another leader gave it up")
        write_manifest(folder, manifest, self._key())
        return StoredCheckpoint(folder, manifest).entry()

    def settle(self, order: CheckpointOrder) -> LedgerEntry | None:
        """Find out what became of an order whose attempt is over: its entry, or None for good.

        What is not sealed by now is made void, so that a leader who was deposed while it sealed
        can't bring back a branch that the next attempt has left. Raises OSError.
        """
        if not self.settings.dir:
            return None
        folder = open_folder(self.path(order.step, order.identifier))
        if not may_be_removed(folder, self.job):
            self._forestall(folder, order)
            return None
        try:
            manifest = read_manifest(folder, self._key())
        except NoManifest:
            write_void(folder, GIVEN_UP)
            return None
        except InvalidManifest:
            return None
        return StoredCheckpoint(folder, manifest).entry()

    def _forestall(self, folder: Folder, order: CheckpointOrder) -> None:
        """Give up a folder that is not there, or not seen from here yet (NFS): a rank or writer
        that was only slow would make it. Where nothing can be written it is left so, as nobody's
        next attempt waits for a disk that takes nothing."""
        if not is_folder(self._root):
            return
        try:
            if folder.names():
                return
            claim_folder(folder, FolderMark(self.job, order.attempt, order.step, order.identifier))
            write_void(folder, GIVEN_UP)
        except NotOurs:
            return
        except OSError as error:
            log.warning("%s can't be marked as given up: %s", folder.name, error)

    def tidy(self, entry: LedgerEntry, plan: Plan) -> None:
        """Remove what this checkpoint has made superfluous. Raises OSError."""
        now = open_folder(entry.path).modified_unix_s(NAME)  # the storage's own clock
        torn = abandoned(torn_folders(self._root), self.job, plan.attempt, now)
        keep, older_than_s = self.settings.keep, self.settings.keep_days * DAY_S
        kept = self.kept()
        gone = superfluous(kept, keep, older_than_s, now)
        remove([*torn, *(removal.kept.folder for removal in gone)], self.job, recorded_files(kept))

    def left_alone_behind_url(self) -> list[str]:
        """A line on each kind of folder there that is not Holdfast's; of a path the launcher says
        it. Raises OSError."""
        root = self.settings.dir
        return untouched(root).describe(root) if is_url(root) else []

    def failed_to_load(self, identifier: str, attempt: int) -> LedgerEntry | None:
        """Note that ranks could not load it; the entry when it is poisoned by now."""
        for kept in self.kept():
            if kept.identifier == identifier:
                noted = note_failed_load(kept, attempt, self.settings.load_failures)
                return noted.entry() if noted.is_poisoned else None
        return None

    def give_verdict(self, identifier: str, verdict: str, reason: str) -> LedgerEntry | None:
        """Write down what became of it; its entry, or None when there is none. Raises OSError."""
        for kept in self.kept():
            if kept.identifier == identifier:
                give = call_good if verdict == "good" else poison
                return give(kept, reason).entry()
        return None

    @property
    def _root(self) -> str:
        return absolute(self.settings.dir)

    def _key(self) -> bytes | None:
        return read_key(self.settings)

    def _manifest(
        self,
        order: CheckpointOrder,
        plan: Plan,
        parts: Sequence[SavedPart],
        files: dict[str, FileFact],
        accounts: Sequence[PartRecord],
    ) -> Manifest:
        sealed = {kept.identifier for kept in self.kept()}
        first = accounts[0]
        ancestors = [name for name in first.ancestors if name in sealed]
        return Manifest(
            identifier=order.identifier,
            step=order.step,
            attempt=order.attempt,
            epoch=order.epoch,
            job=self.job,
            parent=next(iter(ancestors), ""),
            ancestors=ancestors,
            world_size=plan.world_size,
            layout=list(plan.members),
            files=files,
            torch_version=first.torch_version,
            created_unix_s=self.clock(),
            position=first.position,
            random_state=all(account.random_state for account in accounts),
            is_finite=all(account.finite for account in accounts),
            requested_by=order.requested_by,
            trigger=order.trigger,
            blocked_s=max((part.blocked_s for part in parts), default=0.0),
            write_s=max((part.seconds for part in parts), default=0.0),
        )


def checkpoint_url(settings: CheckpointSettings, step: int, identifier: str) -> str:
    """Where a checkpoint shall lie, path or URL; empty when no directory is configured."""
    if not settings.dir:
        return ""
    return child(absolute(settings.dir), checkpoint_name(step, identifier))


def read_key(settings: CheckpointSettings) -> bytes | None:
    """The secret that manifests are sealed with; None when none is configured. Raises OSError."""
    path = settings.key_file
    return Path(path).expanduser().read_bytes().strip() if path else None


def absolute_root(root: str) -> str:
    """A path made absolute, `~` too; a URL as it is."""
    return absolute(root)


def is_folder(root: str) -> bool:
    """Whether checkpoints may lie here; an object store's prefix always may."""
    return is_url(root) or Path(root).is_dir()


def describe_obstacle(root: str, against: Mapping[str, str]) -> str:
    """One line: why nothing there can be resumed from, by the newest, and what to do."""
    newest = max(against)
    others = f", nor can {len(against) - 1} older" if len(against) > 1 else ""
    return (
        f"{newest} in {root} can't be resumed from ({against[newest]}){others}: mend it"
        " (checkpoint.key_file?), or move the directory away to start from nothing"
    )


def merge_parts(parts: Iterable[SavedPart]) -> dict[str, FileFact]:
    """All nodes' files; no two nodes may have hashed the same one differently."""
    files: dict[str, FileFact] = {}
    for part in parts:
        for name, fact in part.files.items():
            if files.setdefault(name, fact) != fact:
                raise NotWhole(f"{name}: two nodes hashed different bytes")
    return files


def hash_rest(
    order: CheckpointOrder,
    folder: Folder,
    accounts: Sequence[PartRecord],
    hashed: Collection[str],
    tell: Callable[[int, int], object],
) -> SavedPart:
    """What no node has hashed, now that all ranks have saved: another rank may still have been
    writing it when the node looked. Raises OSError."""
    start_s = time.monotonic()
    names = list_rest(folder, accounts, hashed)
    files = hash_listed(folder, names, tell)
    return SavedPart(order.identifier, files=files, seconds=time.monotonic() - start_s)


def check_accounts(
    order: CheckpointOrder,
    plan: Plan,
    accounts: Sequence[PartRecord],
    files: dict[str, FileFact],
) -> None:
    """Every rank's own state of this very step must be among the files; else NotWhole."""
    if len(attempts := {account.attempt for account in accounts}) > 1:
        raise NotWhole(f"ranks took it in different attempts: {sorted(attempts)}")
    told = {account.rank for account in accounts if account.step == order.step}
    for rank in range(plan.world_size):
        if rank not in told or f"__{rank}_own.pt" not in files:
            raise NotWhole(f"rank {rank}'s part is missing (is the directory shared by all nodes?)")
