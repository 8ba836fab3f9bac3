from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re

from holdfast_sidecar.export.http_server import HttpRequest
from holdfast_sidecar.export.live.routes import FILES, SCRIPTS, LivePage, document, security
from holdfast_sidecar.export.live.view import LEVELS, LOWEST, STEP, VERSION
from holdfast_sidecar.performance.goodput.summary import IN_VIEWS

MOST_BYTES = 100_000


def page() -> str:
    return LivePage().answer(HttpRequest("/"), None).body.decode()


def test_the_page_is_small() -> None:
    assert len(document()) < MOST_BYTES
    assert len(gzip.compress(document())) < 20_000


def test_every_file_is_in_the_page() -> None:
    assert {path.name for path in FILES.glob("*.js")} == set(SCRIPTS)
    for name in (*SCRIPTS, "page.css"):
        assert (FILES / name).read_text() in page()


def test_what_time_was_spent_on_is_named_as_in_the_report_and_has_a_colour() -> None:
    assert f"const CATEGORY_WORDS = {json.dumps(IN_VIEWS)};" in page()
    (colours,) = re.findall(r"CATEGORY_COLOURS = \{(.*?)\};", page(), re.S)
    assert set(re.findall(r"(\w+): \[", colours)) == set(IN_VIEWS)


def test_the_page_names_no_other_place() -> None:
    assert re.findall(r"(?:https?:)?//[a-z]", page()) == []
    assert re.findall(r"<(?:link|script|img|iframe)[^>]+(?:src|href)=\"(?!data:,)", page()) == []


def test_nothing_in_the_page_takes_markup_or_code_from_texts() -> None:
    dangerous = r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function|srcdoc"
    assert re.findall(dangerous, page()) == []


def test_the_policy_allows_this_script_and_this_style_alone() -> None:
    policy = security()["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for tag, name in (("script", "script-src"), ("style", "style-src")):
        (inner,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page(), re.S)
        digest = base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}'" in policy


def test_the_page_is_open_as_it_tells_nothing_of_the_job() -> None:
    assert LivePage().is_open
    assert LivePage().answer(HttpRequest("/"), None) == LivePage().answer(HttpRequest("/?a"), None)


def test_the_script_reads_levels_as_they_are_written() -> None:
    said = (FILES / "unpacking.js").read_text()
    assert f"VERSION = {VERSION}, NOTHING = 0, LEVELS = {LEVELS}" in said
    assert f"LOWEST = {LOWEST}, STEP = {STEP}" in said
