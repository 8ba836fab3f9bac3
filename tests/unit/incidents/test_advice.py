from typing import Any

import pytest

from holdfast_sidecar.incidents.advice import advise
from holdfast_sidecar.incidents.explain import tell
from holdfast_sidecar.records.plan import Incident

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
        ("crash", "rank 1: ended by SIGABRT", "ranks differ in a collective"),
        ("crash", "rank 1: ended by SIGBUS", "df /dev/shm"),
        ("crash", "rank 1: RuntimeError: [enforce] op.preamble.length <= op.nbytes", "a tensor"),
        ("crash", "rank 1: left by exit code 0 at step 7 while others went on", "os._exit"),
        ("crash", "rank 1: ended by SIGTERM, not by Holdfast", "who sent the signal"),
        ("crash", "rank 1: exited with code 143", "who sent the signal"),
        ("crash", "rank 1: KeyboardInterrupt: ", "who sent the signal"),
        (
            "crash",
            "rank 1: RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed. ",
            "OOM killer",
        ),
        (
            "crash",
            "rank 1: RuntimeError: DataLoader worker (pid(s) 7, 8) exited unexpectedly",
            "df -h /dev/shm",
        ),
        (
            "crash",
            "rank 1: RuntimeError: DataLoader worker (pid 77) is killed by signal: Bus error. It "
            "is possible that dataloader's workers are out of shared memory.",
            "--shm-size",
        ),
        ("hang", "process 9 (pt_data_worker), which loads for it, was ended by signal 9", "OOM"),
        ("hang", "process 7 has been stopped (state T)", "`kill -CONT`"),
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


@pytest.mark.parametrize("end", ["ended by SIGKILL", "ended by SIGTERM", "exited with code 143"])
def test_who_was_ended_from_outside_left_no_traceback_to_read(end: str) -> None:
    assert not any("read the traceback" in line for line in advice("crash", f"rank 1: {end}"))


def test_of_a_stopped_process_and_of_a_dead_worker_no_line_of_the_script_is_to_blame() -> None:
    assert len(advice("hang", "process 7 has been stopped (state T)")) == 1
    assert len(advice("hang", "process 9, which loads for it, was ended by signal 9")) == 1
    assert len(advice("hang", "process 9, which loads for it, was ended by signal 11")) == 1


def test_a_kill_for_want_of_memory_is_not_called_a_riddle() -> None:
    assert not any("who sent it" in line for line in advice("crash", "SIGKILL, out of memory"))


def test_what_is_not_over_or_was_given_up_comes_first() -> None:
    waiting = {"recovered_unix_s": 0.0, "decided": ""}
    assert "not over yet" in advice("hang", **waiting)[0]
    assert "mend what is named" in advice("crash", recovered_unix_s=0.0, decided="stop")[0]
    assert "nothing is done by itself" in advice("hang", recovered_unix_s=0.0, decided="observe")[0]
    for cause in ("preempted", "stop"):
        assert "nothing is broken" in advice(cause, recovered_unix_s=0.0, decided="stop")[0]


@pytest.mark.parametrize(
    ("cause", "setting"),
    [
        ("hang", "modes.hang"),
        ("data_stall", "modes.stall"),
        ("gpu", "modes.gpu"),
        ("straggler", "modes.straggler"),
    ],
)
@pytest.mark.parametrize("mode", ["suggest", "observe"])
def test_what_was_withheld_names_the_setting_that_counts(
    cause: str, setting: str, mode: str
) -> None:
    """The fault's own mode stands above sidecar.mode, which may be act already."""
    assert f"set {setting}=act" in advice(cause, recovered_unix_s=0.0, decided=mode)[0]


def test_who_need_not_be_wrong_is_not_sent_to_its_traceback_or_to_newer_versions() -> None:
    for words in ("op.preamble.length <= op.nbytes", "ended by SIGABRT", "left by exit code 0"):
        assert not any("traceback" in line or "newest" in line for line in advice("crash", words))


def test_numbers_that_were_left_alone_ask_for_a_person_as_long_as_they_last() -> None:
    lasting = advice("nonfinite", decided="left_alone", recovered_unix_s=0.0)
    assert lasting[0].startswith("the job goes on with such numbers")
    passed = advice("nonfinite", decided="left_alone")
    assert not any("goes on" in line or "not over" in line for line in passed)
    watched = advice("nonfinite", decided="observe", recovered_unix_s=0.0)
    assert not any("end the rank" in line for line in watched)


def test_nobody_is_told_to_end_a_rank_because_it_is_slow() -> None:
    slow = advice("straggler", recovered_unix_s=0.0, decided="suggest")
    assert not any("end the rank" in line for line in slow)
    assert "holdfast nodes test" in slow[-1]


def test_a_guess_is_called_one() -> None:
    assert "may have lost a peer" in advice("crash", "rank 1: RuntimeError", confidence=0.5)[-1]
    assert "a guess" in advice("hang", confidence=0.4)[-1]
    assert not any("a guess" in line for line in advice("hang"))


def test_growing_asks_for_nothing() -> None:
    assert advice("grow") == []


def test_where_nothing_is_saved_no_checkpoint_is_to_be_looked_at() -> None:
    why = "it was left alone: there is no checkpoint directory, so nothing to go back to"
    given = advice("nonfinite", why, decided="left_alone", recovered_unix_s=0.0)
    assert not any("checkpoint list" in line for line in given)
    assert "look at the batch and the learning rate of that step" in given
