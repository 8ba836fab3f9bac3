"""Page files without ranks, for tests of what reads and writes them."""

from __future__ import annotations

import os
import time
from pathlib import Path

from holdfast.contract import page
from holdfast.contract.identity import read_identity


def write_page(
    directory: Path,
    attempt: int = 0,
    local_rank: int = 0,
    pid: int | None = None,
    start_ticks: int | None = None,
    epoch: int = 1,
    claimed_ns: int | None = None,
    rank: int | None = None,
) -> Path:
    """A page claimed by this process (or by whoever is named)."""
    me = read_identity()
    assert me is not None
    identity = page.Identity(
        pid=me.pid if pid is None else pid,
        start_ticks=me.start_ticks if start_ticks is None else start_ticks,
        attempt=attempt,
        epoch=epoch,
        rank=local_rank if rank is None else rank,
        local_rank=local_rank,
        world_size=2,
        claimed_ns=time.monotonic_ns() if claimed_ns is None else claimed_ns,
        node="a",
        job="job",
    )
    path = directory / page.page_name(attempt, local_rank)
    content = bytearray(page.PAGE_SIZE)
    zone = page.pack_identity(identity)
    content[: len(zone)] = zone
    path.write_bytes(content)
    return path


def publish(path: Path, index: int, record: page.Record) -> None:
    """Put a record into the ring and count it, as the hooks do."""
    with path.open("r+b") as file:
        file.seek(page.RING_OFFSET + index % page.RING_CAPACITY * page.RECORD_SIZE)
        file.write(page.pack_record(record))
    set_word(path, page.Word.PUBLISHED, index + 1)


def set_word(path: Path, word: page.Word, value: int) -> None:
    """Store a word."""
    with path.open("r+b") as file:
        file.seek(page.WORDS_OFFSET + 8 * word)
        file.write(value.to_bytes(8, "little"))


NOBODY = 2**22 - 7
"""A pid beyond what a machine under test hands out."""

assert not Path(f"/proc/{NOBODY}").exists() or os.getpid() == NOBODY
