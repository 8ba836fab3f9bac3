"""Imports torch once and forks ranks from there, warm as a restart's are: for scripts of which how
torch is imported is not tested. It takes most of their CPU time otherwise.

One JSON line in: {"environment", "directory", "script", "out", "err", "code"}, of which the last
three are files. One line back: the pid. Once the rank has ended, its exit code is in the last file.
"""

import json
import os
import select
import sys
from pathlib import Path

import torch._dynamo  # noqa: F401 - an optimizer's first step, and DDP, would import it

from holdfast_sidecar.launcher import warm_interpreter

REQUESTS, ANSWERS = 0, 1


def become(request):
    """The child is the rank from here on."""
    streams = [os.open(os.devnull, os.O_RDONLY)]
    streams += [os.open(request[name], os.O_WRONLY | os.O_CREAT) for name in ("out", "err")]
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    sys.path[0] = request["directory"]
    from holdfast.rank import attachment

    attachment.arm()


def await_orders():
    """Fork until nobody asks any more; a rank returns what it is to run."""
    poll, unread = select.poll(), b""
    living: dict[int, tuple[int, str]] = {}
    poll.register(REQUESTS, select.POLLIN)
    while True:
        for handle, _ in poll.poll():
            if handle != REQUESTS:
                poll.unregister(handle)
                note_end(handle, *living.pop(handle))
                continue
            given = os.read(REQUESTS, 1 << 16)
            if not given:
                os._exit(0)
            *lines, unread = (unread + given).split(b"\n")
            for request in map(json.loads, lines):
                if (pid := os.fork()) == 0:
                    become(request)
                    return request["script"]
                handle = os.pidfd_open(pid)
                living[handle] = pid, request["code"]
                poll.register(handle, select.POLLIN)
                os.write(ANSWERS, f"{pid}\n".encode())


def note_end(handle, pid, path):
    """Whole from the moment it is there."""
    os.close(handle)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    partial = Path(f"{path}.partial")
    partial.write_text(str(code))
    partial.rename(path)


# Outside of any function, so that a script's own end is that of the interpreter.
warm_interpreter.run([await_orders()])
