"""A rank without torch: claims a page and makes steps, or sticks in a phase, as it is told."""

from __future__ import annotations

import argparse
import faulthandler
import os
import signal
import subprocess
import sys
import time

from holdfast.contract.identity import read_identity
from holdfast.contract.page import (
    STACKS_SIGNAL,
    Ending,
    Flag,
    Identity,
    OrderKind,
    Phase,
    Reply,
    ReplyState,
)
from holdfast.rank import death_watch
from holdfast.rank.claim import claim
from holdfast.recording.recorder import Recorder

STEP = (Phase.DATA, Phase.FORWARD, Phase.BACKWARD, Phase.COMMUNICATING, Phase.OPTIMIZER)


def main() -> None:
    given = arguments()
    me = read_identity()
    assert me is not None
    identity = Identity(
        pid=me.pid,
        start_ticks=me.start_ticks,
        attempt=given.attempt,
        epoch=given.epoch,
        rank=given.rank,
        local_rank=given.rank,
        world_size=given.world_size,
        claimed_ns=time.monotonic_ns(),
        node=given.node,
        job=given.job,
    )
    page = claim(given.page_dir, identity)
    assert page is not None
    if given.evidence_dir:
        os.makedirs(given.evidence_dir, exist_ok=True)
        stacks = open(f"{given.evidence_dir}/stack-local-{given.rank}.txt", "a")  # noqa: SIM115
        faulthandler.register(STACKS_SIGNAL, file=stacks, all_threads=True, chain=False)
    if given.with_worker:
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    if given.say:
        print(given.say, flush=True)
    recorder = Recorder(page.memory, given.attempt)
    assert death_watch.hold(page.descriptor, recorder)
    signal.signal(signal.SIGUSR1, starve)
    signal.signal(signal.SIGUSR2, lambda *_: sys.exit(3))
    signal.signal(signal.SIGHUP, lambda *_: fail(recorder))
    recorder.add_flag(Flag.STATE_REGISTERED)
    for step in range(1, given.steps + 1):
        obey(recorder, step)
        for phase in STEP:
            recorder.enter(phase)
            if step == given.stick_at and phase is Phase[given.stick_in]:
                time.sleep(600)
            time.sleep(given.step_s / len(STEP))
        recorder.report_loss(float("nan") if step == given.nan_at else 1.0 / step)
        recorder.end_step(step)
        if step == given.raise_at:
            fail(recorder)
    recorder.finish(Ending.FINISHED)


def fail(recorder: Recorder) -> None:
    """End as by an exception."""
    recorder.say({"type": "ValueError", "message": "planted"})
    recorder.finish(Ending.EXCEPTION)
    sys.exit(1)


def starve(*_: object) -> None:
    """Take memory until somebody ends this."""
    taken = []
    while True:
        taken.append(b"\1" * (1 << 20))


def obey(recorder: Recorder, step: int) -> None:
    order = recorder.order(OrderKind.CHECKPOINT)
    if order is not None and order.step == step:
        recorder.reply(Reply(ReplyState.SAVED, step, 0, 0, order.identifier))
    if recorder.order(OrderKind.STOP) is not None:
        recorder.finish(Ending.FINISHED)
        sys.exit(0)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--page-dir", required=True)
    parser.add_argument("--evidence-dir", default="")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--world-size", type=int, default=1)
    parser.add_argument("--attempt", type=int, default=0)
    parser.add_argument("--epoch", type=int, default=1)
    parser.add_argument("--node", default="a")
    parser.add_argument("--job", default="job")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--step-s", type=float, default=0.02)
    parser.add_argument("--stick-at", type=int, default=0)
    parser.add_argument("--stick-in", default="FORWARD")
    parser.add_argument("--nan-at", type=int, default=0)
    parser.add_argument("--raise-at", type=int, default=0)
    parser.add_argument("--with-worker", action="store_true")
    parser.add_argument("--say", default="")
    parser.add_argument("--api-key", default="")
    return parser.parse_args()


if __name__ == "__main__":
    main()
