"""A run's account for people: on the terminal, and as a page with plots."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.unit.performance.goodput.test_reliability import ACCOUNT, CRASH, HANG
from tests.unit.records import slow_job

from holdfast_sidecar.cli import report_pages
from holdfast_sidecar.cli.main import cli
from holdfast_sidecar.cli.report_html import COLOURS
from holdfast_sidecar.cli.report_html import page as html_page
from holdfast_sidecar.config.settings import CostSettings
from holdfast_sidecar.export.job_record import JobRecord
from holdfast_sidecar.performance.goodput.summary import CATEGORIES, PHASES, Summary, sum_up
from holdfast_sidecar.records.account import Account, Category, Phase
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.reports import Performance

PRICE = CostSettings(per_gpu_hour=3.6, currency="EUR")
INCIDENTS = {one.identifier: one for one in (HANG, CRASH)}


def summary(account: Account = ACCOUNT, price: CostSettings = PRICE) -> Summary:
    return sum_up(account, INCIDENTS, price)


def test_every_category_and_phase_has_its_words_and_its_colour() -> None:
    assert set(CATEGORIES) == {category.value for category in Category} == set(COLOURS)
    assert set(PHASES) == {phase.value for phase in Phase}


def test_the_page_tells_where_the_time_went_what_incidents_cost_and_what_would_help() -> None:
    told = report_pages.account_page(summary(), "GPU hours")
    assert "goodput        80.0 % of it was productive and stands" in told
    assert re.search(r"\S%", told) is None, "one way to write a part of a hundred"
    assert "without use    0.18 GPU hours, 0.64 EUR" in told
    assert "1, one in 6 min 40 s; seen after 2.0 s; mended after 10.0 s in the mean" in told
    assert re.search(r"productive steps +█+ +5 min 40 s +68 % +0\.76", told)
    assert re.search(r"i1 +hang +b +10\.0 s +20 steps, 20\.0 s +0\.07 +0\.24", told)
    assert re.search(r"i2 +crash +- +not over +- +- +-", told)
    assert re.search(
        r"10 % +saving, 40\.0 s: save more seldom; a script that lacks the three", told
    )


def test_without_a_price_nothing_is_told_in_money() -> None:
    told = report_pages.account_page(summary(price=CostSettings()), "rank hours")
    assert "EUR" not in told
    assert "0.18 rank hours" in told


def test_a_run_that_has_only_begun_has_a_page_too() -> None:
    young = Account(1000, 1000, "queued", gpus=2)
    told = report_pages.account_page(sum_up(young, {}, CostSettings()), "GPU hours")
    assert "none so far" in told
    assert "goodput" not in told
    assert "<svg" in html_page("j", sum_up(young, {}, CostSettings()), None, "GPU hours", 0.0)


class Strict(HTMLParser):
    """Every tag is closed in its turn, and nothing is fetched from anywhere."""

    VOID = frozenset({"meta"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "img", "iframe"), tag
        assert not {"src", "href"} & {name for name, _ in attrs}, attrs
        if tag not in self.VOID and not self.get_starttag_text().endswith("/>"):  # type: ignore[union-attr]
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("rect", "line") or (self.open and self.open[-1] == tag):
            assert self.open.pop() == tag


def html(job: str = "chargpt") -> str:
    efficiency = replace(
        slow_job.EFFICIENCY, parts_us={"forward": 80_000.0, "data": 2_000.0, "lost": 900.0}
    )
    standing = replace(slow_job.STANDING, efficiency=efficiency)
    return html_page(job, summary(), Performance(1000.0, 8, standing), "GPU hours", 2000.0)


def test_the_page_with_plots_is_whole_and_needs_nothing_else() -> None:
    page = html()
    parser = Strict()
    parser.feed(page)
    assert parser.open == []
    assert "http" not in page
    assert "url(" not in page
    for picture in re.findall(r"<svg.*?</svg>", page, re.S):
        ElementTree.fromstring(picture)
    assert page.count("<svg") == 5


def test_the_bars_of_the_whole_and_of_what_was_not_productive_fill_the_picture() -> None:
    picture = re.search(r"<svg.*?</svg>", html(), re.S)
    assert picture is not None
    widths = [float(width) for width in re.findall(r'<rect [^>]*width="([\d.]+)"', picture[0])]
    assert sum(widths) == pytest.approx(2 * 960.0, abs=0.1)
    assert widths[0] == pytest.approx(0.68 * 960, abs=0.1)


def test_names_that_look_like_tags_stay_words() -> None:
    page = html("<script>alert(1)</script>")
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def record(root: Path) -> None:
    fields = {"began": "1000000000", "at": "1500000000", "open": "", "run": "1000.0"}
    spent = {"s:productive": "400000000", "s:restart": "100000000", "g:productive": "800000000"}
    kept = JobRecord("done", 0, 9, 0, "", "", began_unix_s=1000.0, account=fields | spent)
    place = root / "chargpt" / "a"
    place.mkdir(parents=True)
    (place / "job.json").write_text(encode(kept))


def test_a_run_that_is_over_is_reported_from_what_this_machine_kept(tmp_path: Path) -> None:
    record(tmp_path)
    away = [f"--set=paths.state_dir={tmp_path}", "--redis=redis://127.0.0.1:1/0"]
    told = CliRunner().invoke(cli, ["report", "chargpt", *away])
    assert told.exit_code == 0, told.output
    assert "goodput        80.0 % of it was productive" in told.output
    file = tmp_path / "report.html"
    told = CliRunner().invoke(cli, ["report", "chargpt", *away, "--html", str(file)])
    assert told.exit_code == 0, told.output
    assert "productive steps 80 %" in file.read_text()
    told = CliRunner().invoke(cli, ["report", "chargpt", *away, "--html", "/nowhere/r.html"])
    assert told.exit_code == 2
    assert "can't write /nowhere/r.html: No such file or directory" in told.output
    told = CliRunner().invoke(cli, ["report", "chargpt", *away, "--html", str(file), "--json"])
    assert told.exit_code == 2
    assert "--json or --html: one of them" in told.output
