"""Surroundings with fewer rights than root has: a mount namespace of its own, another user, fewer
capabilities, system calls that are refused. Nothing of it is seen outside.
"""

from __future__ import annotations

import os
import shlex
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]

NOBODY = 54321
"""A user whom no file knows, as Kubernetes and OpenShift give them: without name or home."""

REFUSE = Path(__file__).parent / "refuse_ptrace.py"


@dataclass(frozen=True)
class Surroundings:
    """Each a loss of its own; several together are a hardened container."""

    is_root: bool = True
    has_read_only_root: bool = False
    lacks: tuple[str, ...] = ()
    """Capabilities, as setpriv(1) calls them."""
    refuses_ptrace: bool = False
    shm_bytes: int = 0
    """0: shared memory is the machine's."""

    def command(self, folder: Path, arguments: list[str]) -> list[str]:
        """The command that runs these arguments there; only this folder and /dev/shm may be
        written where the root file system is read-only."""
        steps = ["set -e", *self._mounts(folder), f"cd {shlex.quote(str(folder))}"]
        inner = [*self._rights(), *([sys.executable, str(REFUSE)] if self.refuses_ptrace else [])]
        steps.append(f"exec {shlex.join([*inner, *arguments])}")
        script = "\n".join(steps)
        return ["unshare", "--mount", "--propagation=private", "sh", "-c", script]

    def _mounts(self, folder: Path) -> list[str]:
        steps = []
        if self.shm_bytes:
            steps.append(f"mount -t tmpfs -o size={self.shm_bytes},mode=1777 tmpfs /dev/shm")
        if not self.is_root:
            needed = [Path(sys.prefix), Path(sys.base_prefix), REPOSITORY]
            steps += open_up(needed, folder)
        if self.has_read_only_root:
            inside = shlex.quote(str(folder))
            steps += [f"mount --bind {inside} {inside}", "mount -o remount,bind,ro /"]
        return steps

    def _rights(self) -> list[str]:
        options = [f"--bounding-set={','.join('-' + name for name in self.lacks)}"] * bool(
            self.lacks
        )
        if not self.is_root:
            options += [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
            options += ["--inh-caps=-all", "--no-new-privs"]
        return ["setpriv", *options] if options else []


def open_up(paths: list[Path], folder: Path) -> list[str]:
    """Steps that let everybody reach these directories: what hides them is covered by an empty
    directory, and they are mounted again below it. `folder` is where they are held meanwhile."""
    hidden = {path: above for path in paths if (above := _hiding(path))}
    steps = []
    for number, path in enumerate(hidden):
        aside = folder / f"aside-{number}"
        steps += [f"mkdir -p {aside}", f"mount --bind {shlex.quote(str(path))} {aside}"]
    for above in sorted(set(hidden.values())):
        steps.append(f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(str(above))}")
    for number, path in enumerate(hidden):
        inside = shlex.quote(str(path))
        steps += [f"mkdir -p {inside}", f"mount --bind {folder}/aside-{number} {inside}"]
    return steps


def _hiding(path: Path) -> Path | None:
    """The first directory above that others may not look into."""
    above = [one for one in reversed(path.parents) if not one.stat().st_mode & stat.S_IXOTH]
    return above[0] if above else None


def may_make_them() -> bool:
    """Whether this user may."""
    return os.geteuid() == 0
