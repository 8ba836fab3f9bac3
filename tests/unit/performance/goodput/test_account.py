"""The arithmetic of an account, turn by turn."""

from __future__ import annotations

from holdfast_sidecar.records.account import (
    CLOSED,
    PENDING,
    Account,
    Category,
    IncidentCost,
    Phase,
    ProgressMark,
    parse_account,
    spell_cost,
    spell_marks,
)
from holdfast_sidecar.store.account import PhaseFold, Turn, is_behind, turned

S = 1_000_000


def after(*turns: tuple[float, Turn], since: dict[str, str] | None = None) -> Account:
    """The account after these turns, each at its second."""
    fields = since or {}
    for at_s, turn in turns:
        fields = turned(fields, turn, round(at_s * S))
    account = parse_account(fields)
    assert account is not None
    assert account.total_us == account.at_us - account.began_us
    return account


def test_what_is_open_gets_the_time_until_the_next_turn_weighted_by_what_was_then() -> None:
    account = after(
        (100.0, Turn("queued", gpus=4)), (103.0, Turn("init", gpus=8)), (104.5, Turn("setup"))
    )
    assert account.seconds(Category.QUEUED) == 3.0
    assert account.gpu_seconds(Category.QUEUED) == 12.0
    assert account.seconds(Category.INIT) == 1.5
    assert account.gpu_seconds(Category.INIT) == 12.0


def test_a_restart_s_phases_are_timed_beside_the_categories() -> None:
    account = after(
        (100.0, Turn("draining", "i:drain")),
        (102.0, Turn("restart", "i:rendezvous")),
        (105.0, Turn("restart", "i:rendezvous")),
        (106.0, Turn(PENDING)),
    )
    assert account.stages == {"i:drain": 2 * S, "i:rendezvous": 4 * S}


def test_when_nobody_turned_it_for_long_the_rest_was_not_observed() -> None:
    unseen = after((100.0, Turn("setup")), (160.0, Turn("setup")))
    assert (unseen.seconds(Category.SETUP), unseen.seconds(Category.UNOBSERVED)) == (10.0, 50.0)
    seen = after((100.0, Turn("setup")), (160.0, Turn("setup", is_seen=True)))
    assert (seen.seconds(Category.SETUP), seen.seconds(Category.UNOBSERVED)) == (60.0, 0.0)


def test_the_time_after_a_run_s_end_is_no_part_of_it() -> None:
    account = after((100.0, Turn("setup")), (101.0, Turn(CLOSED)), (500.0, Turn("restart")))
    assert account.total_us == S


def test_a_clock_that_is_set_back_takes_nothing_away() -> None:
    account = after((100.0, Turn("setup")), (105.0, Turn("setup")), (90.0, Turn("setup")))
    assert account.seconds(Category.SETUP) == 5.0
    later = after((100.0, Turn("setup")), (90.0, Turn("setup")), (92.0, Turn("setup")))
    assert later.seconds(Category.SETUP) == 2.0


def test_no_microsecond_is_lost_by_dividing() -> None:
    thirds = (("data_wait", 1), ("saving", 1), ("productive", 1))
    account = after((1.0, Turn(PENDING)), (1.000100, Turn(PENDING, shares=thirds)))
    assert account.micros == {"data_wait": 33, "saving": 33, "productive": 34}


def test_pending_time_is_no_category_s_until_it_is_moved() -> None:
    account = after((100.0, Turn(PENDING)), (107.0, Turn(PENDING)))
    assert (account.pending_us, account.micros) == (7 * S, {})
    moved = Turn("draining", moves=(("draining", S), ("hang_undetected", 20 * S)))
    ended = after((100.0, Turn(PENDING)), (107.0, moved))
    assert ended.micros == {"draining": S, "hang_undetected": 6 * S}


def test_an_account_that_was_lost_is_put_back_as_a_whole() -> None:
    before = turned(turned({}, Turn("setup"), 100 * S), Turn(PENDING), 160 * S)
    for behind in ({}, turned({}, Turn("queued"), 150 * S)):
        account = after((165.0, Turn(PENDING, base=before)), since=behind)
        assert (account.began_us, account.pending_us) == (100 * S, 5 * S)
        assert account.seconds(Category.QUEUED) == 0
    newer = turned(before, Turn("draining"), 161 * S)
    assert after((165.0, Turn(CLOSED, base=before)), since=newer).seconds(Category.DRAINING) == 4


def test_an_account_that_was_only_turned_earlier_by_the_clock_is_left_as_it_is() -> None:
    """The server's clock was set back between the two."""
    seen = turned(turned({}, Turn("setup"), 100 * S), Turn("setup"), 160 * S)
    later = turned(seen, Turn("setup"), 130 * S)
    assert not is_behind(later, seen)
    account = after((131.0, Turn("setup", base=seen)), since=later)
    assert account.seconds(Category.SETUP) + account.seconds(Category.UNOBSERVED) == 61.0


def test_an_account_that_was_begun_since_is_not_behind_though_it_was_turned_less() -> None:
    seen = turned(turned({}, Turn("setup"), 100 * S), Turn("setup"), 160 * S)
    assert not is_behind(turned({}, Turn("queued"), 161 * S), seen)
    assert is_behind(turned({}, Turn("queued"), 150 * S), seen)
    assert is_behind({}, seen)
    assert not is_behind({}, {})


def test_the_turns_of_one_run_go_on_in_the_next() -> None:
    seen = turned(turned({}, Turn("setup"), 100 * S), Turn("setup"), 160 * S)
    again = turned(seen, Turn("queued", is_anew=True), 150 * S)
    assert not is_behind(again, seen)


def test_what_can_not_be_read_makes_way_for_what_was_seen_or_for_nothing() -> None:
    seen = turned(turned({}, Turn("setup"), 100 * S), Turn("setup"), 160 * S)
    for broken in ({"at": "soon", "turns": "x"}, {**seen, "s:setup": "1.5"}, {"run": "7"}):
        back = Turn("setup", is_anew=True, base=seen)
        assert after((161.0, back), since=broken).seconds(Category.SETUP) >= 11.0
        fresh = after((161.0, Turn("setup", is_anew=True)), since=broken)
        assert (fresh.began_us, fresh.micros) == (161 * S, {})


def test_another_run_begins_from_nothing() -> None:
    before = turned(turned({}, Turn("setup"), 100 * S), Turn("setup"), 160 * S)
    account = after((200.0, Turn("queued", is_anew=True)), since=before)
    assert (account.began_us, account.micros) == (200 * S, {})


def test_an_incident_that_is_over_becomes_one_line_and_stays_as_it_is() -> None:
    cost = IncidentCost({Phase.DETECT.value: 5}, 700, 1400, 3, "hang", "node b")
    fold = PhaseFold("i", *spell_cost(cost))
    drained = turned(
        turned({}, Turn("draining", "i:drain"), S), Turn("restart", "i:restore"), 3 * S
    )
    account = after((4.0, Turn(PENDING, folds=(fold,))), since=drained)
    assert account.stages == {}
    told = account.costs["i"]
    assert told.phases == {
        "detect": 5,
        "drain": 2 * S,
        "rendezvous": 0,
        "restore": S,
        "first_step": 0,
    }
    assert (told.lost_us, told.lost_gpu_us, told.lost_steps) == (700, 1400, 3)
    assert (told.cause, told.node, told.down_us) == ("hang", "node b", 3 * S + 5)
    other = PhaseFold("i", *spell_cost(IncidentCost({}, 1, 1, 1, "crash")))
    again = after((5.0, Turn(PENDING, folds=(fold, other))), since=drained)
    assert again.costs["i"].cause == "hang"


def test_an_account_is_read_as_it_was_spelled() -> None:
    marks = (ProgressMark(0, 0), ProgressMark(40, 7 * S))
    plain = {"run": "1000.5", "attempt": "2", "split": "1", "nodes": "3", "weight": "16"}
    fields = {**plain, "toll": "9", "marks": spell_marks(marks)}
    account = after((7.0, Turn("restore", "i:restore", 16, fields=fields)))
    assert (account.run, account.attempt, account.split_attempt) == ("1000.5", 2, 1)
    assert (account.nodes, account.weight, account.toll_us) == (3, 16, 9)
    assert (account.gpus, account.marks, account.open) == (16, marks, "restore")
    assert parse_account({}) is None
    assert parse_account({"at": "soon"}) is None
