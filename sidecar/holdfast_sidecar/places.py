"""Where a job's files lie on a node. Names only; making and locking them is for others."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from holdfast.own_directory import NotPrivate, open_private
from holdfast.page import TRACES
from holdfast_sidecar.bad_input import BadInput
from holdfast_sidecar.home import expand, personal_directory
from holdfast_sidecar.settings import PathSettings

LONGEST_NAME = 63
"""What a label of DNS may have, for a node is mostly called as its host."""

NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._~-]{{0,{LONGEST_NAME - 1}}}")
"""What a job or node may be called: it becomes a directory, a Redis key and a metric label."""

MACHINE = ".machine"
"""Beside the jobs' directories; no job may be called so (`NAME`)."""

XID_HISTORY = Path(MACHINE) / "xids.json"
"""In the directory of all jobs' state; see `xids.kept`."""

JOB_RECORD = "job.json"
"""In the state directory of each of a job's nodes; see `job_record`."""


@dataclass(frozen=True)
class Places:
    """The directories of one job on one node."""

    shm: Path
    state: Path

    @property
    def lock(self) -> Path:
        """Held (flock) by whoever owns this node of this job."""
        return self.shm / "owner.lock"

    @property
    def fence(self) -> Path:
        """Highest fence this node obeyed."""
        return self.state / "fence.json"

    @property
    def local_fence(self) -> Path:
        """The same, where no quota and no file server is in the way."""
        return self.shm / "fence.json"

    @property
    def sidecar_record(self) -> Path:
        """Pid and metrics address of the running sidecar."""
        return self.state / "sidecar.json"

    @property
    def targets(self) -> Path:
        """Whom Prometheus was told to scrape."""
        return self.state / "targets.json"

    @property
    def sidecar_log(self) -> Path:
        """Where the launcher sends the sidecar's log."""
        return self.state / "sidecar.log"

    @property
    def earlier_sidecar_log(self) -> Path:
        """What was in it before it grew too large."""
        return self.state / "sidecar.log.1"

    @property
    def shipping(self) -> Path:
        """Is there while the sidecar stays only to write or to tell, and says which."""
        return self.state / "shipping"

    @property
    def told_to_end(self) -> Path:
        """Is there once this node's launcher was told to end, by a person or a scheduler."""
        return self.state / "told-to-end"

    @property
    def job_record(self) -> Path:
        """What this node last knew of the job."""
        return self.state / JOB_RECORD

    @property
    def server(self) -> Path:
        """Where a server of this launch's own keeps its files."""
        return self.state / "server"

    @property
    def local_server(self) -> Path:
        """The same, where the state's disk takes nothing."""
        return self.shm / "server"

    @property
    def server_record(self) -> Path:
        """Where this job's Redis is (0600); shared by the job's nodes on this machine."""
        return self.state.parent / "server.json"

    @property
    def xid_history(self) -> Path:
        """What happened to this machine's GPUs of late: of the machine, whatever job ran."""
        return self.state.parent.parent / XID_HISTORY

    def evidence(self, attempt: int) -> Path:
        """Stack dumps of this attempt's ranks."""
        return self.attempts_evidence / f"attempt-{attempt}"

    def trace(self, attempt: int, identifier: str) -> Path:
        """What this attempt's ranks traced together."""
        return self.evidence(attempt) / TRACES / identifier

    @property
    def attempts_evidence(self) -> Path:
        """Where the stack dumps of all attempts are."""
        return self.state / "evidence"

    def incident(self, identifier: str) -> Path:
        """What was kept of an incident."""
        return self.incidents / identifier

    @property
    def incidents(self) -> Path:
        """Where what was kept of all incidents is."""
        return self.state / "incidents"


def state_root(settings: PathSettings) -> Path:
    """Directory of all jobs' state."""
    if settings.state_dir:
        return expand(settings.state_dir)
    usual = usual_state_root()
    return usual if may_be_made(usual) else _checked(passing_state_root())


def history_of(settings: PathSettings) -> Path:
    """Where the XIDs of the machine are remembered, whatever the job."""
    return state_root(settings) / XID_HISTORY


def usual_state_root() -> Path:
    """Where state is kept unless somebody says otherwise. Without a home directory (a user that the
    container knows no name for) it is below the root directory."""
    base = Path("/")
    with contextlib.suppress(BadInput):
        base = personal_directory(os.environ.get("XDG_STATE_HOME"), "~/.local/state")
    return base / "holdfast"


def passing_state_root() -> Path:
    """Where it is kept where nothing may be written there, a read-only root file system above all:
    the temporary directory, which may not outlive the container."""
    return Path(tempfile.gettempdir()) / f"holdfast-{os.getuid()}"


def _checked(root: Path) -> Path:
    """The temporary directory is everybody's: whoever was there first could say where a job's
    server is, and be sent its password."""
    try:
        os.close(open_private(root, 1))
    except FileNotFoundError:
        return root
    except OSError as error:
        why = error if isinstance(error, NotPrivate) else f"{root}: {error.strerror}"
        raise BadInput(f"{why}, or choose another directory with paths.state_dir") from None
    return root


def may_be_made(path: Path) -> bool:
    """Whether a directory may be written to, or made where it is to be."""
    existing = next((place for place in (path, *path.parents) if _is_there(place)), None)
    return existing is not None and os.access(existing, os.W_OK | os.X_OK)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # Python before 3.14 raises where a directory above may not be looked into
        return False


def shm_root(settings: PathSettings) -> Path:
    """Directory of all jobs' shared memory."""
    return Path(settings.shm_dir) / f"holdfast-{os.getuid()}"


def places(settings: PathSettings, job: str, node: str) -> Places:
    """Places of this job and node."""
    return Places(shm=shm_root(settings) / job / node, state=state_root(settings) / job / node)
