"""A training process whose steps are traced on request and not, in turn; prints their times."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator

import torch

from bench.stepped_model import make_model
from holdfast.contract import page
from holdfast.contract.page import Order, OrderKind, ReplyState
from holdfast.rank import attachment, process
from holdfast.recording.recorder import Recorder

WARM_UP_STEPS = 50
FAR_NS = 2**62
PATIENCE_S = 20.0


def write_order(recorder: Recorder, sequence: int, step: int, steps: int) -> str:
    """As the sidecar writes it, into this process's own page."""
    identifier = f"t{sequence}"
    order = Order(OrderKind.TRACE, recorder.attempt, 0, step, FAR_NS, identifier, every=steps)
    body, word = page.pack_order(order, sequence)
    start = page.order_offset(OrderKind.TRACE)
    memory = recorder._memory
    memory[start + 8 : start + 8 + len(body)] = body
    memory[start : start + 8] = word
    return identifier


def reply_to(recorder: Recorder, identifier: str) -> page.Reply:
    """What came of it, once its file is there."""
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        reply = page.parse_reply(bytes(recorder._memory), OrderKind.TRACE)
        if reply is not None and reply.identifier == identifier:
            if reply.state == ReplyState.SAVED:
                return reply
            if reply.state in (ReplyState.FAILED, ReplyState.VOID, ReplyState.MISSED):
                break
        time.sleep(0.001)
    raise SystemExit(f"no trace: {reply}")


def make_steps() -> Iterator[int]:
    """How long each step took, nanoseconds: of the model that `bench launch` steps as well."""
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    inputs = torch.randn(32, 256)
    while True:
        started_ns = time.perf_counter_ns()
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield time.perf_counter_ns() - started_ns


def main(pairs: int, steps: int) -> None:
    attachment.arm()
    recorder = process.current()
    if recorder is None:
        raise SystemExit("the hooks did not attach")
    stepping = make_steps()
    for _ in range(WARM_UP_STEPS):
        next(stepping)
    told = []
    for pair in range(pairs):
        begins = recorder.word(page.Word.STEP) + 3
        identifier = write_order(recorder, pair + 1, begins, steps)
        # The boundary lies at the end of a step: what is done there counts to the step before.
        around = [next(stepping) for _ in range(3)]
        traced = [next(stepping) for _ in range(steps)]
        stopped_ns = time.perf_counter_ns()
        reply = reply_to(recorder, identifier)
        file_ns = time.perf_counter_ns() - stopped_ns
        for _ in range(3):
            next(stepping)
        plain = [next(stepping) for _ in range(steps)]
        told.append(
            {
                "traced_ns": traced[:-1],  # in the last of them it was ended
                "plain_ns": plain[:-1],
                "warm_up_step_ns": around[1],
                "stood_ns": reply.duration_ns,
                "file_ns": file_ns,
                "bytes": reply.size_bytes,
            }
        )
    print(json.dumps(told))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
