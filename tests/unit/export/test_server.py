from __future__ import annotations

import contextlib
import dataclasses
import gzip
import http.client
import json
import logging
import socket
import threading
import time
from http import HTTPStatus
from pathlib import Path

import pytest
from tests.unit.export.asking import ask, make_certificate, serving
from tests.unit.export.picture import picture

from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.export import http_server
from holdfast_sidecar.export.access import Certificate, Protection
from holdfast_sidecar.export.http_server import HttpRequest, Response, Server, accepts_gzip
from holdfast_sidecar.export.state import TickState


def test_it_says_what_there_is_to_ask_for() -> None:
    with serving() as (_, port):
        answer = ask(port, "/etc/passwd")
    assert (answer.status, answer.body) == (404, b"here are /metrics, /healthz\n")


def test_a_page_is_told_small_to_those_who_understand_it() -> None:
    with serving() as (exporter, port):
        exporter.tell(picture())
        plain = ask(port, "/metrics?name=x")
        small = ask(port, "/metrics", Accept_Encoding="gzip")
    assert gzip.decompress(small.body).count(b"\n") == plain.body.count(b"\n")
    assert len(small.body) < len(plain.body) / 4
    assert small.headers["content-encoding"] == "gzip"
    assert plain.headers["vary"] == small.headers["vary"] == "Accept-Encoding"
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")


@pytest.mark.parametrize(
    ("header", "understood"),
    [("gzip", True), ("deflate, gzip;q=0.5", True), ("*", True), ("gzip;q=0", False), ("", False)],
)
def test_accept_encoding_is_read_as_it_is_meant(header: str, understood: bool) -> None:
    assert accepts_gzip(header) is understood


def test_head_is_the_same_without_the_body() -> None:
    with serving() as (exporter, port):
        exporter.tell(picture())
        answer = ask(port, "/healthz", "HEAD")
    assert answer.body == b""
    assert int(answer.headers["content-length"]) > 50


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_can_be_changed_here(method: str) -> None:
    with serving() as (_, port):
        assert ask(port, "/metrics", method).status == 501


def test_a_request_that_is_too_long_is_refused() -> None:
    with serving() as (_, port):
        answer = ask(port, "/healthz", Cookie="x" * http_server.MOST_BYTES)
    assert answer.status == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE


def test_a_caller_who_dawdles_is_cut_off_however_steadily_it_writes() -> None:
    near, far = socket.socketpair()
    with near, far:
        reader = http_server.LimitedReader(near, patience_s=0.0)
        far.send(b"G")
        with pytest.raises(TimeoutError):
            reader.readinto(bytearray(10))


def test_a_caller_who_takes_its_answer_slowly_is_cut_off_however_steadily_it_reads() -> None:
    near, far = socket.socketpair()
    with near, far:
        writer = http_server.LimitedWriter(near, patience_s=0.05)
        with pytest.raises(TimeoutError):
            writer.write(bytes(2**24))
        assert far.recv(10) == bytes(10)


@pytest.mark.parametrize("is_secured", [False, True])
@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nX: "])
def test_callers_who_do_not_say_what_they_want_keep_nobody_out(
    tmp_path: Path, said: bytes, is_secured: bool
) -> None:
    pair = make_certificate(tmp_path) if is_secured else None
    protection = None if pair is None else Protection(certificate=Certificate(*pair))
    began_s = time.monotonic()
    with serving(protection) as (_, port), contextlib.ExitStack() as open_ones:
        for _ in range(3 * http_server.MOST_CALLERS):
            stranger = open_ones.enter_context(socket.create_connection(("127.0.0.1", port), 5))
            stranger.sendall(said)
        for _ in range(3):
            assert ask(port, "/healthz", trusted=pair and pair[0]).status == 503
    assert time.monotonic() - began_s < http_server.PATIENCE_S


def test_more_callers_than_there_may_be_are_sent_away_and_room_is_made_again() -> None:
    arrived, go_on = threading.Semaphore(0), threading.Event()

    def slow(request: HttpRequest) -> Response:
        arrived.release()
        go_on.wait(5)
        return Response(b"at last")

    server = Server("127.0.0.1:0")
    server.start(slow)
    answers: list[bytes] = []
    callers = [
        threading.Thread(target=lambda: answers.append(ask(server.port, "/").body))
        for _ in range(http_server.MOST_CALLERS)
    ]
    try:
        for caller in callers:
            caller.start()
        for _ in callers:
            assert arrived.acquire(timeout=5)
        with pytest.raises((http.client.HTTPException, OSError)):
            ask(server.port, "/")
        go_on.set()
        for caller in callers:
            caller.join()
        assert answers == [b"at last"] * http_server.MOST_CALLERS
        until = time.monotonic() + 5
        while server._listening._room._value < http_server.MOST_CALLERS:  # as threads end
            assert time.monotonic() < until
        assert ask(server.port, "/").body == b"at last"
    finally:
        go_on.set()
        server.close()


def test_listening_asks_no_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def unanswered(name: str = "") -> str:
        raise AssertionError("DNS may take half a minute to say nothing")

    monkeypatch.setattr(socket, "getfqdn", unanswered)
    with serving() as (_, port):
        assert ask(port, "/healthz").status == 503


def test_an_address_of_the_newer_kind_is_listened_on() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    with serving(listen="[::1]:0") as (_, port):
        assert ask(port, "/healthz", host="::1").status == 503


def test_an_address_in_use_is_one_clear_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(BadInput, match="choose another --listen"):
            Server(f"127.0.0.1:{taken.getsockname()[1]}")


def test_a_scraper_that_hangs_up_is_no_line_in_the_log_and_an_error_of_ours_is_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server("127.0.0.1:0")
    caplog.set_level(logging.INFO)
    for error in (BrokenPipeError(), KeyError("ours"), KeyError("ours")):
        try:
            raise error
        except (OSError, KeyError):
            server._listening.handle_error(None, ("127.0.0.1", 1))
    server.close()
    assert [record.message for record in caplog.records] == ["can't answer ('127.0.0.1', 1)"]


def test_health_is_about_the_sidecar() -> None:
    with serving() as (exporter, port):
        fresh = ask(port, "/healthz")
        assert (fresh.status, json.loads(fresh.body)["why"]) == (503, "no tick yet")
        exporter.tell(seen_ago(0.5))
        well = ask(port, "/healthz")
        assert well.status == 200
        told = json.loads(well.body)
        assert (told["ok"], told["store_up"], told["is_leader"]) == (True, True, True)
        assert told["findings"] == ["stall"]
        exporter.tell(seen_ago(20.0))
        assert ask(port, "/healthz").status == 503


def seen_ago(age_s: float) -> TickState:
    """A picture that is so old."""
    shown = picture()
    at_s = time.monotonic() - age_s
    return dataclasses.replace(shown, moment=dataclasses.replace(shown.moment, now_s=at_s))


def test_a_scraper_is_known_by_what_only_scrapers_say() -> None:
    asked: list[HttpRequest] = []

    def answer(request: HttpRequest) -> Response:
        asked.append(request)
        return Response(b"")

    server = Server("127.0.0.1:0")
    server.start(answer)
    try:
        ask(server.port, "/metrics")
        ask(server.port, "/metrics", X_Prometheus_Scrape_Timeout_Seconds="10")
    finally:
        server.close()
    assert [request.is_scrape for request in asked] == [False, True]
