"""Healthy jobs that make no step for long, each in its own way: python working.py NAME."""

from __future__ import annotations

import contextlib
import http.server
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable

import odd
import torch
from torch import distributed

MIDDLE = odd.STEPS // 2


def on_one_rank(work: Callable[[float], None]) -> Callable[[int], None]:
    """In the middle rank 0 is busy, and the others already wait for it in a collective."""

    def between(step: int) -> None:
        if step == MIDDLE and odd.rank() == 0:
            work(odd.ODD_S)

    return between


def on_all_ranks(work: Callable[[float], None]) -> Callable[[int], None]:
    def between(step: int) -> None:
        if step == MIDDLE:
            work(odd.ODD_S)

    return between


def plain(between: Callable[[int], None] = lambda step: None) -> None:
    """The training that all of these are: `between` is what is odd about it."""
    odd.begin()
    model = odd.replicated(odd.network())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    odd.train(model, optimizer, between=between)
    odd.finish(model.module)


def nothing_odd() -> None:
    plain()


def rollouts() -> None:
    plain(on_one_rank(odd.compute))


def generate() -> None:
    """Forward passes alone, on all ranks, as `generate()` makes them."""
    model = odd.network(3)

    def sample(seconds: float) -> None:
        end_s = time.monotonic() + seconds
        with torch.no_grad():
            found = odd.batch(0)
            while time.monotonic() < end_s:
                found = model(found).tanh()

    plain(on_all_ranks(sample))


def long_evaluation() -> None:
    odd.begin()
    model = odd.replicated(odd.network())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def evaluate(step: int) -> None:
        if step % MIDDLE == MIDDLE - 1:
            model.eval()
            end_s = time.monotonic() + odd.ODD_S / 2
            with torch.no_grad():
                while time.monotonic() < end_s:
                    model.module(odd.batch(step))
            model.train()

    odd.train(model, optimizer, between=evaluate)
    odd.finish(model.module)


def first_step_late() -> None:
    """An index is built before the first step, on rank 0; the others wait in a barrier."""
    odd.begin()
    if odd.rank() == 0:
        odd.compute(odd.ODD_S)
    distributed.barrier()
    model = odd.replicated(odd.network())
    odd.train(model, torch.optim.SGD(model.parameters(), lr=1e-2))
    odd.finish(model.module)


def loads_slowly() -> None:
    """Weights that trickle in through a pipe before the first step, on every rank."""
    odd.begin()
    trickle(odd.ODD_S)
    model = odd.replicated(odd.network())
    odd.train(model, torch.optim.SGD(model.parameters(), lr=1e-2))
    odd.finish(model.module)


def trickle(seconds: float) -> None:
    program = (
        "import sys,time\nend=time.monotonic()+float(sys.argv[1])\nwhile time.monotonic()<end:\n"
    )
    program += " sys.stdout.write('x'*4096); sys.stdout.flush(); time.sleep(0.05)"
    with subprocess.Popen(
        [sys.executable, "-S", "-c", program, str(seconds)], stdout=subprocess.PIPE
    ) as source:
        assert source.stdout is not None
        while source.stdout.read(4096):
            pass


def sleeps_before_the_first_step() -> None:
    """Every rank waits for something without using anything: a licence, a lock, a data server."""
    odd.begin()
    time.sleep(odd.ODD_S)
    model = odd.replicated(odd.network())
    odd.train(model, torch.optim.SGD(model.parameters(), lr=1e-2))
    odd.finish(model.module)


def sleeps_together() -> None:
    plain(on_all_ranks(time.sleep))


def packs_in_children(seconds: float) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.apply(odd.compute, (seconds,))


def packing() -> None:
    plain(on_one_rank(packs_in_children))


def uploads_by_subprocess() -> None:
    def upload(seconds: float) -> None:
        program = "import sys,time\nend=time.monotonic()+float(sys.argv[1])\n"
        program += "while time.monotonic()<end: sum(range(10000)); time.sleep(0.01)"
        subprocess.run([sys.executable, "-S", "-c", program, str(seconds)], check=True)

    plain(on_one_rank(upload))


def uploads_by_thread() -> None:
    def upload(seconds: float) -> None:
        thread = threading.Thread(target=odd.compute, args=(seconds,))
        thread.start()
        thread.join()

    plain(on_one_rank(upload))


def uploads_over_http() -> None:
    """A slow server takes what rank 0 sends; nothing computes, but bytes move."""

    class Slow(http.server.BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            left = int(self.headers["Content-Length"])
            while left > 0:
                left -= len(self.rfile.read(min(left, 65_536)))
                time.sleep(odd.ODD_S / 100)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *words: object) -> None:
            del words

    def upload(seconds: float) -> None:
        del seconds
        server = http.server.HTTPServer(("127.0.0.1", 0), Slow)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/x"
        request = urllib.request.Request(url, data=b"x" * 6_553_600, method="PUT")
        with urllib.request.urlopen(request, timeout=600) as answer:
            answer.read()
        server.shutdown()

    plain(on_one_rank(upload))


def writes_slowly() -> None:
    """A checkpoint of its own, synced piece by piece by rank 0 while the others wait."""

    def write(seconds: float) -> None:
        end_s = time.monotonic() + seconds
        with (odd.OUT / "own-checkpoint").open("wb") as file:
            while time.monotonic() < end_s:
                file.write(os.urandom(262_144))
                file.flush()
                os.fsync(file.fileno())
                time.sleep(0.05)

    plain(on_one_rank(write))


def busy_by_name() -> None:
    """Rank 0 waits for a remote generator, motionless, and says so."""
    import holdfast

    named = getattr(holdfast, "busy", lambda name: contextlib.nullcontext())

    def ask(seconds: float) -> None:
        with named("rollout"):
            time.sleep(seconds)

    plain(on_one_rank(ask))


def long_steps() -> None:
    """Each step takes seconds."""
    odd.begin()
    model = odd.replicated(odd.network())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    steps = 6

    def between(step: int) -> None:
        del step
        odd.compute(odd.ODD_S / steps)

    odd.train(model, optimizer, steps=range(steps), between=between)
    odd.finish(model.module)


def uneven_steps() -> None:
    """Ever longer ones, by a factor of two."""
    plain(lambda step: odd.compute(min(odd.ODD_S / 2, 0.001 * 2 ** (step // 3))))


def no_optimizer() -> None:
    """Inference over many batches; there is nothing to step."""
    odd.begin()
    model = odd.network()
    total = torch.zeros(())
    with torch.no_grad():
        for step in range(odd.STEPS):
            total += model(odd.batch(step)).sum()
            odd.tell_step(step)
            if odd.IS_TIMED:
                odd.pause()
            else:
                time.sleep(odd.ODD_S / odd.STEPS)
    odd.finish(model, more=float(total))


def without_a_group() -> None:
    """Ranks that never meet: a sweep under one launcher."""
    os.environ.setdefault("MASTER_PORT", "0")
    with (odd.OUT / f"starts-{odd.rank()}").open("a") as starts:
        starts.write(f"{os.getpid()}\n")
    model = odd.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    odd.train(model, optimizer, between=on_one_rank(odd.compute))
    import json

    weights = [value.sum().item() for value in model.state_dict().values()]
    (odd.OUT / f"result-{odd.rank()}.json").write_text(json.dumps({"weights": weights}))


def own_signals() -> None:
    """A script with handlers, an alarm and children of its own."""
    import signal

    heard: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    signal.signal(signal.SIGALRM, lambda number, frame: heard.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)

    def between(step: int) -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        if step == MIDDLE:
            subprocess.run(["true"], check=True)

    odd.begin()
    model = odd.replicated(odd.network())
    odd.train(model, torch.optim.SGD(model.parameters(), lr=1e-2), between=between)
    signal.setitimer(signal.ITIMER_REAL, 0)
    odd.finish(model.module, more=heard.count(signal.SIGUSR1))


def forks_a_child_that_dies() -> None:
    """A helper process of rank 0 that is killed is no failure of the rank."""

    def fork(seconds: float) -> None:
        del seconds
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), 9)
        os.waitpid(child, 0)

    plain(on_one_rank(fork))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
