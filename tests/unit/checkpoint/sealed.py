"""Makes sealed checkpoints on disk, of a few bytes each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.contract.checkpoint_files import FolderMark, claim_folder
from holdfast.contract.page import checkpoint_name
from holdfast.contract.storage import LocalFolder
from holdfast_sidecar.checkpoint.manifest import Manifest, hash_files, list_files, write_manifest
from holdfast_sidecar.records.plan import Member

JOB = "tested"


def fill(
    root: Path, step: int, identifier: str, ranks: int = 2, job: str = JOB, attempt: int = 0
) -> Path:
    """Files as ranks leave them, without a manifest."""
    directory = root / checkpoint_name(step, identifier)
    claim_folder(LocalFolder(directory), FolderMark(job, attempt, step, identifier))
    for rank in range(ranks):
        (directory / f"__{rank}_own.pt").write_bytes(f"{identifier} of {rank}".encode())
    (directory / ".metadata").write_bytes(b"metadata")
    return directory


def seal(
    root: Path,
    step: int,
    identifier: str,
    parent: str = "",
    attempt: int = 0,
    key: bytes | None = None,
    **fields: Any,
) -> Path:
    """A sealed checkpoint; its age follows the step."""
    directory = fill(root, step, identifier, job=fields.get("job", JOB), attempt=attempt)
    folder = LocalFolder(directory)
    files = hash_files(folder, list_files(folder, [0, 1]))
    values: dict[str, Any] = {
        "identifier": identifier,
        "step": step,
        "attempt": attempt,
        "epoch": attempt + 1,
        "job": JOB,
        "parent": parent,
        "world_size": 2,
        "layout": [Member("a", "1", 0, 0, 2)],
        "files": files,
        "torch_version": "2.13.0",
        "created_unix_s": 1000.0 * attempt + step,
    }
    write_manifest(folder, Manifest(**{**values, **fields}), key)
    return directory
