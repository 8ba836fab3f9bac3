"""What three lines cost a rank in sockets: nothing until it saves by itself."""

from __future__ import annotations

import pytest

from holdfast.contract.page import Word

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("warm")]

JOIN = """
    import os
    import resource
    import torch
    import torch.distributed as dist
    import holdfast

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train():
        job = holdfast.attach(model=model, optimizer=optimizer)
        job.resume()
        for _ in job.steps(range(3)):
            model(torch.ones(2)).sum().backward()
            optimizer.step()
"""


def test_steps_make_no_process_group(stage) -> None:
    script = (
        JOIN
        + """
    store = dist.FileStore("store", world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    train()
    print(dist.distributed_c10d._world.group_count)
    """
    )
    ranks = [stage.start(script, stage.environment(rank, 2)) for rank in range(2)]
    told = [stage.end(rank) for rank in ranks]
    assert [(rank.code, rank.out) for rank in told] == [(0, "1\n")] * 2
    assert [stage.word(Word.STEP, rank) for rank in range(2)] == [3, 3]


def test_a_rank_of_1024_that_may_open_few_files_trains_and_only_its_own_saving_fails(stage) -> None:
    """Without a process group: what a rank of so many needs is counted before it is asked for."""
    ended = stage.run(
        JOIN
        + """
    from holdfast.state.data_position import Position
    from holdfast.recording.placement import Placement
    from holdfast.state.registered import register
    from holdfast.state.saving import Mark, Savable, SaveFailed, write_checkpoint
    from holdfast.contract.storage import LocalFolder

    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
    place = Placement(rank=0, world_size=1024, store=dist.HashStore())
    savable = Savable(register({"model": model}))
    mark = Mark("job", 0, 3, "a", (), Position(0, 3, now=None, world_size=1024))
    try:
        write_checkpoint(LocalFolder("saved"), savable, mark, place)
    except SaveFailed as failed:
        print(failed)
    print(os.path.exists("saved"))
    """
    )
    assert (ended.code, ended.err) == (0, "")
    reason, exists = ended.out.splitlines()
    assert "1088 file descriptors" in reason
    assert "raise `ulimit -n` (1024)" in reason
    assert exists == "False"


CONNECT = (
    JOIN
    + """
    import time
    from holdfast.recording import placement
    from holdfast.state.data_position import Position
    from holdfast.state.registered import register
    from holdfast.state.saving import Mark, Savable, SaveFailed, write_checkpoint
    from holdfast.contract.storage import LocalFolder

    placement.CONNECT_TIMEOUT_S = 1.0
    store = dist.FileStore("store", world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    place = placement.read_placement()

    def save(step, meet=lambda: None):
        mark = Mark("job", 0, step, "a", (), Position(0, step, now=None, world_size=2))
        savable = Savable(register({"model": torch.nn.parallel.DistributedDataParallel(model)}))
        try:
            write_checkpoint(LocalFolder(f"saved-{step}"), savable, mark, place, meet)
            return "saved"
        except (SaveFailed, OSError) as failed:
            return str(failed)
    """
)


def test_a_rank_that_can_not_be_reached_costs_its_first_save_a_minute_and_later_ones_nothing(
    stage,
) -> None:
    """As behind a firewall: the other one's port is never told."""
    script = (
        CONNECT
        + """
    if rank == 0:
        first, again, began = save(3), save(4), time.monotonic()
        print(first == again, first)
        print(time.monotonic() - began < 0.5, os.path.exists("saved-4"))
        store.set("over", "1")
    else:
        torch.nn.parallel.DistributedDataParallel(model)
        torch.nn.parallel.DistributedDataParallel(model)
        store.wait(["over"])
    """
    )
    ranks = [stage.start(script, stage.environment(rank, 2)) for rank in range(2)]
    told = [stage.end(rank) for rank in ranks]
    assert [rank.code for rank in told] == [0, 0], told
    said, quick = told[0].out.splitlines()
    assert said.startswith("True the ranks could not connect by gloo within 1 s")
    assert quick == "True False"


def test_ranks_that_are_connected_wait_for_each_other_as_long_as_writing_takes(stage) -> None:
    script = (
        CONNECT
        + """
    print(save(3, meet=lambda: (place.group, time.sleep(2.5 * rank))))
    """
    )
    ranks = [stage.start(script, stage.environment(rank, 2)) for rank in range(2)]
    told = [stage.end(rank) for rank in ranks]
    assert [(rank.code, rank.out) for rank in told] == [(0, "saved\n")] * 2, told
