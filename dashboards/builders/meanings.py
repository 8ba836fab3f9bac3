"""Numbers that stand for something: the job's states, the ranks' phases, yes and no."""

from __future__ import annotations

from builders.colours import BAD, BLUE, GOOD, GREY, PHASES, WATCH
from builders.names import Json
from builders.panel import spelled
from builders.selecting import of_run

STATES = ("running", "evidence", "ended", "done", "stopped")
"""In the catalogue's order; each is told as its place here, from 1 on."""

STATE_WORDS: Json = spelled(
    {
        1: ("training", GOOD),
        2: ("keeping evidence", WATCH),
        3: ("restarting", WATCH),
        4: ("done", BLUE),
        5: ("stopped", BAD),
    }
)

PHASE_WORDS: Json = spelled(PHASES)

YES_NO: Json = spelled({1: ("yes", GOOD), 0: ("no", BAD)})
NO_YES: Json = spelled({0: ("no", GOOD), 1: ("yes", BAD)})

PORT_STATES: Json = spelled(
    {
        1: ("down", BAD),
        2: ("initialising", WATCH),
        3: ("armed", WATCH),
        4: ("active", GOOD),
    }
)

RECOVERY_ACTIONS: Json = spelled(
    {
        0: ("none", GOOD),
        1: ("reset", BAD),
        2: ("reboot", BAD),
        3: ("drain P2P", BAD),
        4: ("drain, reset", BAD),
        5: ("IMEX domain", BAD),
        6: ("bus reset", BAD),
        7: ("system reboot", BAD),
    }
)

GREY_ZERO: Json = spelled({0: ("0", GREY)})


def state_number() -> str:
    """The state of each run as one number: exactly one of the states is 1."""
    told = [
        f"max by (cluster, run) ({of_run('holdfast_job_state', f'state={quoted(state)}')})"
        for state in STATES
    ]
    return " + ".join(f"{place} * {one}" for place, one in enumerate(told, 1))


def quoted(text: str) -> str:
    """As a matcher's value stands."""
    return f'"{text}"'
