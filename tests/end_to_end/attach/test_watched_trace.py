"""A job that torchrun started and that is only watched is traced all the same."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.end_to_end.attach.conftest import TRAINING

if TYPE_CHECKING:
    from tests.end_to_end.attach.conftest import Ground

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]


def test_ranks_that_somebody_else_launched_are_traced_on_request(ground: Ground) -> None:
    torchrun = f"{sys.executable} -m torch.distributed.run --standalone --nproc-per-node=2"
    ground.start("job", "sh", "-c", f"{ground.exports('seen')}\nexec {torchrun} {TRAINING}")
    watch = ground.attach("seen")
    ground.await_ranks(2)
    ground.await_that(lambda: watch.output.count("watching rank") == 2, "both are watched")
    told = ground.holdfast("trace", "--job=seen", "--all", "--timeout=50s", "--json")
    ranks = json.loads(told)["ranks"]
    assert [(one["rank"], one["state"]) for one in ranks] == [(0, "saved"), (1, "saved")]
    assert all(Path(one["collected"]).stat().st_size == one["size_bytes"] for one in ranks)
