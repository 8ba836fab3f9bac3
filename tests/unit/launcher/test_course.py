from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from holdfast_sidecar.config.redaction import Redaction  # noqa: E402
from holdfast_sidecar.launcher.rank_state import (  # noqa: E402
    Course,
    RankEnd,
)
from holdfast_sidecar.records.formatting import how_it_ended  # noqa: E402
from holdfast_sidecar.records.plan import Member, Plan  # noqa: E402
from holdfast_sidecar.records.reports import OUTPUT_UNREAD  # noqa: E402

HUNG = Plan(0, 1, "ended", cause="hang", incident="3f2a", culprit_ranks=[4])


def error_file(path: Path, message: str, timestamp: int) -> str:
    extra = {"py_callstack": "…", "timestamp": str(timestamp)}
    path.write_text(json.dumps({"message": {"message": message, "extraInfo": extra}}))
    return str(path)


def test_exits_are_reported_in_order_with_what_the_exceptions_said(tmp_path: Path) -> None:
    course = Course(0, {0: 4, 1: 5, 2: 6})
    files = {
        0: error_file(tmp_path / "0", "RuntimeError: lost a peer", 200),
        1: error_file(tmp_path / "1", "ValueError: bad\n data", 100),
        2: str(tmp_path / "none"),
    }
    course.take([RankEnd(0, 10, 1, 300.0), RankEnd(1, 11, 1, 300.0)], files)
    course.take([RankEnd(2, 12, -9, 301.0)], files)
    exits = course.exits()
    assert [(e.rank, e.order, e.exit_code) for e in exits] == [(5, 0, 1), (4, 1, 1), (6, 2, -9)]
    assert [e.message for e in exits] == ["ValueError: bad data", "RuntimeError: lost a peer", ""]
    assert list(course.failures) == [5, 4, 6]


@pytest.mark.parametrize("is_unread", [True, False])
def test_who_wrote_into_a_pipe_that_nobody_reads_says_so(tmp_path: Path, is_unread: bool) -> None:
    course = Course(0, {0: 4, 1: 5, 2: 6})
    broken = "BrokenPipeError: [Errno 32] Broken pipe"
    files = {
        0: error_file(tmp_path / "0", broken, 100),
        1: str(tmp_path / "none"),
        2: error_file(tmp_path / "2", "ValueError: bad", 300),
    }
    ends = [RankEnd(0, 10, 1, 300.0), RankEnd(1, 11, -13, 300.0), RankEnd(2, 12, 1, 300.0)]
    course.take(ends[:1], files, {0, 1, 2} if is_unread else ())
    course.take(ends[1:], files, {1, 2} if is_unread else {0})
    said = {end.rank: end.message for end in course.exits()}
    if is_unread:
        assert said == {4: OUTPUT_UNREAD, 5: OUTPUT_UNREAD, 6: "ValueError: bad"}
    else:
        assert said == {4: broken, 5: "", 6: "ValueError: bad"}


def test_success_means_all_of_them(tmp_path: Path) -> None:
    course = Course(0, {0: 0, 1: 1})
    course.take([RankEnd(0, 10, 0, 1.0)], {})
    assert (course.has_succeeded, course.has_failed, course.ended) == (False, False, {0})
    course.take([RankEnd(1, 11, 0, 2.0)], {})
    assert course.has_succeeded


def test_the_first_bad_end_is_told_in_words(tmp_path: Path) -> None:
    course = Course(0, {0: 4, 1: 5, 2: 6})
    files = {0: error_file(tmp_path / "0", "ValueError: bad\n data", 100), 1: "", 2: ""}
    course.take([RankEnd(2, 12, 0, 300.0), RankEnd(0, 10, 3, 301.0)], files)
    assert course.first_failure() == "rank 4 exited with code 3: ValueError: bad data"
    course.take([RankEnd(1, 11, -9, 302.0)], files)
    assert course.first_failure().startswith("rank 4 ")


def test_who_left_is_told_before_who_failed_because_of_it(tmp_path: Path) -> None:
    course = Course(0, {0: 4, 1: 5})
    files = {0: error_file(tmp_path / "0", "RuntimeError: Connection closed by peer", 100)}
    ends = [RankEnd(1, 11, 0, 300.0, step=7), RankEnd(0, 10, 1, 300.0, step=7)]
    course.take(ends, files)
    assert course.first_failure() == (
        "rank 5 left by exit code 0 at step 7 while others went on; "
        "rank 4 exited with code 1: RuntimeError: Connection closed by peer"
    )


def test_a_long_message_is_cut_for_the_console(tmp_path: Path) -> None:
    course = Course(0, {0: 0})
    course.take([RankEnd(0, 10, 1, 1.0)], {0: error_file(tmp_path / "0", "x" * 5000, 100)})
    assert len(course.first_failure()) < 250


@pytest.mark.parametrize(
    ("plan", "code", "words"),
    [
        (Plan(0, 1, "running"), -9, ""),
        (HUNG, -9, ", by Holdfast, for the hang of incident 3f2a"),
        (dataclasses.replace(HUNG, culprit_ranks=[7]), -9, ""),
        (dataclasses.replace(HUNG, attempt=1), -9, ""),
        (HUNG, -11, ""),
        (None, -9, ""),
    ],
)
def test_whose_kill_it_was_is_told(plan: Plan | None, code: int, words: str) -> None:
    course = Course(0, {0: 4})
    course.take([RankEnd(0, 10, code, 1.0)], {0: ""})
    assert course.first_failure(plan) == f"rank 4 {how_it_ended(code)}{words}"


def test_what_an_exception_says_is_told_without_secrets(tmp_path: Path) -> None:
    course = Course(0, {0: 0})
    message = "ConnectionError: can't reach redis://:s3cr3t@redis.example"
    course.take([RankEnd(0, 10, 1, 1.0)], {0: error_file(tmp_path / "0", message, 100)})
    assert "s3cr3t" not in str(course.exits())
    assert "@redis.example" in course.first_failure()


def test_what_is_secret_on_this_node_is_told_nowhere(tmp_path: Path) -> None:
    course = Course(0, {0: 0}, redaction=Redaction(frozenset({"open-sesame"})))
    said = error_file(tmp_path / "0", "ApiError: 401 for open-sesame", 100)
    course.take([RankEnd(0, 10, 1, 1.0)], {0: said})
    assert course.exits()[0].message == "ApiError: 401 for [redacted]"


@pytest.mark.parametrize(
    ("attempt", "exit_code", "ran", "is_told"),
    [
        (2, 1, True, True),
        (2, 65, True, True),
        (3, 1, False, True),
        (2, 0, True, False),
        (2, 75, True, False),
        (3, 0, True, False),
        (3, 1, True, False),
        (4, 1, False, False),
    ],
    ids=[
        "the job could not go on after them",
        "they repeat themselves",
        "no attempt could be opened after them",
        "somebody stopped the job all the same",
        "the node was asked for",
        "the job had got over them when somebody stopped it",
        "the job had got over them when others failed elsewhere",
        "the job had got over them when no attempt could be opened",
    ],
)
def test_only_what_the_job_did_not_get_over_is_behind_its_end(
    attempt: int, exit_code: int, ran: bool, is_told: bool
) -> None:
    course = Course(2, {0: 0})
    course.take([RankEnd(0, 10, -9, 1.0)], {0: ""})
    members = [Member("a", "i", 0, 0, 1)] if ran else []
    plan = Plan(attempt, 1, "stopped", members, exit_code=exit_code)
    assert bool(course.failures_behind(plan)) is is_told
