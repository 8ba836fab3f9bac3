"""A real writer on storage with a trouble: `slow`, `hanging` or `idle`, given as its argument."""

import sys
import time

from holdfast.contract.storage import LocalFolder
from holdfast_sidecar.checkpoint.writer import __main__, shards


def be_slow() -> None:
    """Every large piece takes a while, as on a file server that many share."""
    write = shards._Hashing.write

    def slow(self, data):
        if len(data) > 1 << 15:
            time.sleep(0.3)
        return write(self, data)

    shards._Hashing.write = slow  # type: ignore[method-assign]


def hang() -> None:
    """Looking into a directory never ends, as on a mount whose server is away."""

    def never(self):
        time.sleep(3600)

    LocalFolder.children = never  # type: ignore[method-assign]


def leave_soon() -> None:
    __main__.IDLE_S = 0.3


{"slow": be_slow, "hanging": hang, "idle": leave_soon}[sys.argv[1]]()
__main__.main()
