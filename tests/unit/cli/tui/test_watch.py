from __future__ import annotations

import threading

from tests.unit.export.live.pretend_views import healthy

from holdfast_sidecar.cli.tui.http_client import MemorySource
from holdfast_sidecar.cli.tui.sources import SourceWatch
from holdfast_sidecar.cli.tui.state import Latest
from holdfast_sidecar.export.live.view import LiveView


class Slow:
    """Answers when it is let."""

    name = "slow"

    def __init__(self) -> None:
        self.asked, self.let = threading.Event(), threading.Event()

    def read(self) -> LiveView:
        self.asked.set()
        assert self.let.wait(10)
        return healthy(4)


def test_who_takes_long_to_answer_holds_nobody_up() -> None:
    source = Slow()
    watch = SourceWatch(source, 0.001)
    watch.start()
    assert source.asked.wait(10)
    assert watch.latest.view is None
    source.asked.clear()
    source.let.set()
    assert source.asked.wait(10)  # asked once more: the answer was taken
    assert watch.latest.view == healthy(4)
    watch.stop()


def test_who_was_just_asked_is_not_asked_at_once_again() -> None:
    """Else the first view of a recording would hardly be seen."""
    source = MemorySource([healthy(4)])
    watch = SourceWatch(source, 3600.0, Latest(healthy(4)))
    thread = threading.Thread(target=watch._run)
    thread.start()
    watch.stop()
    thread.join(10)
    assert not thread.is_alive()
    assert source.reads == 0
