"""A sidecar that notes every order it writes, and at a write that it is told of dies, or waits.

In the directory STRIKE_DIR: `strike` holds the number of writes still to come and what to do after
the last of them, `die` or `wait`; `fell` is left when it did; `go-on` ends the waiting.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from holdfast_sidecar.store import connection
from holdfast_sidecar.store.protocol import Lease, Section
from holdfast_sidecar.store.redis_store import RedisStore

FOLDER = Path(os.environ["STRIKE_DIR"])


class StruckStore(RedisStore):
    """The real store, and what is told above."""

    def order(
        self, lease: Lease, section: Section, field: str, value: str | None, expected: str | None
    ) -> bool:
        done = super().order(lease, section, field, value, expected)
        if done:
            note(lease, section, value)
            strike()
        return done


def note(lease: Lease, section: Section, value: str | None) -> None:
    """One line, whole or not at all."""
    line = json.dumps([lease.epoch, lease.candidate, section.value, value, time.time()])
    out = os.open(FOLDER / "orders", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(out, line.encode() + b"\n")
    os.close(out)


def strike() -> None:
    try:
        count, what = (FOLDER / "strike").read_text().split()
    except OSError:
        return
    if int(count) > 1:
        write("strike", f"{int(count) - 1} {what}")
        return
    (FOLDER / "strike").unlink()
    write("fell", str(os.getpid()))
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    while not (FOLDER / "go-on").exists():
        time.sleep(0.01)


def write(name: str, text: str) -> None:
    new = FOLDER / f".{name}"
    new.write_text(text)
    new.rename(FOLDER / name)


if __name__ == "__main__":
    connection.RedisStore = StruckStore  # type: ignore[attr-defined]
    from holdfast_sidecar.cli.main import main

    main()
