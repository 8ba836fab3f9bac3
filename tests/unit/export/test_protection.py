from __future__ import annotations

import dataclasses
import http.client
import json
import logging
import os
import ssl
from pathlib import Path

import pytest
from tests.servers import required
from tests.unit.export.asking import ask, make_certificate, serving
from tests.unit.export.picture import picture

from holdfast_sidecar.config.settings import BadInput, SidecarSettings
from holdfast_sidecar.export.access import BearerToken, Certificate, Protection, open_protection

SECRET = "0123456789abcdef"


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{SECRET}\n")
    return path


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    required("openssl")
    return make_certificate(tmp_path)


def test_without_the_token_nothing_is_told_but_whether_the_sidecar_is_well(
    token_file: Path,
) -> None:
    with serving(Protection(BearerToken(token_file))) as (exporter, port):
        exporter.tell(picture())
        for shown in ({}, {"Authorization": f"Bearer {SECRET}x"}, {"Authorization": SECRET}):
            refused = ask(port, "/metrics", trusted=None, **shown)
            assert refused.status == 401
            assert refused.headers["www-authenticate"].startswith("Bearer")
            assert b"holdfast_" not in refused.body
            assert ask(port, "/nowhere", trusted=None, **shown).status == 401
            assert set(json.loads(ask(port, "/healthz", trusted=None, **shown).body)) == {"ok"}
        known = {"Authorization": f"bearer {SECRET}"}
        assert b"holdfast_rank_step" in ask(port, "/metrics", trusted=None, **known).body
        assert "leader" in json.loads(ask(port, "/healthz", trusted=None, **known).body)


def test_a_token_that_is_exchanged_is_read_again(
    token_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = BearerToken(token_file)
    exchange(token_file, "fedcba9876543210")
    assert token.admits("Bearer fedcba9876543210")
    assert not token.admits(f"Bearer {SECRET}")
    exchange(token_file, "short")
    for _ in range(3):
        assert token.admits("Bearer fedcba9876543210")
    token_file.unlink()
    for _ in range(3):
        assert token.admits("Bearer fedcba9876543210")
    told = [record.message for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(told) == 2
    assert "at least 16 characters" in told[0]
    assert "No such file" in told[1]
    assert not any("fedcba" in line or "short" in line.split() for line in told)


def exchange(path: Path, text: str) -> None:
    """As those do who write a secret anew: another file under the same name."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    os.replace(fresh, path)


@pytest.mark.parametrize(
    ("content", "says"),
    [("", "at least 16"), ("a" * 15, "at least 16"), ("0123456789 abcdef", "one line of letters")],
)
def test_a_file_that_holds_no_token_is_one_clear_line(
    tmp_path: Path, content: str, says: str
) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    with pytest.raises(BadInput, match=says) as error:
        BearerToken(path)
    assert str(path) in str(error.value)
    assert "0123" not in str(error.value)
    with pytest.raises(BadInput, match="No such file"):
        BearerToken(tmp_path / "none")


def test_over_tls_the_certificate_is_checked_and_plain_text_is_not_understood(
    certificate: tuple[Path, Path],
) -> None:
    with serving(Protection(certificate=Certificate(*certificate))) as (exporter, port):
        exporter.tell(picture())
        trusted = ask(port, "/metrics", trusted=certificate[0])
        assert b"holdfast_rank_step" in trusted.body
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            ask(port, "/metrics")


def test_a_certificate_that_is_exchanged_is_shown_to_the_next_caller(
    certificate: tuple[Path, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "next").mkdir()
    fresh, fresh_key = make_certificate(tmp_path / "next", "renewed")
    old = tmp_path / "old.crt"
    old.write_bytes(certificate[0].read_bytes())
    with serving(Protection(certificate=Certificate(*certificate))) as (_, port):
        assert ask(port, "/healthz", trusted=old).status == 503
        exchange(certificate[0], fresh.read_text())
        # Its key is still the old one: nobody is kept waiting for the other half.
        assert ask(port, "/healthz", trusted=old).status == 503
        exchange(certificate[1], fresh_key.read_text())
        assert ask(port, "/healthz", trusted=fresh).status == 503
        with pytest.raises(ssl.SSLError):
            ask(port, "/healthz", trusted=old)
    assert [r.levelno for r in caplog.records].count(logging.ERROR) == 1


def test_files_that_are_no_certificate_are_one_clear_line(tmp_path: Path) -> None:
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).write_text("nothing")
    with pytest.raises(BadInput, match=r"can't use .*tls\.crt with .*tls\.key"):
        Certificate(tmp_path / "tls.crt", tmp_path / "tls.key")


@pytest.mark.parametrize("listen", ["0.0.0.0:9750", "[::]:0", "10.1.2.3:0", "node7:9750"])
def test_beyond_loopback_it_wants_both_or_a_word_said_aloud(listen: str, token_file: Path) -> None:
    bare = SidecarSettings(listen=listen)
    with pytest.raises(BadInput) as error:
        open_protection(bare)
    line = str(error.value)
    assert "\n" not in line
    for named in ("token_file", "tls_cert_file", "tls_key_file", "--listen-insecure"):
        assert named in line
    with pytest.raises(BadInput) as error:
        open_protection(dataclasses.replace(bare, token_file=str(token_file)))
    assert "token_file" not in str(error.value)
    aloud = dataclasses.replace(bare, listen_insecure=True)
    assert open_protection(aloud) == Protection()
    assert open_protection(dataclasses.replace(aloud, token_file=str(token_file))).token


@pytest.mark.parametrize(
    "listen", ["127.0.0.1:0", "[::1]:9", "localhost:0", ":9750", "127.0.0.2:1"]
)
def test_on_loopback_nothing_is_asked_for(listen: str) -> None:
    opened = open_protection(SidecarSettings(listen=listen))
    assert (opened.token, opened.certificate) == (None, None)


def test_a_certificate_without_its_key_is_one_clear_line() -> None:
    with pytest.raises(BadInput, match="go together"):
        open_protection(SidecarSettings(tls_cert_file="/a.crt"))
