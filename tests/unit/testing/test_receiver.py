"""Who is on call in the demonstration hears notices and serves runbooks, and nothing else."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from testing.alerting import fetch
from testing.pager import Receiver

NOTICE = {
    "status": "firing",
    "alerts": [{"status": "firing", "labels": {"alertname": "A"}, "annotations": {}}],
}


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    (tmp_path / "runbooks").mkdir()
    (tmp_path / "runbooks" / "A.md").write_text("# A")
    (tmp_path / "secret.md").write_text("secret")
    made = Receiver(tmp_path / "runbooks")
    made.start()
    yield made
    made.close()


def post(url: str, body: bytes) -> int:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_notice_is_heard_by_the_receiver_that_it_was_sent_to(receiver: Receiver) -> None:
    assert post(f"{receiver.url}/pager", json.dumps(NOTICE).encode()) == 200
    (heard,) = receiver.heard()
    assert (heard.receiver, heard.names) == ("pager", ["A"])


def test_what_is_no_notice_is_refused(receiver: Receiver) -> None:
    assert post(f"{receiver.url}/pager", b"hello") == 400
    assert receiver.heard() == ()


def test_runbooks_are_served_and_nothing_beside_them(receiver: Receiver) -> None:
    assert fetch(f"{receiver.runbooks_url}/A.md") == b"# A"
    for path in ("B.md", "../secret.md", "%2e%2e/secret.md", ""):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            fetch(f"{receiver.runbooks_url}/{path}")


def test_one_that_was_never_started_can_be_closed(tmp_path: Path) -> None:
    Receiver(tmp_path).close()
