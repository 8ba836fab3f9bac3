"""Files that the manifest vouches for and that were made to do harm: nothing of them is run."""

import hashlib
import json
import pickle

import pytest
import torch

from holdfast.contract import page
from holdfast.contract.checkpoint_files import MANIFEST, own_file, seal
from holdfast.contract.storage import LocalFolder
from holdfast.recording.placement import Placement
from holdfast.recording.recorder import Recorder
from holdfast.state.data_position import Position
from holdfast.state.registered import register
from holdfast.state.resuming import Candidate, ResumeFailed, resume
from holdfast.state.saving import Mark, Savable, write_checkpoint

pytestmark = pytest.mark.torch


class Runs:
    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return eval, (f"open({self.path!r}, 'w')",)


@pytest.fixture
def folder(tmp_path):
    saved = LocalFolder(tmp_path / "step-5-aa")
    mark = Mark("job", 0, 5, "aa", (), Position(0, 5))
    write_checkpoint(saved, Savable(register({"model": torch.nn.Linear(2, 1)})), mark, Placement())
    return saved


def promise_all(folder):
    """The manifest, by someone who knows how to make one."""
    data = {name: folder.read(name) for name in folder.names() if name != MANIFEST}
    files = {
        name: {"size": len(text), "sha256": hashlib.sha256(text).hexdigest()}
        for name, text in data.items()
    }
    folder.write(MANIFEST, seal({"files": files}))


def try_to_resume(folder):
    recorder = Recorder(bytearray(page.PAGE_SIZE), 0)
    savable = Savable(register({"model": torch.nn.Linear(2, 1)}))
    return resume([Candidate("aa", folder.url, 5)], savable, Placement(), recorder)


def test_without_harm_it_is_loaded(folder):
    promise_all(folder)
    assert try_to_resume(folder).loaded.step == 5


@pytest.mark.parametrize("name", [".metadata", own_file(0), "__0_0.distcp"])
def test_a_file_that_runs_something_runs_nothing(folder, name, tmp_path, caplog):
    hostile = pickle.dumps(Runs(tmp_path / "ran"))
    folder.write(name, hostile)
    promise_all(folder)
    with pytest.raises(ResumeFailed):
        try_to_resume(folder)
    assert not (tmp_path / "ran").exists()
    assert "can't be loaded" in caplog.text
    pickle.loads(hostile)
    assert (tmp_path / "ran").exists()  # so it would have


def test_an_own_file_of_torchs_with_a_class_in_it_runs_nothing(folder, tmp_path):
    with folder.create(own_file(0)) as stream:
        torch.save({"plain": "{}", "tensors": [Runs(tmp_path / "ran")]}, stream)
    promise_all(folder)
    with pytest.raises(ResumeFailed):
        try_to_resume(folder)
    assert not (tmp_path / "ran").exists()


def test_plain_data_that_names_what_it_must_not_is_refused(folder):
    with folder.open(own_file(0)) as stream:
        own = torch.load(stream, weights_only=True)
    plain = json.loads(own["plain"])
    plain["position"] = {"!": "Popen", "v": {"args": "true"}}
    with folder.create(own_file(0)) as stream:
        torch.save({**own, "plain": json.dumps(plain)}, stream)
    promise_all(folder)
    with pytest.raises(ResumeFailed):
        try_to_resume(folder)
