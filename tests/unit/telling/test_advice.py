from typing import Any

import pytest

from holdfast_sidecar.advice import advise
from holdfast_sidecar.coordination.reports import Incident
from holdfast_sidecar.story import tell

OVER = {"decided": "restart", "recovered_unix_s": 12.0, "step_resumed": 4}


def advice(cause: str, *evidence: str, **given: Any) -> list[str]:
    facts: dict[str, Any] = {"confidence": 0.9, "detected_unix_s": 10.0, **OVER, **given}
    return advise(tell(Incident("x", 0, cause, "a", [1], evidence=list(evidence), **facts)))


@pytest.mark.parametrize(
    ("cause", "evidence", "says"),
    [
        ("crash", "rank 1: ValueError: boom", "read the traceback"),
        ("crash", "rank 1: ended by SIGKILL", "ask who sent it"),
        ("crash", "rank 1: ended by SIGKILL by the OOM killer", "more memory"),
        ("crash", "rank 1: ended by SIGSEGV", "fatal-local-N.txt"),
        ("hang", "process 7 has been stopped (state T)", "who stopped the process"),
        ("hang", "rank 1 in forward", "read the stack"),
        (
            "hang",
            "process 9 (pt_data_worker), which loads for it, exited with code 1",
            "worker died",
        ),
        ("hang", "rank 1 entered barrier as no. 7 of group 0, where", "different ways"),
        ("hang", "rank 1 ended without having entered it", "different ways"),
        ("stall", "every member has entered all_reduce", "network between them"),
        ("stall", "rank 1 in idle", "stall.act_after_s"),
        ("data_stall", "rank 1 in data", "storage that the loader reads from"),
        ("node_lost", "", "look at the node itself"),
        ("preempted", "", "nothing is broken"),
        ("nonfinite", "", "holdfast checkpoint list"),
    ],
)
def test_each_cause_has_a_next_step(cause: str, evidence: str, says: str) -> None:
    assert any(says in line for line in advice(cause, evidence))


def test_who_was_killed_left_no_traceback_to_read() -> None:
    assert not any("traceback" in line for line in advice("crash", "rank 1: ended by SIGKILL"))


def test_a_kill_for_want_of_memory_is_not_called_a_riddle() -> None:
    assert not any("who sent it" in line for line in advice("crash", "SIGKILL, out of memory"))


def test_what_is_not_over_or_was_given_up_comes_first() -> None:
    waiting = {"recovered_unix_s": 0.0, "decided": ""}
    assert "not over yet" in advice("hang", **waiting)[0]
    assert "mend what is named" in advice("crash", recovered_unix_s=0.0, decided="stop")[0]
    assert "nothing is done by itself" in advice("hang", recovered_unix_s=0.0, decided="observe")[0]
    for cause in ("preempted", "stop"):
        assert "nothing is broken" in advice(cause, recovered_unix_s=0.0, decided="stop")[0]


def test_a_guess_is_called_one() -> None:
    assert "a guess" in advice("hang", confidence=0.4)[-1]
    assert not any("a guess" in line for line in advice("hang"))


def test_growing_asks_for_nothing() -> None:
    assert advice("grow") == []
