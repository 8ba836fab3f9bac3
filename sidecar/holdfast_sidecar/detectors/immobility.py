"""Whether a rank provably stands still: what it waits for will not come, as far as can be seen.

Silence, CPU time and the peers are judged in `stall`; here it is what the threads wait at.
"""

from __future__ import annotations

import math

from holdfast_sidecar.closer_look import Scrutiny
from holdfast_sidecar.linux.syscalls import Where
from holdfast_sidecar.observation import RankHistory, RankLook, Ranks

ENDLESS = {
    Where.LOCK: "waits for a lock that no other thread lets go",
    Where.SLEEP: "sleeps",
    Where.SIGNAL: "waits for a signal",
}
"""Waits that nothing outside the process ends. Whoever waits for a connection, a file, a pipe or a
child may only be slow: an upload, a cold read, a conversion."""


HELD = frozenset({"t", "T"})
"""States of a process that a debugger holds, or that was stopped: where it stands it was made to
stand."""

FROZEN = "D"
"""State of a process in a control group that is frozen, whatever call it is in (its v1, from Linux
6.1 on), and of one that waits for a device, or for storage."""


def is_held(look: RankLook) -> bool:
    """Whether somebody keeps it from going on, so that where its threads wait says nothing."""
    return look.process is not None and look.process.state in HELD


def proof_for(history: RankHistory, ranks: Ranks, patience_s: float) -> str:
    """The same as `proof_of_standing`, of a rank as it was looked at."""
    process = history.look.process
    if process is None or is_held(history.look) or process.state == FROZEN:
        return ""
    return proof_of_standing(ranks.scrutinies.get(history.look.rank), patience_s)


def proof_of_standing(scrutiny: Scrutiny | None, patience_s: float) -> str:
    """Why it will not go on by itself, in words; empty: that can't be said.

    patience_s: a wait with an end (a pause between two tries) counts only when that end lies
    further off than this.
    """
    if scrutiny is None or scrutiny.before is None or scrutiny.look.main is None:
        return ""
    wait = scrutiny.look.main
    ends = not math.isinf(wait.ends_unaided_s)
    if wait.where not in ENDLESS or (ends and wait.ends_unaided_s <= patience_s):
        return ""
    if scrutiny.stands_s <= 0 or not scrutiny.has_rested(patience_s):
        return ""
    text = f"its main thread {ENDLESS[wait.where]}"
    if ends:
        text += f" for {wait.ends_unaided_s:.0f} s more"
    return f"{text}, none of its other threads and children is at work"
