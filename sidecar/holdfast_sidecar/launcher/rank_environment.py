"""What a rank finds in its environment beside torchrun's own variables: pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast import environment as names
from holdfast_sidecar.config.paths import Places
from holdfast_sidecar.config.settings import CheckpointSettings, SnapshotSettings
from holdfast_sidecar.records.plan import BatchSkip, Candidate

SHARED_STORE_OFF = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"


@dataclass(frozen=True)
class RankContext:
    """The attempt a rank is started for."""

    job: str
    node: str
    attempt: int
    epoch: int
    places: Places
    hooks_path: str
    """Directory whose sitecustomize attaches the hooks."""
    checkpoint_dir: str = ""
    checkpoint_key_file: str = ""
    checkpoint_write_timeout_s: float = CheckpointSettings.write_timeout_s
    resume: tuple[Candidate, ...] = ()
    skips: tuple[BatchSkip, ...] = ()
    takes_snapshots: bool = True
    flight_recorder: bool = True
    """Setting `stall.flight_recorder`."""
    holds_termination: bool = False
    """Whether ranks may survive SIGTERM: they are ended by another signal."""
    peer_copies: str = SnapshotSettings.peer
    """Setting `snapshot.peer`; `off` in an attempt that no other node takes part in."""
    peer_timeout_s: float = SnapshotSettings.peer_timeout_s


def rank_environment(environment: Mapping[str, str], context: RankContext) -> dict[str, str]:
    """The environment torch made, with ours added and what is no business of a rank removed."""
    hidden = {*names.NEVER_FOR_RANKS, names.CLAIMED, names.ATTACH}
    clean = {name: value for name, value in environment.items() if name not in hidden}
    clean.setdefault(SHARED_STORE_OFF, "1")
    return clean | holdfast_environment(context, environment.get("PYTHONPATH", ""))


def holdfast_environment(context: RankContext, python_path: str) -> dict[str, str]:
    """The variables of ours alone. `python_path` is the PYTHONPATH there was."""
    # An empty entry means the current directory, so none may be added.
    entries = [entry for entry in python_path.split(":") if entry != context.hooks_path]
    kept = ":".join(entries)
    ours = {
        names.JOB: context.job,
        names.NODE: context.node,
        names.ATTEMPT: str(context.attempt),
        names.EPOCH: str(context.epoch),
        names.PAGE_DIR: str(context.places.shm),
        names.EVIDENCE_DIR: str(context.places.evidence(context.attempt)),
        names.SNAPSHOTS: "1" if context.takes_snapshots else "0",
        names.FLIGHT_RECORDER: "1" if context.flight_recorder else "0",
        names.PEER_COPIES: context.peer_copies,
        names.PEER_TIMEOUT: f"{context.peer_timeout_s:g}",
        names.RESUME: json.dumps([dataclasses.asdict(c) for c in context.resume]),
        "PYTHONPATH": f"{context.hooks_path}:{kept}" if kept else context.hooks_path,
    }
    if context.skips:
        ours[names.SKIPS] = json.dumps([dataclasses.asdict(skip) for skip in context.skips])
    if context.holds_termination:
        ours[names.HOLDS_TERMINATION] = "1"
    if context.checkpoint_dir:
        ours[names.CHECKPOINT_DIR] = context.checkpoint_dir
        ours[names.CHECKPOINT_WRITE_TIMEOUT] = f"{context.checkpoint_write_timeout_s:g}"
    if context.checkpoint_key_file:
        ours[names.CHECKPOINT_KEY_FILE] = context.checkpoint_key_file
    return ours
