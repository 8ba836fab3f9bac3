from __future__ import annotations

from holdfast_sidecar.policy.replication import ReplicaWait, judge_peer_wait

TIMEOUT_S = 60.0


def course(*looks: tuple[float, int, int, bool]) -> list[bool]:
    """Whether the rank shall wait, after each (now, sealed, safe, is_paired)."""
    wait, course = ReplicaWait(), []
    for now_s, sealed, safe, is_paired in looks:
        wait = judge_peer_wait(wait, sealed, safe, is_paired, now_s, TIMEOUT_S)
        course.append(wait.shall_wait)
    return course


def test_a_rank_waits_for_a_partner_that_keeps_up() -> None:
    assert (
        course((0, -1, -1, True), (50, 1, 0, True), (100, 2, 1, True), (150, 3, 3, True))
        == [True] * 4
    )


def test_it_is_let_go_once_after_the_timeout_and_then_not_stopped_again() -> None:
    assert course(
        (0, 5, 4, True),
        (59, 5, 4, True),
        (60, 5, 4, True),
        (61, 9, 4, True),
        (100, 30, 9, True),
        (130, 60, 30, True),
    ) == [True, True, False, False, False, False]


def test_it_waits_again_once_the_partner_has_all_there_is() -> None:
    assert course((0, 5, 4, True), (60, 5, 4, True), (70, 8, 8, True), (71, 9, 8, True)) == [
        True,
        False,
        True,
        True,
    ]


def test_without_a_partner_it_goes_on_at_once() -> None:
    assert course((0, 0, -1, False), (1, 1, -1, True), (2, 1, 1, True)) == [False, False, True]


def test_progress_of_the_partner_starts_the_time_again() -> None:
    assert course((0, 5, 3, True), (50, 6, 5, True), (100, 6, 5, True), (111, 6, 5, True)) == [
        True,
        True,
        True,
        False,
    ]
