"""torch's index of a checkpoint is read, and nothing in it is run."""

import collections
import pickle
import types

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import metadata
from torch.distributed.checkpoint.filesystem import _StorageInfo as place

from holdfast.contract.storage import LocalFolder
from holdfast.state.restricted_pickle import Refused, load_metadata
from holdfast.state.torch_checkpoint import FolderReader, FolderWriter, torch_checkpoint

pytestmark = pytest.mark.torch


class Runs:
    """Unpickling it the ordinary way calls something."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def index(**changes):
    """What torch writes for one tensor of two chunks, with changes."""
    chunks = [metadata.ChunkStorageMetadata(torch.Size([at]), torch.Size([2])) for at in (0, 2)]
    properties = metadata.TensorProperties(dtype=torch.bfloat16)
    whole = {
        "state_dict_metadata": {
            "model/w": metadata.TensorStorageMetadata(properties, torch.Size([4]), chunks)
        },
        "planner_data": {"model/w": ("model/w",)},
        "storage_data": {
            metadata.MetadataIndex("model/w", [at], 0): place("__0_0.distcp", at, 9)
            for at in (0, 2)
        },
        "storage_meta": metadata.StorageMeta(checkpoint_id="x", save_id="y"),
    }
    return metadata.Metadata(**{**whole, **changes})


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_what_torch_wrote_is_read_as_torch_reads_it(protocol):
    written = index()
    read = load_metadata(pickle.dumps(written, protocol))
    assert read.state_dict_metadata == written.state_dict_metadata
    assert read.storage_data == written.storage_data
    assert {hash(key) for key in read.storage_data} == {hash(key) for key in written.storage_data}


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_what_an_early_python_311_wrote_is_read_too(protocol, monkeypatch):
    def by_attribute(member, _):
        return getattr, (type(member), member.name)

    monkeypatch.setattr(metadata._MEM_FORMAT_ENCODING, "__reduce_ex__", by_attribute)
    written = pickle.dumps(index(), protocol)
    assert b"getattr" in written
    assert load_metadata(written).state_dict_metadata == index().state_dict_metadata


def test_an_attribute_is_looked_up_for_nobody():
    hostile = pickle.dumps(Runs(getattr, metadata.Metadata, "__init__"))
    with pytest.raises(Refused):
        load_metadata(hostile)


def test_every_kind_of_tensor_goes_through_torchs_own_saver_and_loader(tmp_path):
    folder = LocalFolder(tmp_path / "c")
    state = {
        "float": torch.randn(3, 4),
        "half": torch.randn(5).bfloat16(),
        "number": torch.tensor(7),
        "empty": torch.zeros(0, 3),
        "truth": torch.tensor([True, False]),
        "complex": torch.randn(2, dtype=torch.complex64),
        "parameter": torch.nn.Parameter(torch.randn(2)),
    }
    with torch_checkpoint(RuntimeError):
        dcp.save(dict(state), storage_writer=FolderWriter(folder), no_dist=True)
        found = {key: torch.zeros_like(value, requires_grad=False) for key, value in state.items()}
        dcp.load(found, storage_reader=FolderReader(folder), no_dist=True)
        plainly = {key: torch.zeros_like(value) for key, value in found.items()}
        dcp.load(plainly, checkpoint_id=str(tmp_path / "c"), no_dist=True)
    assert sorted(folder.names()) == [".metadata", "__0_0.distcp"]
    for key, value in state.items():
        assert torch.equal(found[key], value)
        assert torch.equal(plainly[key], value)


def test_a_folder_that_holds_a_checkpoint_takes_no_second_one(tmp_path):
    folder = LocalFolder(tmp_path)
    with torch_checkpoint(RuntimeError):
        dcp.save({"a": torch.ones(1)}, storage_writer=FolderWriter(folder), no_dist=True)
    with pytest.raises(RuntimeError, match="already exists"), torch_checkpoint(RuntimeError):
        dcp.save({"a": torch.ones(1)}, storage_writer=FolderWriter(folder), no_dist=True)


def test_nothing_in_it_is_run(tmp_path):
    ran = tmp_path / "ran"
    touch = Runs(eval, f"open({str(ran)!r}, 'w')")
    for hostile in (
        touch,
        index(planner_data=touch),
        index(storage_meta=touch),
        index(state_dict_metadata={"model/w": touch}),
        index(storage_data={"x": touch}),
    ):
        data = pickle.dumps(hostile)
        with pytest.raises(Refused, match=r"builtins\.eval"):
            load_metadata(data)
    assert not ran.exists()
    pickle.loads(data)
    assert ran.exists()  # so it would have been run


@pytest.mark.parametrize(
    "hostile",
    [
        types.SimpleNamespace(),
        collections.OrderedDict(),
        Runs(torch.load, "x"),
        Runs(torch.hub.load, "x"),
        Runs(setattr, "x", "upper", 1),
        Runs(metadata._MEM_FORMAT_ENCODING.__class__, "x"),
    ],
    ids=["a class", "a container", "torch.load", "torch.hub", "setattr", "an enum's maker"],
)
def test_no_other_name_is_looked_up(hostile):
    with pytest.raises(Refused, match="no business there"):
        load_metadata(pickle.dumps(index(planner_data=hostile)))


def test_a_pickle_that_changes_classes_changes_none_of_torchs():
    # GLOBAL Metadata, then BUILD with slot state: sets attributes of the class itself.
    hostile = (
        b"\x80\x02ctorch.distributed.checkpoint.metadata\nMetadata\n"
        b"N}X\x07\x00\x00\x00plantedK\x01s\x86b."
    )
    with pytest.raises(Refused):
        load_metadata(hostile)
    assert not hasattr(metadata.Metadata, "planted")
    assert pickle.loads(hostile).planted == 1  # so it would have
    del metadata.Metadata.planted


def test_pickled_objects_among_the_tensors_are_refused():
    objects = {"model/w": metadata.BytesStorageMetadata()}
    with pytest.raises(Refused, match="'model/w' is a pickled object"):
        load_metadata(pickle.dumps(index(state_dict_metadata=objects)))


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/b", "..", ""])
def test_a_tensor_lies_in_the_checkpoint_and_nowhere_else(name):
    places = {metadata.MetadataIndex("w", [0]): place(name, 0, 9)}
    with pytest.raises(Refused, match="no file of the checkpoint"):
        load_metadata(pickle.dumps(index(storage_data=places)))


def test_transformed_files_are_refused():
    places = {metadata.MetadataIndex("w", [0]): place("a", 0, 9, ["stream.zstd"])}
    with pytest.raises(Refused, match="transformed"):
        load_metadata(pickle.dumps(index(storage_data=places)))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nonsense",
        pickle.dumps(index())[:-20],
        pickle.dumps(None),
        pickle.dumps({"state_dict_metadata": {}}),
        pickle.dumps(index(state_dict_metadata=3)),
        pickle.dumps(index(storage_data={"w": 3})),
        pickle.dumps(index(storage_data=None)),
    ],
    ids=range(8),
)
def test_what_is_no_index_is_an_ordinary_error(data):
    with pytest.raises(Refused):
        load_metadata(data)
