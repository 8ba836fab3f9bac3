"""A Grafana that answers a byte at a time."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from click.testing import Result
from tests.extras import package

from holdfast_sidecar.cli import dashboards
from holdfast_sidecar.cli.grafana.client import AFTERWARDS_S, Deadline, OutOfTime

DRIPS = 100
DRIP_S = 0.05


class Dripping(BaseHTTPRequestHandler):
    """Takes five seconds to say nothing, and is never silent."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(DRIPS))
        self.end_headers()
        for _ in range(DRIPS):
            try:
                self.wfile.write(b" ")
            except OSError:
                return
            time.sleep(DRIP_S)

    def log_message(self, *given: object) -> None:
        """Tests say what they have to say by themselves."""


@contextmanager
def dripping() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Dripping) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_an_answer_that_drips_is_given_up_in_one_line(
    holdfast: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    package("grafana_client")
    monkeypatch.setattr(dashboards, "PUSH_LIMIT_S", 0.3)
    began_s = time.monotonic()
    with dripping() as url:
        result = holdfast("push", "--grafana", url)
    assert time.monotonic() - began_s < DRIPS * DRIP_S / 2
    assert result.exit_code == 2
    assert result.stderr.startswith(f"holdfast: Grafana at {url} answers too slowly: ")
    assert "asked to tell its version" in result.stderr
    assert result.stderr.count("\n") == 1


def test_all_requests_share_the_time_and_what_is_put_back_has_some_of_its_own() -> None:
    deadline = Deadline(60.0)
    with deadline.over_request():
        assert 59.0 < left_s() <= 60.0
        signal.setitimer(signal.ITIMER_REAL, 15.0)  # as if it had taken 45 s
    with deadline.over_request():
        assert 14.0 < left_s() <= 15.0
        signal.setitimer(signal.ITIMER_REAL, 0.05)
    with pytest.raises(OutOfTime), deadline.over_request():
        signal.pause()
    for _ in range(2):
        with deadline.over_request():
            assert AFTERWARDS_S - 1.0 < left_s() <= AFTERWARDS_S


def left_s() -> float:
    return signal.getitimer(signal.ITIMER_REAL)[0]


def test_whose_alarm_was_set_before_still_has_it() -> None:
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: rung.append(number))
    old = signal.setitimer(signal.ITIMER_REAL, 1000.0)
    try:
        with pytest.raises(OutOfTime), Deadline(0.01).over_request():
            signal.pause()
        assert 990.0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 1000.0
        signal.raise_signal(signal.SIGALRM)
        assert rung == [signal.SIGALRM]
    finally:
        signal.setitimer(signal.ITIMER_REAL, *old)
        signal.signal(signal.SIGALRM, before)
