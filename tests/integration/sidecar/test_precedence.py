"""Who watches is heard soon, and its working children take their turn like anybody else."""

from __future__ import annotations

import subprocess
import sys

import pytest

SHOW = """
import os, sys, threading
from pathlib import Path
from holdfast_sidecar.linux import threads

AUTOGROUP, SCHED = Path("/proc/self/autogroup"), Path("/proc/self/sched")

def show():
    # Empty for a process in the root group, where nothing is dealt out by sessions.
    told = AUTOGROUP.read_text().split() if AUTOGROUP.exists() else []
    group = told[-1] if told else "-"
    lines = SCHED.read_text().splitlines() if SCHED.exists() else []
    share = [line.split()[-1] for line in lines if line.startswith("se.slice")]
    print(os.getpriority(os.PRIO_PROCESS, 0), group, *share)

if "nobody" in sys.argv and os.geteuid() == 0:
    os.setuid(65534)
show()
threads.take()
thread = threading.Thread(target=show)
thread.start()
thread.join()
threads.give_back()
show()
"""

REFUSED = (
    subprocess.run(
        [sys.executable, "-c", "import os; os.setpriority(os.PRIO_PROCESS, 0, -10)"],
        stderr=subprocess.DEVNULL,
        check=False,
    ).returncode
    != 0
)


def told(*arguments: str, leads_session: bool = True) -> list[list[str]]:
    """Niceness, that of the session, and the slice where the kernel shows it: before, of a thread
    after taking precedence, and after giving it back."""
    command = [sys.executable, "-c", SHOW, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, start_new_session=leads_session
    )
    return [line.split() for line in done.stdout.splitlines()]


@pytest.mark.skipif(REFUSED, reason="niceness below 0 is refused here")
def test_a_watcher_takes_precedence_with_all_it_starts_and_gives_it_back() -> None:
    before, taken, after = told()
    assert taken[0] == "-10"
    assert taken[1] in ("-10", "-")
    assert after == before


def test_what_the_kernel_refuses_is_left_as_it_is() -> None:
    before, taken, after = told("nobody")
    assert taken[:2] == before[:2]
    assert after == before


def test_the_session_of_somebody_else_keeps_its_share() -> None:
    before, taken, _ = told(leads_session=False)
    assert taken[1] == before[1]
