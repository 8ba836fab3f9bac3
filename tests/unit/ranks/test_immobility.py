"""When a main thread that waits for a lock is known to wait for nobody who is at work."""

from __future__ import annotations

import math
from dataclasses import replace

from tests.unit.ranks.scene import child, closer, history, look, ranks, scrutiny

from holdfast_sidecar.linux.syscalls import ThreadWait, Where
from holdfast_sidecar.ranks.history import RESTED_LOOKS, CloserLook, Inspection, scrutinise
from holdfast_sidecar.ranks.stall import proof_for, proof_of_stall

PATIENCE_S = 120.0
UPLOADER = "thread uploader waits for network"


def looked(*looks: CloserLook) -> Inspection | None:
    known = None
    for one in looks:
        known = scrutinise(known, one)
    return known


def is_proven(*looks: CloserLook) -> bool:
    return bool(proof_of_stall(looked(*looks), PATIENCE_S))


def test_a_lock_is_proof_once_nobody_was_at_work_in_several_looks() -> None:
    looks = [closer(at_s / 5) for at_s in range(RESTED_LOOKS)]
    assert is_proven(*looks)
    assert not is_proven(*looks[1:])


def test_a_thread_that_works_between_two_waits_for_a_lock_is_at_work() -> None:
    """An uploader that waits for its next part half of the time."""
    looks = [closer(at_s / 5, at_work=UPLOADER if at_s % 2 else "") for at_s in range(40)]
    assert not any(is_proven(*looks[:count]) for count in range(len(looks) + 1))


def test_so_is_a_child() -> None:
    rests = child(wait=ThreadWait(Where.QUEUE))
    works = child(wait=ThreadWait(Where.NETWORK))
    looks = [closer(at_s / 5, children=[works if at_s % 3 else rests]) for at_s in range(40)]
    assert not any(is_proven(*looks[:count]) for count in range(len(looks) + 1))


def test_of_a_thread_that_pauses_it_is_seen_first_whether_it_does_anything_then() -> None:
    """Between two tries of an upload; or it only draws a progress bar every 10 s."""
    looks = [replace(closer(at_s / 5), pauses_s=(10.0 - at_s / 5 % 10,)) for at_s in range(60)]
    first = next(count for count in range(len(looks)) if is_proven(*looks[:count]))
    assert looks[first - 1].at_s > 10.0
    tries = [replace(one, at_work=UPLOADER if one.at_s % 10 < 1 else "") for one in looks]
    assert not any(is_proven(*tries[:count]) for count in range(50, len(tries)))


def test_a_child_that_pauses_is_no_different() -> None:
    paused = child(wait=ThreadWait(Where.LOCK, (202, 1, 2), 10.0))
    looks = [closer(at_s / 5, children=[paused]) for at_s in range(60)]
    first = next(count for count in range(len(looks)) if is_proven(*looks[:count]))
    assert looks[first - 1].at_s > 10.0


def test_a_child_that_rests_without_an_end_keeps_nothing_from_being_proven() -> None:
    """An idle pool's worker waits for the semaphore of its queue."""
    resting = child(wait=ThreadWait(Where.LOCK, (202, 1, 2)))
    looks = [closer(at_s / 5, children=[resting]) for at_s in range(RESTED_LOOKS)]
    for patience_s in (PATIENCE_S, math.inf):
        assert proof_of_stall(looked(*looks), patience_s)


def test_a_pause_beyond_all_patience_is_none() -> None:
    looks = [replace(closer(at_s / 5), pauses_s=(1800.0, math.inf)) for at_s in range(RESTED_LOOKS)]
    assert is_proven(*looks)


def test_a_wait_with_an_end_is_none_for_ever() -> None:
    timed = scrutiny(main=ThreadWait(Where.LOCK, (202, 1, 2), 1800.0))
    assert proof_of_stall(timed, PATIENCE_S)
    assert not proof_of_stall(timed, math.inf)


def test_of_a_rank_that_a_debugger_holds_nothing_is_proven() -> None:
    for state, proven in (("S", True), ("t", False)):
        scene = replace(ranks(history(look(0.0, state=state))), scrutinies={0: scrutiny()})
        assert bool(proof_for(scene.local[0], scene, PATIENCE_S)) is proven
