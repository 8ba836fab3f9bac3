"""What is the same failure, and what is none of the program."""

from __future__ import annotations

import dataclasses
import signal

import pytest

from holdfast_sidecar.config.settings import PolicySettings
from holdfast_sidecar.policy import budget
from holdfast_sidecar.policy.blame import Blame, find_culprit
from holdfast_sidecar.policy.signature import are_alike, in_words, sign
from holdfast_sidecar.records.plan import Incident
from holdfast_sidecar.records.reports import Exit

LOST = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed"
UNLIKE = (
    "RuntimeError: [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:464] "
    "op.preamble.length <= op.nbytes. 32 vs 16. "
)


def ended(code: int, message: str = "", step: int = 4, gloo: bool = True, rank: int = 0) -> Exit:
    return Exit(rank, rank, 1, code, 0.0, 0, message, step, is_gloo_alone=gloo)


def signed(exit_: Exit) -> str:
    return sign(Blame("n", exit_.rank, exit_, 0.9))


@pytest.mark.parametrize(
    ("exit_", "signature"),
    [
        (ended(1, "ValueError: sample 17 at 0x7f00"), "ValueError: sample # at # at step 4"),
        (
            ended(1, "TypeError: no argument 'timeout'"),
            "TypeError: no argument 'timeout' at step 4",
        ),
        (ended(-signal.SIGSEGV), "ended by SIGSEGV at step 4"),
        (ended(-signal.SIGABRT), "ended by SIGABRT at step 4"),
        (ended(1, UNLIKE), "ranks differ in a collective at step 4"),
        (ended(0), "left by exit code 0 while others went on at step 4"),
    ],
)
def test_a_failure_of_the_program_is_signed_by_its_cause_and_step(
    exit_: Exit, signature: str
) -> None:
    assert signed(exit_) == signature


@pytest.mark.parametrize(
    "exit_",
    [
        ended(-signal.SIGKILL),
        ended(-signal.SIGINT, "KeyboardInterrupt"),
        ended(1, "KeyboardInterrupt"),
        ended(-signal.SIGBUS),
        ended(1, "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
        ended(1, LOST),
        ended(1, "DistBackendError: NCCL error: remote process exited or network error"),
        ended(-signal.SIGABRT, gloo=False),
    ],
    ids=lambda exit_: f"{exit_.exit_code} {exit_.message}",
)
def test_what_a_machine_a_network_or_a_person_may_have_done_is_not_signed(exit_: Exit) -> None:
    assert signed(exit_) == ""


@pytest.mark.parametrize(
    ("reasons", "told"),
    [
        (["rank 0: ValueError: sample 17 at 0x7f00"], "ValueError: sample 17 at 0x7f00"),
        (
            ["process 9 exited with code 1", "last words: ValueError: sample 18 at 0x1"],
            "ValueError: sample 18 at 0x1",
        ),
        (["rank 1: RuntimeError: gloo"], "ValueError: sample # at #"),
        ([], "ValueError: sample # at #"),
    ],
)
def test_people_are_told_a_signature_with_the_numbers_that_it_forgets(
    reasons: list[str], told: str
) -> None:
    seen = Incident("i", 0, "crash", evidence=reasons)
    seen = dataclasses.replace(seen, signature="ValueError: sample # at # at step 4")
    assert in_words(seen) == f"{told} at step 4"
    assert verdict_after([seen], seen) == f"the same failure 2 times: {told} at step 4"


def verdict_after(earlier: list[Incident], incident: Incident) -> str:
    """Why the job is stopped as one that can't be helped; empty: it is started again."""
    done = [dataclasses.replace(one, decided="restart") for one in earlier]
    verdict = budget.decide(incident, done, len(done), -1, PolicySettings(), 0)
    if isinstance(verdict, budget.Restart):
        return ""
    assert verdict.exit_code == budget.EXIT_DO_NOT_REQUEUE
    return verdict.message


def incident_of(*exits: Exit) -> Incident:
    blame = find_culprit(("n", exit_) for exit_ in exits)
    assert blame is not None
    return Incident(
        "i", 0, "crash", "n", [blame.rank], evidence=[blame.exit.message], signature=sign(blame)
    )


ABORTED, VICTIM = -signal.SIGABRT, 1


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        (
            [ended(ABORTED, rank=0), ended(VICTIM, LOST, rank=1)],
            [ended(VICTIM, LOST, rank=0), ended(ABORTED, rank=1, step=5)],
            True,
        ),
        ([ended(1, UNLIKE, rank=0)], [ended(1, f"{UNLIKE}!", rank=1, step=3)], True),
        ([ended(ABORTED)], [ended(ABORTED, step=6)], False),
        ([ended(1, "ValueError: bad")], [ended(1, "ValueError: bad", step=5)], False),
        ([ended(ABORTED, gloo=False)], [ended(ABORTED, gloo=False)], False),
        ([ended(1, LOST)], [ended(1, LOST)], False),
    ],
    ids=[
        "aborted, whoever it was, a step apart",
        "words about a mismatch, whoever said them",
        "further on it is another one",
        "what is one rank's own is at one step",
        "what watches a device may have aborted it",
        "nobody knows why the peer went",
    ],
)
def test_ranks_that_differ_in_a_collective_stop_the_job_whoever_notices_it(
    first: list[Exit], second: list[Exit], is_same: bool
) -> None:
    verdict = verdict_after([incident_of(*first)], incident_of(*second))
    assert bool(verdict) == is_same


def test_two_failures_without_a_signature_are_not_alike() -> None:
    assert not are_alike("", "")


def test_a_mismatch_is_told_in_the_words_of_this_time() -> None:
    assert in_words(incident_of(ended(1, UNLIKE))) == f"{UNLIKE} at step 4"
