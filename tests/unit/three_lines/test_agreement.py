"""Go or void: one verdict for all, whoever is late."""

import pytest

from holdfast.state.agreement import Agreement, BoardLost


class Board:
    """A store in memory; `fails` makes it unreachable."""

    def __init__(self):
        self.values = {}
        self.fails = False

    def add(self, key, amount):
        self._reach()
        self.values[key] = self.values.get(key, 0) + amount
        return self.values[key]

    def compare_set(self, key, expected, desired):
        self._reach()
        if key not in self.values and expected == "":
            self.values[key] = desired.encode()
        return self.values[key]

    def check(self, keys):
        self._reach()
        return all(key in self.values for key in keys)

    def get(self, key):
        self._reach()
        return self.values[key]

    def delete_key(self, key):
        self._reach()
        return self.values.pop(key, None) is not None

    def _reach(self):
        if self.fails:
            raise RuntimeError("connection reset")


class Clock:
    """Time that passes only while somebody pauses; `then` runs at every pause."""

    def __init__(self, then=lambda: None):
        self.time_s = 0.0
        self.then = then
        self.pauses = []

    def now(self):
        return self.time_s

    def pause(self, seconds):
        self.pauses.append(seconds)
        self.time_s += seconds
        self.then()


def arrive(board, clock, timeout_s=10.0, world_size=2, topic="save"):
    return Agreement(board, topic, world_size).arrive(timeout_s, clock.now, clock.pause)


def test_the_last_to_arrive_says_go_without_waiting():
    board, clock = Board(), Clock()
    board.add("save/arrived", 1)
    assert arrive(board, clock)
    assert clock.pauses == []


def test_who_waits_hears_go_when_the_last_one_comes():
    board = Board()
    clock = Clock(then=lambda: arrive(board, Clock()) if not board.check(["save/verdict"]) else 0)
    assert arrive(board, clock)
    assert clock.time_s < 0.01


def test_the_first_to_run_out_of_time_makes_it_void_for_all():
    board, clock = Board(), Clock()
    assert not arrive(board, clock, timeout_s=3.0)
    assert clock.time_s == pytest.approx(3.0)
    assert not arrive(board, Clock())  # the last one, too late


def test_one_that_missed_the_step_frees_the_others_at_once():
    board = Board()
    clock = Clock(then=lambda: Agreement(board, "save", 2).void())
    assert not arrive(board, clock, timeout_s=600.0)
    assert clock.time_s < 0.01


def test_a_go_can_not_be_taken_back():
    board = Board()
    board.add("save/arrived", 1)
    assert arrive(board, Clock())
    assert not Agreement(board, "save", 2).void()
    assert board.get("save/verdict") == b"go"


def test_out_of_time_just_as_the_last_one_says_go_is_go():
    board = Board()
    clock = Clock()
    clock.then = lambda: board.compare_set("save/verdict", "", "go") if clock.time_s >= 1 else None
    assert arrive(board, clock, timeout_s=1.0)


def test_a_vote_is_go_only_when_every_rank_agreed():
    board = Board()
    assert not Agreement(board, "loaded", 2).vote(False, 9.0)
    assert not Agreement(board, "loaded", 2).vote(True, 9.0)


def test_questions_do_not_mix():
    board = Board()
    Agreement(board, "first", 2).void()
    assert arrive(board, Clock(), world_size=1, topic="second")


def test_looks_grow_rare_while_the_wait_grows_long():
    clock = Clock()
    arrive(Board(), clock, timeout_s=60.0)
    assert max(clock.pauses) <= 0.1
    assert len(clock.pauses) < 700


def test_a_store_that_is_gone_is_an_end_and_no_verdict():
    board = Board()
    board.fails = True
    with pytest.raises(BoardLost):
        arrive(board, Clock())
    with pytest.raises(BoardLost):
        Agreement(board, "save", 2).void()


def test_the_last_to_say_yes_knows_at_once_and_the_others_when_they_ask():
    board = Board()
    first, last = (Agreement(board, "topic", 2) for _ in range(2))
    assert first.say_yes() is None
    assert first.verdict() is None
    assert last.say_yes() is True
    assert first.verdict() is True


def test_a_void_counts_though_all_say_yes_afterwards():
    board = Board()
    first, last = (Agreement(board, "topic", 2) for _ in range(2))
    first.void()
    assert first.say_yes() is None
    assert last.say_yes() is False
    assert first.verdict() is False


def test_a_question_that_is_forgotten_leaves_nothing():
    board = Board()
    alone = Agreement(board, "topic", 1)
    alone.say_yes()
    alone.forget()
    assert board.values == {}


@pytest.mark.parametrize("ask", [Agreement.say_yes, Agreement.verdict, Agreement.forget])
def test_a_store_that_is_gone_is_told_by_every_question(ask):
    board = Board()
    board.fails = True
    with pytest.raises(BoardLost):
        ask(Agreement(board, "topic", 2))
