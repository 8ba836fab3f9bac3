"""All checkpoints of one directory as the commands look at them: which, in what order, why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast_sidecar.checkpoint.ledger import (
    Kept,
    candidates,
    lineage,
    reasons_against,
    torn_folders,
    untouched,
)
from holdfast_sidecar.cli.checkpoint.storage import find_root, read_kept, read_secret, reading
from holdfast_sidecar.config.loading import Effective


@dataclass(frozen=True)
class Shelf:
    """What lies under `root`. Several jobs may save there; each has a line of its own."""

    root: str
    kept: list[Kept]
    """Sealed ones, newest first."""
    against: Mapping[str, str] = field(default_factory=dict)
    """Directory -> why it is not resumed from, also of those that are not believed."""
    torn: list[str] = field(default_factory=list)
    """Directories that were never sealed, or are being written now."""
    foreign: Mapping[str, str] = field(default_factory=dict)
    """Directory -> the other job whose it is, when one job was asked for."""
    resume: Mapping[str, int] = field(default_factory=dict)
    """Identifier -> place in the order in which its job would try them, from 1."""
    living: frozenset[str] = frozenset()
    """Identifiers of the newest checkpoint of each job and of those that it goes back to."""

    left_alone: list[str] = field(default_factory=list)
    """A line on each kind of folder there that does not bear Holdfast's mark."""

    @property
    def jobs(self) -> list[str]:
        """Whose checkpoints these are."""
        return sorted({one.manifest.job for one in self.kept})

    def of(self, job: str) -> list[Kept]:
        """One job's, newest first."""
        return [one for one in self.kept if one.manifest.job == job]

    @property
    def nothing(self) -> str:
        """What to say when there is no checkpoint."""
        others = ", ".join(sorted(set(self.foreign.values())))
        return f"no checkpoint in {self.root}" + (f" but those of job {others}" if others else "")

    def why_not(self, kept: Kept) -> str:
        """Why a restart would not try it; empty when it would."""
        return "" if kept.identifier in self.resume else self.against.get(kept.folder.name, "")

    @property
    def unbelieved(self) -> dict[str, str]:
        """Directory -> why its manifest is not believed."""
        believed = {one.folder.name for one in self.kept}
        return {name: why for name, why in self.against.items() if name not in believed}


def look(effective: Effective, job: str | None, given: str | None) -> Shelf:
    """Read a directory as the job itself would. BadInput when it can't be read."""
    root = find_root(effective, job, given)
    everyones = read_kept(root, effective)
    kept = [one for one in everyones if job in (None, one.manifest.job)]
    foreign = {one.folder.name: one.manifest.job for one in everyones if one not in kept}
    by_job = [[k for k in kept if k.manifest.job == job] for job in {k.manifest.job for k in kept}]
    resume = {
        candidate.identifier: place
        for its in by_job
        for place, candidate in enumerate(candidates(its), 1)
    }
    living = frozenset(one.identifier for its in by_job for one in lineage(its))
    key = read_secret(effective)
    with reading(root):
        against = reasons_against(root, kept, job, key)
        torn = [folder.name for folder in torn_folders(root)]
        left_alone = untouched(root).describe(root)
    return Shelf(root, kept, against, torn, foreign, resume, living, left_alone)
