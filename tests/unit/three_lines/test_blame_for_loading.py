"""Which checkpoints are blamed when ranks could not load: enough blame makes one poisoned."""

import contextlib
import hashlib

import pytest
import torch

from holdfast.contract import page
from holdfast.contract.checkpoint_files import MANIFEST, seal
from holdfast.contract.page import Word
from holdfast.contract.storage import LocalFolder
from holdfast.recording.placement import Placement
from holdfast.recording.recorder import Recorder
from holdfast.state.data_position import Position
from holdfast.state.registered import register
from holdfast.state.resuming import Candidate, ResumeFailed, resume
from holdfast.state.saving import Mark, Savable, write_checkpoint

pytestmark = pytest.mark.torch


def savable(width=2):
    return Savable(register({"model": torch.nn.Linear(width, 1)}))


@pytest.fixture
def saved(tmp_path):
    """Candidates of the steps 9 and 5, whole."""
    candidates = []
    for step in (9, 5):
        folder = LocalFolder(tmp_path / f"step-{step}")
        mark = Mark("job", 0, step, str(step), (), Position(0, 0))
        write_checkpoint(folder, savable(), mark, Placement())
        files = {
            name: {
                "size": folder.size(name),
                "sha256": hashlib.sha256(folder.read(name)).hexdigest(),
            }
            for name in folder.names()
        }
        folder.write(MANIFEST, seal({"files": files}))
        candidates.append(Candidate(str(step), folder.url, step))
    return candidates


def blamed(candidates, into):
    recorder = Recorder(bytearray(page.PAGE_SIZE), 0)
    with contextlib.suppress(ResumeFailed):
        resume(candidates, into, Placement(), recorder)
    return recorder.word(Word.RESUME_FAILURES)


def test_one_that_fails_where_an_older_one_loads_is_blamed(saved, tmp_path):
    (tmp_path / "step-9" / ".metadata").write_bytes(b"torn")
    assert blamed(saved, savable()) == 1


def test_none_is_blamed_for_a_script_that_no_checkpoint_fits(saved):
    assert blamed(saved, savable(width=3)) == 0


def test_none_is_blamed_for_storage_that_this_node_does_not_see(saved, tmp_path):
    tmp_path.joinpath("step-9").rename(tmp_path / "elsewhere-9")
    tmp_path.joinpath("step-5").rename(tmp_path / "elsewhere-5")
    assert blamed(saved, savable()) == 0
