from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.export.live.pretend_views import healthy, redis_away, troubled

from holdfast_sidecar.cli.tui.heading import heading
from holdfast_sidecar.cli.tui.state import Latest, Order, ViewState
from holdfast_sidecar.cli.tui.text import UNICODE, plain
from holdfast_sidecar.export.live.view import CheckpointView


def told(latest: Latest, choice: ViewState | None = None, width: int = 200) -> list[str]:
    return [plain(line) for line in heading(latest, choice or ViewState(), 100.0, width, UNICODE)]


def test_the_first_line_says_how_the_job_stands() -> None:
    assert told(Latest(healthy(4)))[0] == (
        "llm  running  step 12,345  1.00s/step  goodput 91.5%  attempt 3 (2 restarts)  MFU 41%"
        "  45.6k tokens/s  saved 12,000"
    )


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (80, "llm  running  step 12,345  1.00s/step  goodput 91.5%  attempt 3 (2 restarts)"),
        (40, "llm  running  step 12,345  1.00s/step"),
        (2, "l…"),
    ],
)
def test_what_is_less_important_makes_room(width: int, line: str) -> None:
    assert told(Latest(healthy(4)), width=width)[0] == line


def test_the_second_line_says_what_is_wrong() -> None:
    assert told(Latest(healthy(4)))[1] == "running, and nothing is wrong"
    assert told(Latest(troubled(4)))[1] == (
        "! rank 3 on node-0 died: SIGKILL; also: rank 2 on node-0 is 31% slower"
    )


def test_a_sentence_ends_once_and_what_is_waited_for_is_seen_in_80_columns() -> None:
    told_of = (
        "it waits: 1 of 2 nodes are here; Node b was lost: nothing was heard of it (95% sure)."
    )
    view = replace(troubled(4), headline=told_of)
    assert "(95% sure); also: " in told(Latest(view))[1]
    narrow = told(Latest(view), width=80)[1]
    assert narrow.startswith("! it waits: 1 of 2 nodes are here; Node b was lost")


def test_the_third_line_says_who_tells() -> None:
    assert told(Latest(healthy(4)))[2] == "told by node-0, which leads"
    follower = replace(healthy(4), is_leader=False, node="node-1")
    assert told(Latest(follower))[2] == "told by node-1; node-0 leads"
    assert told(Latest(replace(follower, leader_node="")))[2] == "told by node-1; nobody leads"
    assert "Redis alone" in told(Latest(replace(follower, node="")))[2]


def test_while_redis_is_away_the_third_line_says_what_is_old() -> None:
    third = told(Latest(redis_away()), width=80)[2]
    assert third == "told by node-0; Redis is away, what is marked ? is as it was last heard"
    assert "leads" not in third


def test_when_nobody_answers_it_says_since_when_and_what_is_shown() -> None:
    latest = Latest(healthy(4)).unanswered("127.0.0.1:1 does not answer", 88.0)
    latest = latest.unanswered("127.0.0.1:1 does not answer: Connection refused", 95.0)
    first, _, third = told(latest)
    assert first.startswith("llm  running")
    assert third == (
        "NO ANSWER for 12.0 s (old picture): 127.0.0.1:1 does not answer: Connection refused"
    )
    back = latest.answered(healthy(4), "somebody")
    assert back.silence_s(100.0) is None
    assert "NO ANSWER" not in told(back)[2]


def test_before_the_first_view_it_says_so() -> None:
    first, second, third = told(Latest().unanswered("no sidecar of the job is known", 99.0))
    assert (first, second) == ("nothing is known of the job so far", "")
    assert third == "NO ANSWER for 1.0 s: no sidecar of the job is known"


def test_what_somebody_chose_stands_there_too() -> None:
    choice = ViewState(is_paused=True, filter="node-1", order=Order.WORST)
    assert told(Latest(healthy(4)), choice)[2].startswith(
        "PAUSED (p goes on)  only: node-1 (Esc: all)  worst first"
    )


def test_a_checkpoint_that_is_written_stands_beside_the_last() -> None:
    saved = CheckpointView(durable_step=12_000, writing_step=12_300, writing_share=0.4)
    line = told(Latest(replace(healthy(4), checkpoint=saved)))[0]
    assert line.endswith("saved 12,000, writing 12,300 (40%)")
