"""`python -m holdfast_sidecar.checkpoint.writer`: answers a sidecar's questions about storage.

It dies with the sidecar, leaves by itself when nobody has asked for a while, and writes what is
long in a thread that gives way to everyone else on the machine.
"""

from __future__ import annotations

import logging
import os
import select
import sys
import threading
from io import FileIO

from holdfast_sidecar.checkpoint.writer.queue import LineWriter, RequestQueue
from holdfast_sidecar.checkpoint.writer.requests import WriterSetup, read_question
from holdfast_sidecar.checkpoint.writer.service import Answering
from holdfast_sidecar.linux import threads
from holdfast_sidecar.linux.process import die_with
from holdfast_sidecar.linux.threads import Session
from holdfast_sidecar.records.codec import decode

IDLE_S = 60.0
"""Longer than the pause between two questions of one incident; then its memory is free again."""


def main() -> int:
    """Serve until the sidecar is gone or nobody has asked for IDLE_S."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    # Whatever a library prints must not end up among the answers.
    mouth = LineWriter(os.fdopen(os.dup(sys.stdout.fileno()), "w"))
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    stdin = os.fdopen(sys.stdin.fileno(), "rb", buffering=0)
    errand = decode(WriterSetup, stdin.readline().decode())
    if errand is None:
        print("the writer is started by a sidecar, which tells it what for", file=sys.stderr)
        return 2
    die_with(errand.asker_pid)
    threads.give_back()
    answering = Answering(errand.job, errand.settings)
    threading.excepthook = _end_with_it
    session = Session()
    lanes = {is_long: RequestQueue(answering, mouth, session) for is_long in (False, True)}
    for lane in lanes.values():
        threading.Thread(target=lane.run, name="lane", daemon=True).start()
    _serve(lanes, stdin)
    # Not by way of the interpreter's own end: what hangs in storage would be waited for.
    os._exit(0)


def _serve(lanes: dict[bool, RequestQueue], stdin: FileIO) -> None:
    buffer = b""
    while True:
        is_readable, _, _ = select.select([stdin], [], [], IDLE_S)
        if not is_readable:
            if all(lane.is_idle for lane in lanes.values()):
                return
            continue
        chunk = os.read(stdin.fileno(), 1 << 20)
        if not chunk:
            return  # the sidecar is gone; nobody would seal what is being written
        *lines, buffer = (buffer + chunk).split(b"\n")
        for line in lines:
            number, question = read_question(line.decode())
            lanes[question.is_long].take(number, question)


def _end_with_it(error: threading.ExceptHookArgs) -> None:
    """An error of ours: the sidecar hears that its writer ended, rather than nothing for long."""
    sys.excepthook(error.exc_type, error.exc_value or error.exc_type(), error.exc_traceback)
    os._exit(70)


if __name__ == "__main__":
    sys.exit(main())
