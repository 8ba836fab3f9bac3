"""The demonstration waits for the end of a page where there was one."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from testing.demo_alerting import JOB, Director
from testing.pager import PAGER, Alert, Notice

from holdfast_sidecar.cli.demonstration.job import Nodes
from holdfast_sidecar.cli.demonstration.screen import LineScreen
from holdfast_sidecar.store.memory_store import MemoryServer, MemoryStore

PAGE = Notice(PAGER, True, 1.0, (Alert("HoldfastNodeLost", JOB, "b", True, "", "", ""),))


@pytest.mark.parametrize(
    ("heard", "awaited"), [([], []), ([PAGE], ["the page to resolve"])], ids=["none", "one"]
)
def test_a_page_that_never_came_is_not_awaited_to_resolve(
    heard: list[Notice], awaited: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(Director, "_find_within", lambda _, what, *rest: asked.append(what))
    receiver = SimpleNamespace(heard=lambda: heard)
    store = MemoryStore(MemoryServer(), JOB)
    director = Director(Nodes(), store, LineScreen(io.StringIO(), 0.0), receiver)  # type: ignore[arg-type]
    director.await_all_clear()
    assert asked == awaited
