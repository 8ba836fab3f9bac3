"""What befalls the made-up run: a hot node, a stuttering input, a crash, a hang."""

from __future__ import annotations

import random

STEP_S = 30
LASTS_S = 6 * 3600
A_NODE = 8
COMMUNICATION_S = 0.03

HOT_NODE, HOT_S = 5, (1.4 * 3600, 2.4 * 3600)
STUTTERS, STUTTERS_S = 19, (3.9 * 3600, 4.6 * 3600)
HANGS, HANGS_FROM_S = 42, 5.0 * 3600 - 90
RESTARTS = ((3.2 * 3600, 150, "crash", "node-1"), (5.0 * 3600, 95, "hang", "node-5"))
"""When, for how long, why, and the machine that is blamed."""
LOST_S = 210.0
"""Training that each of them made worthless."""


def chance(*about: object) -> random.Random:
    """The same every time that it is asked about the same."""
    return random.Random(repr(about))


def own_s(rank: int, at_s: float) -> float:
    """What the rank needs by itself for a step."""
    own = 0.40 * (1 + 0.006 * chance(rank, at_s).gauss(0, 1) + 0.01 * (rank % 3))
    if rank // A_NODE == HOT_NODE and HOT_S[0] < at_s < HOT_S[1]:
        own *= 1.38 if rank % 2 else 1.30
    if rank == STUTTERS and STUTTERS_S[0] < at_s < STUTTERS_S[1] and int(at_s / 120) % 3 == 0:
        own *= 1.32
    return own


def restarts(at_s: float) -> bool:
    """Whether the ranks are ended, or starting."""
    return any(begin <= at_s < begin + took for begin, took, *_ in RESTARTS)


def hangs(at_s: float) -> bool:
    """Whether one rank stands still and nobody has noticed yet."""
    return HANGS_FROM_S <= at_s < RESTARTS[1][0]


def phase(rank: int, at_s: float, step_s: float) -> int:
    """The rank page's number of what it is doing at this moment."""
    if restarts(at_s):
        return 0 if chance("start", at_s).random() < 0.4 else 1
    if hangs(at_s):
        return 3 if rank == HANGS else 6
    drawn = chance("phase", rank, at_s).random()
    if drawn < 1 - own_s(rank, at_s) / step_s:
        return 6
    return 3 if drawn > 0.97 else 7 if drawn > 0.93 else 5 if drawn > 0.35 else 4


def category(at_s: float) -> str:
    """What this moment of the wall clock counts as."""
    if at_s < 240:
        return "init" if at_s < 90 else "compiling"
    if restarts(at_s):
        return "restart"
    if hangs(at_s):
        return "hang_undetected"
    drawn = chance("category", at_s).random()
    if HOT_S[0] < at_s < HOT_S[1] and drawn < 0.24:
        return "straggler"
    return "saving" if at_s % 900 < STEP_S else "data_wait" if drawn > 0.965 else "productive"
