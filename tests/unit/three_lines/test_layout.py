"""Where tensors lie in a slot, and which rank writes which."""

import pytest
import torch

from holdfast.contract.snapshot_file import ALIGNMENT, parse_layout
from holdfast.recording.placement import Placement
from holdfast.snapshots.layout import CannotLayOut, plan, sources, view

pytestmark = pytest.mark.torch

SHARED = {
    "model/a": torch.randn(3, 5),
    "model/b": torch.randn(7).to(torch.bfloat16),
    "model/c": torch.tensor(1.5, dtype=torch.float64),
    "model/d": torch.empty(0, 4),
    "model/e": torch.randn(2, 3).to(torch.float8_e4m3fn),
    "model/f": torch.randn(4, dtype=torch.complex64),
}
OWN = [torch.arange(10, dtype=torch.uint8), torch.tensor([True, False])]


def laid_out(shared=SHARED, own=OWN, place=Placement()):  # noqa: B008
    return plan(sources(shared, own), 1000, place)


def test_every_tensor_has_a_place_of_its_own_on_a_border():
    layout = laid_out()
    end = 0
    for entry in layout.entries:
        assert entry.offset % ALIGNMENT == 0
        assert entry.offset >= end
        end = entry.offset + entry.size
    assert end <= layout.data_size
    assert layout.data_offset + layout.data_size <= layout.file_size
    assert parse_layout(layout.text, layout.crc) == list(layout.entries)


def test_every_kind_of_number_comes_back_with_its_bits():
    layout = laid_out()
    data = torch.zeros(layout.data_size, dtype=torch.uint8)
    found = sources(SHARED, OWN)
    for entry, source in zip(layout.entries, found, strict=True):
        view(data, entry).copy_(source.tensor)
    for entry, source in zip(layout.entries, found, strict=True):
        saved = view(data, entry)
        assert saved.dtype == source.tensor.dtype
        assert saved.shape == source.tensor.shape
        bits = [tensor.reshape(-1).view(torch.uint8) for tensor in (saved, source.tensor)]
        assert torch.equal(*bits)


def test_the_state_may_grow_to_twice_its_size():
    layout = laid_out()
    found = sources(SHARED, OWN)
    assert layout.fits(found, 2000)
    assert not layout.fits(found, layout.state_capacity + 1)
    assert not layout.fits(found[:-1], 1000)
    assert not layout.fits(sources({**SHARED, "model/a": torch.randn(5, 3)}, OWN), 1000)


def test_ranks_that_hold_the_same_deal_it_out_by_size():
    shared = {f"model/{index}": torch.zeros(10 + index) for index in range(20)}
    writers = []
    for rank in range(3):
        layout = laid_out(shared, OWN, Placement(rank=rank, world_size=3))
        writers.append({entry.key for entry in layout.entries if entry.writes and entry.is_shared})
        assert all(entry.writes for entry in layout.entries if not entry.is_shared)
    assert sorted(key for keys in writers for key in keys) == sorted(shared)
    sizes = [sum(shared[key].numel() for key in keys) for keys in writers]
    assert max(sizes) - min(sizes) <= 30


@pytest.mark.parametrize("tensor", [torch.eye(2).to_sparse(), torch.empty(2, device="meta")])
def test_what_can_not_lie_in_a_slot_is_refused_by_name(tensor):
    with pytest.raises(CannotLayOut, match="model/odd"):
        laid_out({"model/odd": tensor})


@pytest.fixture
def fake_group():
    """Be one rank of four without the others."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    def be(rank, world_size=4):
        if dist.is_initialized():
            dist.destroy_process_group()
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world_size)

    yield be
    dist.destroy_process_group()


def sharded(rank, placements, shape, size=(10, 3)):
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    mesh = DeviceMesh("cpu", torch.arange(4).view(shape))
    local, _ = compute_local_shape_and_global_offset(size, mesh, placements)
    return DTensor.from_local(
        torch.full(local, float(rank)),
        mesh,
        placements,
        run_check=False,
        shape=torch.Size(size),
        stride=(size[1], 1),
    )


def test_shards_are_placed_in_the_whole_and_all_written(fake_group):
    from torch.distributed.tensor import Shard

    covered: list[int] = []
    for rank in range(4):
        fake_group(rank)
        made = {"model/a": sharded(rank, [Shard(0)], (4,))}
        (entry,) = laid_out(made, [], Placement(rank, 4)).entries
        assert entry.whole == (10, 3)
        assert entry.writes
        covered += range(entry.starts[0], entry.starts[0] + entry.shape[0])
    assert covered == list(range(10))  # three, three, three and one


def test_a_rank_without_a_shard_writes_none(fake_group):
    from torch.distributed.tensor import Shard

    fake_group(3)
    made = {"model/a": sharded(3, [Shard(0)], (4,), (3, 2))}
    (entry,) = laid_out(made, [], Placement(3, 4)).entries
    assert entry.size == 0
    assert not entry.writes


def test_replicas_of_a_shard_are_written_by_one_rank_each(fake_group):
    from torch.distributed.tensor import Replicate, Shard

    written = []
    for rank in range(4):
        fake_group(rank)
        made = {
            f"model/{index}": sharded(rank, [Replicate(), Shard(0)], (2, 2), (8 + index, 3))
            for index in range(6)
        }
        layout = laid_out(made, [], Placement(rank, 4))
        mine = [(entry.key, entry.starts) for entry in layout.entries if entry.writes]
        assert 2 <= len(mine) <= 4
        written += mine
    assert len(written) == len(set(written)) == 12


def test_a_part_of_a_sum_is_refused(fake_group):
    from torch.distributed.tensor import Partial

    fake_group(0)
    with pytest.raises(CannotLayOut, match="part of a sum"):
        laid_out({"model/a": sharded(0, [Partial()], (4,))})
