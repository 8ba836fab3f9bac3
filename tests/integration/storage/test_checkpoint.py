"""A checkpoint on any storage: written whole, loaded again, and a full disk told as one."""

import errno
import io
from contextlib import contextmanager

import pytest
import torch

from holdfast.contract.checkpoint_files import MARK as FOLDER_MARK
from holdfast.contract.storage import LocalFolder, NotOurs, open_folder
from holdfast.recording.placement import Placement
from holdfast.state.checkpoint_source import load_checkpoint
from holdfast.state.data_position import Position
from holdfast.state.registered import register
from holdfast.state.saving import Mark, Savable, SaveFailed, write_checkpoint
from holdfast_sidecar.checkpoint.directory import CheckpointDirectory
from holdfast_sidecar.checkpoint.manifest import hash_files, list_files
from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.records.checkpoint import CheckpointOrder, SavedPart
from holdfast_sidecar.records.plan import Member, Plan

pytestmark = pytest.mark.torch

PLAN = Plan(0, 1, "running", [Member("a", "1", 0, 0, 1)], 1)
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
    own = ["__0_0.distcp", "__0_account.json", "__0_own.pt"]
    assert folder.names() == [".metadata", *own, "holdfast.json"]
    assert size == sum(map(folder.size, [".metadata", *own]))
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


class FullDisk(io.RawIOBase):
    """Takes so many bytes and no more."""

    def __init__(self, room):
        self.room = room
        self.taken = 0

    def writable(self):
        return True

    def write(self, data):
        if self.taken + len(data) > self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.taken += len(data)
        return len(data)

    def tell(self):
        return self.taken


@pytest.mark.parametrize("torchs", [False, True], ids=["the rank's own file", "torch's files"])
@pytest.mark.parametrize("room", [100, 3000, 20_000])
def test_a_full_disk_is_told_as_what_it_is(tmp_path, monkeypatch, room, torchs):
    create = LocalFolder.create

    @contextmanager
    def create_on_a_full_disk(folder, name):
        with create(folder, name) as stream:
            is_full = torchs == name.endswith("p") and name != FOLDER_MARK
            yield io.BufferedWriter(FullDisk(room)) if is_full else stream

    monkeypatch.setattr(LocalFolder, "create", create_on_a_full_disk)
    large = torch.nn.BatchNorm1d(100_000)
    with pytest.raises((OSError, SaveFailed), match="No space left on device"):
        write_checkpoint(
            LocalFolder(tmp_path), Savable(register({"model": large})), MARK, Placement()
        )


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


def test_on_an_object_store_only_keys_that_our_own_manifest_names_are_removed(object_store):
    """A user's checkpoints and a user's file among ours stay; nothing is removed by prefix."""
    root, client = f"{object_store.url}/retained", object_store.client()
    checkpoints = CheckpointDirectory("job", CheckpointSettings(dir=root, keep=1))
    theirs = ["step-1000/model.pt", "step-00000006-bb/mine.txt", "step-00000005-aa-mine/a"]
    for key in theirs:
        client.put_object(Bucket="checkpoints", Key=f"retained/{key}", Body=b"precious")
    with pytest.raises(NotOurs):
        save(checkpoints, 6, "bb")
    for step, identifier in ((5, "aa"), (7, "cc"), (8, "dd")):
        save(checkpoints, step, identifier)
        if identifier == "cc":
            client.put_object(
                Bucket="checkpoints", Key="retained/step-00000007-cc/mine.txt", Body=b"precious"
            )
    checkpoints.tidy(checkpoints.entries()[0], PLAN)
    listed = client.list_objects_v2(Bucket="checkpoints", Prefix="retained/")["Contents"]
    left = [entry["Key"].removeprefix("retained/") for entry in listed]
    assert set(theirs) < set(left)
    assert not [key for key in left if key.startswith("step-00000005-aa/")]
    assert len([key for key in left if key.startswith("step-00000007-cc/")]) > 3
    assert len([key for key in left if key.startswith("step-00000008-dd/")]) > 3


def save(checkpoints, step, identifier):
    model, optimizer = trained(seed=0)
    folder = open_folder(checkpoints.path(step, identifier))
    ours = Savable(
        register({"model": model, "optimizer": optimizer}),
        save=lambda path, step: folder.write("deep/own.pt", b"x"),
        load=lambda path, step: None,
    )
    mark = Mark("job", 0, step, identifier, ("aa", "cc"), Position(0, 0))
    write_checkpoint(folder, ours, mark, Placement())
    part = SavedPart(identifier, {"0": "saved"}, hash_files(folder, list_files(folder, [0])))
    order = CheckpointOrder(identifier, 0, 1, step, folder.url, "armed", 60.0)
    checkpoints.finish(order, PLAN, [part])
    assert "deep/own.pt" in checkpoints.kept()[0].manifest.files
