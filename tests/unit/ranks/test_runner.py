from __future__ import annotations

import logging

import pytest

from holdfast_sidecar.ranks.ending import ActionRunner


def test_an_action_that_fails_is_counted_logged_once_and_stops_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runner = ActionRunner()

    def fail() -> bool:
        raise OSError("no room")

    with caplog.at_level(logging.ERROR):
        assert [runner.run("keep", fail) for _ in range(3)] == [False, False, False]
    assert runner.run("keep", lambda: True)
    assert not runner.run("keep", lambda: False)
    assert (runner.done["keep"], runner.failed["keep"]) == (1, 3)
    assert len(caplog.records) == 1
