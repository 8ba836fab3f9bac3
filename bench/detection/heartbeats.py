"""Whether living nodes are ever called lost: on a virtual clock, and with real sidecars."""

from __future__ import annotations

import os
import random
import signal
import time
from functools import partial

from bench.benchmark import Sample, Task
from bench.detection.company import Company, Load, sleep_until
from bench.detection.presence_names import HEARTBEATS, REAL, SIMULATED
from bench.detection.simulated_heartbeats import Weather, simulate

BEATS = 1_000_000
QUICK_BEATS = 200_000
SIDECARS = 16
LONGEST_PAUSE_S = 0.5
MINUTES = 10.0
QUICK_MINUTES = 0.5
BETWEEN_PAUSES_S = 0.4


def tasks(quick: bool) -> list[Task]:
    """A million simulated heartbeats; then 16 sidecars under load, standing still in turn."""
    return [
        Task(
            HEARTBEATS,
            f"{HEARTBEATS}/{SIMULATED}",
            partial(simulated, QUICK_BEATS if quick else BEATS),
        ),
        Task(
            HEARTBEATS,
            f"{HEARTBEATS}/{REAL}",
            partial(real, SIDECARS, 60 * (QUICK_MINUTES if quick else MINUTES)),
        ),
    ]


def simulated(beats: int) -> list[Sample]:
    """One run of the simulation."""
    return [{"what": SIMULATED, **simulate(Weather(beats), seed=1)}]


def real(sidecars: int, seconds: float) -> list[Sample]:
    """All nodes run one attempt; every core is busy, and somebody always stands still."""
    chance = random.Random(1)
    with Company(sidecars) as company:
        nodes = [f"n{index}" for index in range(sidecars)]
        for node in nodes:
            company.start(node)
        plan = company.wait_running(180)
        lease = company.view().lease
        quiet = len(company.log_lines(*ALARM_WORDS))
        with Load(os.cpu_count() or 1):
            paused, longest_s = _pause_some(company, nodes, seconds, chance)
        time.sleep(2 * LONGEST_PAUSE_S)
        after = company.view().lease
        alarms = company.log_lines(*ALARM_WORDS)[quiet:]
        now = company.plan()
        is_same = now is not None and (now.attempt, now.state) == (plan.attempt, "running")
        return [
            {
                "what": REAL,
                "sidecars": sidecars,
                "seconds": seconds,
                "pauses": paused,
                "longest_pause_s": round(longest_s, 3),
                "false_alarms": len(alarms) + (not is_same),
                "leaders_deposed": after.epoch - lease.epoch,
            }
        ]


ALARM_WORDS = ("found node_lost", "found sidecar_lost", "started again")


def _pause_some(
    company: Company, nodes: list[str], seconds: float, chance: random.Random
) -> tuple[int, float]:
    """SIGSTOP for half a second at most, one node after the other; how many, and the longest."""
    end_s, paused, longest_s = time.monotonic() + seconds, 0, 0.0
    while time.monotonic() < end_s:
        node = chance.choice(nodes)
        pause_s = LONGEST_PAUSE_S * chance.random()
        stopped_s = time.monotonic()
        company.signal_node(node, signal.SIGSTOP)
        sleep_until(stopped_s + pause_s)
        company.signal_node(node, signal.SIGCONT)
        paused, longest_s = paused + 1, max(longest_s, time.monotonic() - stopped_s)
        time.sleep(BETWEEN_PAUSES_S * chance.random())
    return paused, longest_s
