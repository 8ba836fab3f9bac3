from __future__ import annotations

from collections import Counter

from bench.launch.rows import BENCHMARK, tasks


def test_every_task_has_a_key_of_its_own_and_a_row_that_can_be_asked_for() -> None:
    for quick in (False, True):
        planned = tasks(quick)
        assert len({task.key for task in planned}) == len(planned)
        assert {task.row for task in planned} <= set(BENCHMARK.rows)
    assert {task.row for task in tasks(False)} == set(BENCHMARK.rows)


def test_a_full_run_kills_twenty_ranks_of_holdfast_and_five_of_each_peer_per_optimizer() -> None:
    kills = Counter(tuple(t.key.split("/")[1:3]) for t in tasks(False) if t.row == "sigkill")
    assert kills[("adamw", "Holdfast")] + kills[("sgd", "Holdfast")] == 20
    for peer in ("torchrun", "torchrun, own store", "NVRx"):
        assert kills[("adamw", peer)] == kills[("sgd", peer)] == 5


def test_contestants_take_turns_at_being_first() -> None:
    first = [t.key.split("/")[2] for t in tasks(False) if t.key.startswith("sigkill/adamw")][::5]
    assert len(set(first)) > 2


def test_a_quick_run_starts_no_peer() -> None:
    assert {t.key.split("/")[2] for t in tasks(True) if t.key.count("/") == 3} == {"Holdfast"}
    assert not any("torch" in task.key or "NVRx" in task.key for task in tasks(True))
