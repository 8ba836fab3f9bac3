"""Imports torch once and forks ranks from there: importing it for every rank takes most of a test.

One JSON line in: a list of {"environment", "config", "out", "log"}; one line back: exit codes.
"""

import json
import os
import signal
import sys
import time
import traceback

from tests.integration.checkpoints.training import train


def be_rank(rank):
    """The child's life."""
    code = 1
    try:
        for path, descriptor in ((rank["out"], 1), (rank["log"], 2)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), descriptor)
        os.environ.update(rank["environment"])
        train(rank["config"])
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # gloo's teardown is not what is tested


def await_all(pids, timeout_s):
    """Exit codes; whoever is still there at the deadline is killed and counts as None."""
    codes: dict[int, int | None] = {}
    end_s = time.monotonic() + timeout_s
    while len(codes) < len(pids):
        for pid in pids:
            if pid not in codes:
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    codes[pid] = os.waitstatus_to_exitcode(status)
                elif time.monotonic() > end_s:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                    codes[pid] = None
        time.sleep(0.01)
    return [codes[pid] for pid in pids]


def start(rank):
    pid = os.fork()
    if pid == 0:
        be_rank(rank)
    return pid


for line in sys.stdin:
    request = json.loads(line)
    pids = [start(rank) for rank in request["ranks"]]
    print(json.dumps(await_all(pids, request["timeout_s"])), flush=True)
