"""Which rank a GPU belongs to, by whoever can tell."""

from __future__ import annotations

import dataclasses

from tests.unit.components.gpu.nodes import GIB, company, gpu, lost, reading, seat

from holdfast_sidecar.components.gpu.ownership import (
    GpuProcess,
    OwnershipSource,
    RankDevice,
    owners,
    tie_up,
)
from holdfast_sidecar.components.gpu.readings import GpuUser

UNUSED = [gpu(index, users=()) for index in range(4)]
U = [one.uuid for one in UNUSED]


def test_the_driver_names_a_ranks_own_process_or_one_that_it_started() -> None:
    helper = GpuProcess(5000, "python", 99, (1001, 900))
    read = reading(gpu(0, users=[5000]), gpu(1, users=[1000]))
    ownership = tie_up(read, company(seat(0), seat(1), processes=[helper]))
    assert ownership.ranks_of(U[0]) == [1]
    assert ownership.ranks_of(U[1]) == [0]
    assert ownership.is_certain(U[0])
    assert owners(read, ownership) == {
        U[0]: 1,
        "0000:10:00.0": 1,
        U[1]: 0,
        "0000:11:00.0": 0,
    }


def test_what_torch_says_goes_before_everything_else() -> None:
    told = RankDevice(uuid=U[2].removeprefix("GPU-"))
    environment = {"CUDA_VISIBLE_DEVICES": "0"}
    read = reading(*UNUSED[:3], gpu(3, users=[1000]))
    tie = tie_up(read, company(seat(0, environment, told))).ties[0]
    assert (tie.gpus, tie.source) == ((U[2],), OwnershipSource.TORCH)


def test_torch_may_tell_an_address_alone() -> None:
    told = RankDevice(pci="0000:13:00.0")
    assert tie_up(reading(*UNUSED), company(seat(0, None, told))).ties[0].gpus == (U[3],)


def test_a_stray_context_on_the_first_gpu_makes_it_nobodys_but_its_own_ranks() -> None:
    crowded = dataclasses.replace(
        gpu(0), users=(GpuUser(1000, int(60 * GIB)), GpuUser(1001, int(0.5 * GIB)))
    )
    ownership = tie_up(reading(crowded, gpu(1)), company(seat(0), seat(1)))
    assert ownership.ranks_of(U[0]) == [0]
    assert ownership.ranks_of(U[1]) == [1]


def test_a_rank_may_have_several_gpus_and_several_ranks_one() -> None:
    read = reading(gpu(0, users=[1000]), gpu(1, users=[1000]), gpu(2, users=[1001, 1002]))
    ownership = tie_up(read, company(seat(0), seat(1), seat(2)))
    assert ownership.ties[0].gpus == (U[0], U[1])
    assert ownership.ranks_of(U[2]) == [1, 2]
    assert owners(read, ownership)[U[2]] == 1


def test_a_rank_that_sees_one_gpu_has_that_one() -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "3", "LOCAL_RANK": "0"}
    tie = tie_up(reading(*UNUSED), company(seat(0, environment))).ties[0]
    assert (tie.gpus, tie.source, tie.confidence) == ((U[3],), OwnershipSource.ONE_VISIBLE, 0.9)


def test_of_several_that_it_sees_a_rank_has_its_local_numbers() -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "3,1"}
    ownership = tie_up(reading(*UNUSED), company(seat(0, environment), seat(1, environment)))
    assert [ownership.ties[rank].gpus for rank in (0, 1)] == [(U[3],), (U[1],)]
    assert ownership.ties[0].source is OwnershipSource.VISIBLE_LIST


def test_without_any_word_ranks_have_their_own_numbers_where_there_are_as_many_gpus() -> None:
    seats = [seat(rank, {}) for rank in range(4)]
    ownership = tie_up(reading(*UNUSED), company(*seats))
    assert [ownership.ranks_of(uuid) for uuid in U] == [[0], [1], [2], [3]]
    assert ownership.ties[0].source is OwnershipSource.LOCAL_RANK
    assert not ownership.is_certain(U[0])


def test_what_nothing_tells_is_not_known() -> None:
    assert tie_up(reading(*UNUSED), company(seat(0, {}), seat(1, {}))).ties == {}
    assert tie_up(reading(*UNUSED), company(seat(0, {"CUDA_VISIBLE_DEVICES": ""}))).ties == {}
    assert tie_up(reading(), company(seat(0))).ties == {}


def test_an_environment_that_may_not_be_read_leaves_the_number() -> None:
    ownership = tie_up(reading(*UNUSED[:2]), company(seat(0), seat(1)))
    assert ownership.ties[1].source is OwnershipSource.LOCAL_RANK


def test_a_lost_gpu_stays_its_ranks_and_moves_no_others_index() -> None:
    seats = [seat(rank, {}) for rank in range(4)]
    before = tie_up(reading(*UNUSED), company(*seats))
    after = tie_up(reading(*UNUSED[:1], *UNUSED[2:]), company(*seats), before)
    assert after == before


def test_a_gpu_that_names_no_users_any_more_is_still_the_ranks_that_used_it() -> None:
    seats = company(seat(0), seat(1))
    crossed = [gpu(0, users=[1001]), gpu(1, users=[1000])]
    used = tie_up(reading(*crossed), seats)
    assert tie_up(reading(*map(lost, crossed)), seats, used) == used
    both = [gpu(0, users=[1000]), gpu(1, users=[1000])]
    used = tie_up(reading(*both), company(seat(0)))
    assert tie_up(reading(lost(both[0]), both[1]), company(seat(0)), used) == used


def test_a_new_process_of_the_same_rank_is_asked_anew() -> None:
    before = tie_up(reading(gpu(0, users=[1000]), gpu(1, users=())), company(seat(0)))
    again = dataclasses.replace(seat(0), pid=2000)
    moved = reading(gpu(0, users=()), gpu(1, users=[2000]))
    assert tie_up(moved, company(again), before).ties[0].gpus == (U[1],)


def test_between_two_processes_a_gpu_stays_with_its_rank_but_nobody_is_sure_of_it() -> None:
    used = reading(gpu(0, users=[1000]), gpu(1, users=()))
    before = tie_up(used, company(seat(0)))
    nobody = tie_up(used, company(), before)
    assert nobody.ties[0].source is OwnershipSource.BEFORE
    assert nobody.ranks_of(U[0]) == [0]
    assert not nobody.is_certain(U[0])
    again = dataclasses.replace(seat(0, {}), pid=2000)
    assert tie_up(reading(*UNUSED[:2]), company(again), nobody).ranks_of(U[0]) == [0]
    other = tie_up(reading(gpu(0, users=[1005])), company(seat(5)), nobody)
    assert other.ranks_of(U[0]) == [5]


def test_what_is_surer_takes_the_place_of_what_was_guessed() -> None:
    seats = company(seat(0, {}), seat(1, {}))
    guessed = tie_up(reading(*UNUSED[:2]), seats)
    known = tie_up(reading(gpu(0, users=[1001]), gpu(1, users=[1000])), seats, guessed)
    assert [known.ties[rank].gpus for rank in (0, 1)] == [(U[1],), (U[0],)]
