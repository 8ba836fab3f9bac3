"""What the handler for plain torchrun refuses, and what it takes from torchrun's line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch.distributed.elastic.rendezvous import RendezvousParameters  # noqa: E402

from holdfast_sidecar.config.settings import BadInput  # noqa: E402
from holdfast_sidecar.launcher.rendezvous import HoldfastRendezvous  # noqa: E402
from holdfast_sidecar.launcher.torchrun_handler import create  # noqa: E402

if TYPE_CHECKING:
    from tests.servers import Server

Open = Callable[..., HoldfastRendezvous]


@pytest.fixture
def torchrun(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Creates the handler as `torchrun --nproc-per-node=3 train.py` does."""
    for name in [n for n in os.environ if n.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    (tmp_path / "shm").mkdir()
    monkeypatch.setenv("HOLDFAST_SET_PATHS_SHM_DIR", str(tmp_path / "shm"))
    monkeypatch.setenv("HOLDFAST_SET_PATHS_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "argv", ["torchrun", "--nproc-per-node=3", "somewhere/train.py"])
    made: list[HoldfastRendezvous] = []

    def opened(nodes: int = 1, **conf: str) -> HoldfastRendezvous:
        handler = create(
            RendezvousParameters("holdfast", server.settings.url, "j", nodes, nodes, **conf)
        )
        made.append(handler)
        return handler

    yield opened
    for handler in made:
        handler.shutdown()


def test_a_node_reports_as_many_ranks_as_torchrun_starts(torchrun: Open) -> None:
    assert torchrun().reporter.report.slots == 3
    assert torchrun(node="b", slots="5").reporter.report.slots == 5


def test_a_node_that_has_no_room_is_refused(
    torchrun: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_SET_PATHS_SHM_DIR", "/nothing")
    with pytest.raises(BadInput, match="/nothing is no directory"):
        torchrun()


@pytest.mark.parametrize("script", ["train.py", "other.py"])
def test_a_node_with_other_settings_than_the_living_job_is_refused(
    torchrun: Open, server: Server, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torchrun(node="a")
    store = server.store("j")
    store.campaign("someone", 60.0, 0)
    store.close()
    torchrun(node="b")
    monkeypatch.setattr(sys, "argv", ["torchrun", script])
    with pytest.raises(BadInput, match="running with other settings"):
        torchrun(2 if script == "train.py" else 1, node="c")
