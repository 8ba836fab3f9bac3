"""A checkpoint behind a URL is written and loaded as one on a disk."""

import pytest
import torch

from holdfast.checkpoint_source import load_checkpoint
from holdfast.data_position import Position
from holdfast.placement import Placement
from holdfast.registered import register
from holdfast.saving import Mark, Savable, SaveFailed, write_checkpoint
from holdfast.storage import open_folder

pytestmark = pytest.mark.torch

MARK = Mark("job", 0, 5, "aa", (), Position(1, 2))


def trained(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


@pytest.fixture(params=["memory", "s3"])
def url(request):
    if request.param == "memory":
        return "memory://checkpoints/step-5-aa"
    return f"{request.getfixturevalue('object_store').url}/whole/step-5-aa"


def test_it_is_written_and_loaded(url):
    told = []
    model, optimizer = trained(seed=0)
    ours = Savable(
        register({"model": model, "optimizer": optimizer}),
        save=lambda *arguments: told.append(arguments),
        load=lambda *arguments: told.append(arguments),
    )
    folder = open_folder(url)
    size = write_checkpoint(folder, ours, MARK, Placement())
    assert folder.names() == [".metadata", "__0_0.distcp", "__0_account.json", "__0_own.pt"]
    assert size == sum(map(folder.size, folder.names()))
    with pytest.raises(SaveFailed, match="already holds a checkpoint"):
        write_checkpoint(folder, ours, MARK, Placement())

    other, fresh = trained(seed=1)
    theirs = Savable(register({"model": other, "optimizer": fresh}), ours.save, ours.load)
    assert load_checkpoint(open_folder(url), theirs, Placement()).step == 5
    assert told == [(url, 5)] * 2
    for one, twin in (
        (model.state_dict(), other.state_dict()),
        *zip(optimizer.state.values(), fresh.state.values(), strict=True),
    ):
        assert all(torch.equal(one[key], twin[key]) for key in one)


def test_any_program_can_load_it_with_torch_alone(object_store, tmp_path):
    model, _ = trained(seed=0)
    url = f"{object_store.url}/plain/step-5-aa"
    write_checkpoint(open_folder(url), Savable(register({"model": model})), MARK, Placement())
    client = object_store.client()
    for name in (".metadata", "__0_0.distcp"):
        client.download_file("checkpoints", f"plain/step-5-aa/{name}", str(tmp_path / name))
    found = {"model/0.weight": torch.zeros(4, 3)}
    torch.distributed.checkpoint.load(found, checkpoint_id=str(tmp_path), no_dist=True)
    assert torch.equal(found["model/0.weight"], model[0].weight)
