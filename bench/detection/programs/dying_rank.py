"""A rank without torch that holds so much memory and waits to be killed: page, mutex, no steps."""

from __future__ import annotations

import mmap
import sys
import time

from holdfast.contract.identity import read_identity
from holdfast.contract.page import Identity
from holdfast.rank import death_watch
from holdfast.rank.claim import claim
from holdfast.recording.recorder import Recorder

MEBIBYTE = 1 << 20


def main(directory: str, attempt: int, mebibytes: int) -> None:
    """Says `ready` once the memory is there, every page of it touched."""
    me = read_identity()
    assert me is not None
    identity = Identity(
        pid=me.pid,
        start_ticks=me.start_ticks,
        attempt=attempt,
        epoch=1,
        rank=0,
        local_rank=0,
        world_size=1,
        claimed_ns=time.monotonic_ns(),
        node="a",
        job="bench",
    )
    memory = mmap.mmap(-1, mebibytes * MEBIBYTE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for _ in range(mebibytes):
        memory.write(b"\1" * MEBIBYTE)
    page = claim(directory, identity)
    assert page is not None
    assert death_watch.hold(page.descriptor, Recorder(page.memory, attempt))
    print("ready", flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
