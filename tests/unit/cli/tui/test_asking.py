"""One request to a real server on loopback: what it may answer, and what is made of that."""

from __future__ import annotations

import gzip
import http.client
import ssl
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from tests.servers import required
from tests.unit.export.live.pretend_views import healthy

from holdfast_sidecar.cli.tui import http_client
from holdfast_sidecar.cli.tui.http_client import (
    Access,
    AccessRefused,
    Away,
    address_of,
    ask,
    read_all,
    read_token,
    unzipped,
)
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.export.live.packing import pack

VIEW = pack(healthy(4))


@dataclass
class Sidecar:
    """Answers everything in the same way."""

    body: bytes = VIEW
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    heard: list[tuple[str, str]] = field(default_factory=list)
    address: str = ""


@pytest.fixture
def sidecar(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Sidecar]:
    said = Sidecar()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            said.heard.append((self.path, self.headers.get("Authorization", "")))
            self.send_response(said.status)
            for name, value in said.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(said.body)

        def log_message(self, *given: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    said.address = f"127.0.0.1:{server.server_address[1]}"
    if certificate := getattr(request, "param", None):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*make_certificate(tmp_path, certificate))
        server.socket = context.wrap_socket(server.socket, server_side=True)
        said.address = f"https://{said.address}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield said
    server.shutdown()
    server.server_close()


def make_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    required("openssl")
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
            *("-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


def test_a_view_comes_over_http_plain_or_compressed(sidecar: Sidecar) -> None:
    assert ask(sidecar.address, Access()).run == "llm"
    sidecar.body, sidecar.headers = gzip.compress(VIEW), {"Content-Encoding": "gzip"}
    assert len(ask(sidecar.address, Access()).ranks) == 4
    assert sidecar.heard == [("/live.json", "")] * 2


def test_no_proxy_comes_between(sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert ask(sidecar.address, Access()).run == "llm"


def test_the_token_is_shown_and_read_anew_each_time(sidecar: Sidecar, tmp_path: Path) -> None:
    file = tmp_path / "token"
    access = Access(token_file=str(file))
    for token in ("first-0123456789", "second-0123456789"):
        file.write_text(f"{token}\n")
        ask(sidecar.address, access)
    assert [shown for _, shown in sidecar.heard] == [
        "Bearer first-0123456789",
        "Bearer second-0123456789",
    ]


@pytest.mark.parametrize(
    ("address", "is_shown"),
    [
        ("127.0.0.1:9750", True),
        ("[::1]:9750", True),
        ("localhost:9750", True),
        ("https://node7:9750", True),
        ("node7:9750", False),
        ("10.0.0.7:9750", False),
        ("127.0.0.1.example:9750", False),
        ("http://127.0.0.1@node7:9750", False),
        ("[127.0.0.1", False),
    ],
)
def test_a_token_leaves_this_machine_under_tls_alone(
    tmp_path: Path, address: str, is_shown: bool
) -> None:
    (tmp_path / "token").write_text("0123456789abcdef")
    access = Access(token_file=str(tmp_path / "token"))
    assert bool(access.headers(address)) is is_shown
    secured = replace(access, only_secured=True)
    assert bool(secured.headers(address)) is address.startswith("https://")


def test_who_wants_a_token_that_is_not_shown_in_the_clear_is_told_so(
    sidecar: Sidecar, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("0123456789abcdef")
    sidecar.status = 401
    with pytest.raises(
        AccessRefused, match=r"over plain http it is shown to sidecars of this machine"
    ):
        ask(sidecar.address, Access(token_file=str(tmp_path / "token"), only_secured=True))
    assert sidecar.heard == [("/live.json", "")]


def test_a_redirect_is_not_followed_with_the_token(sidecar: Sidecar, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("0123456789abcdef")
    sidecar.status, sidecar.headers = 302, {"Location": f"http://{sidecar.address}/elsewhere"}
    with pytest.raises(Away, match="HTTP status 302"):
        ask(sidecar.address, Access(token_file=str(tmp_path / "token")))
    assert len(sidecar.heard) == 1


@pytest.mark.parametrize(
    ("status", "kind", "says"),
    [
        (401, AccessRefused, "wants a token, or another one: name its file with --token-file"),
        (403, AccessRefused, "wants a token"),
        (404, AccessRefused, "serves no /live.json: it is no sidecar, or an older one"),
        (503, Away, "answers with HTTP status 503"),
    ],
)
def test_who_won_t_tell_is_told_from_who_can_t(
    sidecar: Sidecar, status: int, kind: type[Away], says: str
) -> None:
    sidecar.status = status
    with pytest.raises(kind, match=says) as told:
        ask(sidecar.address, Access())
    assert type(told.value) is kind


@pytest.mark.parametrize("body", [b"", b"{}", b"<html>", b"\xff\xfe", b"[1]", VIEW[:-9]])
def test_what_is_no_view_is_not_shown(sidecar: Sidecar, body: bytes) -> None:
    sidecar.body = body
    with pytest.raises(Away, match="something that is no view"):
        ask(sidecar.address, Access())


@pytest.mark.parametrize(
    "body", [VIEW, gzip.compress(VIEW)[:40], b"\x1f\x8b"], ids=["not at all", "half", "head alone"]
)
def test_what_is_badly_compressed_is_not_shown_either(sidecar: Sidecar, body: bytes) -> None:
    sidecar.body, sidecar.headers = body, {"Content-Encoding": "gzip"}
    with pytest.raises(Away):
        ask(sidecar.address, Access())


def test_a_port_where_nobody_listens_is_one_line(sidecar: Sidecar) -> None:
    with pytest.raises(Away, match=r"^127.0.0.1:1 does not answer: Connection refused$"):
        ask("127.0.0.1:1", Access())


def test_an_answer_has_a_size_and_a_time_within_which_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_client, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match="too large"):
        read_all(lambda _: b"x" * 600, lambda: 0.0, 2.0)
    with pytest.raises(ValueError, match="too large"):
        unzipped(gzip.compress(b"x" * 1001))
    clock = iter(range(99))
    with pytest.raises(ValueError, match="takes too long"):
        read_all(lambda _: b"x", lambda: float(next(clock)), 2.0)


@pytest.mark.parametrize("sidecar", ["node7.example"], indirect=True)
def test_a_sidecar_is_known_by_its_own_certificate_under_any_address(
    sidecar: Sidecar, tmp_path: Path
) -> None:
    pinned = Access(pinned_file=str(tmp_path / "node7.example.pem"))
    assert ask(sidecar.address, pinned).run == "llm"
    other, _ = make_certificate(tmp_path, "other")
    for access in (Access(), Access(pinned_file=str(other)), Access(ca_file=str(other))):
        with pytest.raises(AccessRefused, match="a certificate that is not believed"):
            ask(sidecar.address, access)
    # Of an authority, the name has to be right as well.
    with pytest.raises(AccessRefused):
        ask(sidecar.address, Access(ca_file=str(tmp_path / "node7.example.pem")))


@pytest.mark.parametrize("sidecar", ["localhost"], indirect=True)
def test_with_an_authority_the_name_counts(sidecar: Sidecar, tmp_path: Path) -> None:
    address = sidecar.address.replace("127.0.0.1", "localhost")
    assert ask(address, Access(ca_file=str(tmp_path / "localhost.pem"))).run == "llm"


@pytest.mark.parametrize(
    ("field_of_it", "content", "says"),
    [
        ("ca_file", "nonsense", "can't be used as a certificate"),
        ("ca_file", None, "can't be used as a certificate: No such file or directory"),
        ("pinned_file", "nonsense", "can't be used as a certificate: it holds none"),
    ],
)
def test_a_certificate_that_is_none_is_told_in_one_line(
    tmp_path: Path, field_of_it: str, content: str | None, says: str
) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_text(content)
    with pytest.raises(BadInput, match=says):
        Access(only_secured=False, **{field_of_it: str(path)}).context()


@pytest.mark.parametrize("content", [b"", b"two words\n", b"\xff\xfe", b"a\nb\n"])
def test_a_token_that_is_none_is_told_without_what_it_holds(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(BadInput) as told:
        read_token(path)
    assert "words" not in str(told.value)
    with pytest.raises(BadInput, match="No such file"):
        read_token(tmp_path / "missing")


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("127.0.0.1:9750", "127.0.0.1:9750"),
        ("http://node7:9750/", "node7:9750"),
        ("http://node7:9750/live.json", "node7:9750"),
        ("https://node7:9750", "https://node7:9750"),
        ("http://[fd00::7]:9750", "[fd00::7]:9750"),
    ],
)
def test_an_address_is_taken_as_people_write_it(url: str, address: str) -> None:
    assert address_of(url) == address


@pytest.mark.parametrize(
    "url", ["", "node7", "file:///etc/passwd", "http://node7:x", "http://[x", "http://a:b" + "@c:1"]
)
def test_what_is_no_address_is_told_in_one_line(url: str) -> None:
    with pytest.raises(BadInput):
        address_of(url)


def test_what_somebody_else_answers_there_steers_no_terminal() -> None:
    told = http_client._away("127.0.0.1:1", http.client.BadStatusLine("\x1b]0;mine\x07\x1b[2J"))
    assert "mine" in str(told)
    assert "\x1b" not in str(told)
