"""The leader's page in a real browser."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.chromium import Visit, visit
from tests.integration.page.site import Site
from tests.unit.export.picture import ACCOUNT, INCIDENTS
from tests.unit.ranks.large_job import Job, picture

from holdfast_sidecar.export.access import BearerToken, Protection
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.formatting import span
from holdfast_sidecar.records.plan import Incident

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Position

pytestmark = pytest.mark.browser

MOST_BYTES = 150_000

PICTURE = Path(__file__).parents[3] / "docs" / "pictures" / "page.png"

GUTTER = 64
"""Left of the map, for the ranks' numbers."""

CELL = """([row, column]) => {
  const canvas = document.getElementById('heat'), ratio = devicePixelRatio;
  const size = sizes(map.rows.length, map.view.heat.columns.length, canvas.clientWidth);
  const left = (64 + (column + 0.5) * size.wide) * ratio, top = (row + 0.5) * size.high * ratio;
  return [...canvas.getContext('2d').getImageData(left, top, 1, 1).data];
}"""
"""The colour of the map's cell."""


def shown(visited: Visit, site: Site) -> None:
    """Go there, and wait for the first data."""
    visited.page.goto(site.address)
    until(visited, "watch.view !== null")


def until(visited: Visit, statement: str) -> None:
    """Wait until it is true. Playwright's own wait has the page evaluate a text, which the page's
    policy forbids."""
    end_s = time.monotonic() + 20.0
    while not visited.page.evaluate(statement):
        assert time.monotonic() < end_s, statement
        time.sleep(0.02)


def cell(visited: Visit, row: int, column: int) -> tuple[int, ...]:
    return tuple(visited.page.evaluate(CELL, [row, column]))


def text(visited: Visit, selector: str) -> str:
    return visited.page.locator(selector).inner_text()


def brightness(colour: tuple[int, ...]) -> float:
    return 0.2126 * colour[0] + 0.7152 * colour[1] + 0.0722 * colour[2]


@pytest.mark.parametrize("ranks", [4, 1024])
def test_the_map_shows_the_slow_rank_and_the_page_complains_of_nothing(
    browser: Browser, site: Site, ranks: int
) -> None:
    site.live(Job(ranks, per_node=min(8, ranks), slow=3, incidents={}))
    with visit(browser) as visited:
        shown(visited, site)
        usual = [cell(visited, row, 10) for row in (0, 1)]
        slow = cell(visited, 3, 10)
        assert all(colour[3] == 255 for colour in usual)
        assert brightness(slow) < min(map(brightness, usual)) - 20
        assert slow[0] > slow[2] + 40  # orange: apart from blue for every colour vision
        assert visited.page.title() == "● llm – Holdfast"
        assert "rank 3 on node-0" in text(visited, "#headline")
        assert visited.complaints == []
        assert visited.hosts == {site.host}


def test_in_the_dark_slow_is_brighter_than_usual(browser: Browser, site: Site) -> None:
    site.live(Job(16, slow=3))
    with visit(browser, color_scheme="dark") as visited:
        shown(visited, site)
        assert brightness(cell(visited, 3, 10)) > brightness(cell(visited, 0, 10)) + 20
        ground = visited.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == "rgb(18, 22, 26)"


def test_pointing_at_a_cell_tells_what_it_is(browser: Browser, site: Site) -> None:
    site.live(Job(64))
    with visit(browser) as visited:
        shown(visited, site)
        size = visited.page.evaluate("sizes(64, 30, document.getElementById('heat').clientWidth)")
        at: Position = {"x": GUTTER + 10.5 * size["wide"], "y": 5.5 * size["high"]}
        visited.page.locator("#heat").hover(position=at)
        told = text(visited, "#cell")
        assert told.startswith("rank 5 on node-0")
        assert "step" in told
        assert "1.3" in told.partition("own work")[2]


def test_of_a_thousand_ranks_the_slow_one_is_seen_and_hit(browser: Browser, site: Site) -> None:
    site.live(Job(1024, slow=517), 3)
    with visit(browser) as visited:
        shown(visited, site)
        usual, beside = cell(visited, 500, 1), cell(visited, 516, 1)
        assert brightness(beside) < brightness(usual) - 20
        wide = visited.page.evaluate(
            "sizes(1024, 3, document.getElementById('heat').clientWidth).wide"
        )
        visited.page.locator("#heat").hover(position={"x": GUTTER + 1.5 * wide, "y": 516.5})
        assert text(visited, "#cell").startswith("rank 517 on node-64")
        visited.page.get_by_label("slowest first").check()
        assert visited.page.evaluate("map.rows.length") == 64
        assert visited.page.evaluate("map.rows[0].rank") == 517


def test_the_map_is_read_by_keys_too(browser: Browser, site: Site) -> None:
    site.live(Job(64))
    with visit(browser) as visited:
        shown(visited, site)
        visited.page.locator("#heat").focus()
        for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowLeft"):
            visited.page.keyboard.press(key)
        assert text(visited, "#cell").startswith("rank 2 on node-0")
        visited.page.keyboard.press("Home")
        assert visited.page.evaluate("map.at.column") == 0


def test_rows_may_be_the_slowest_first_and_colours_the_phases(browser: Browser, site: Site) -> None:
    site.live(Job(64, slow=37))
    with visit(browser) as visited:
        shown(visited, site)
        visited.page.get_by_label("slowest first").check()
        assert visited.page.evaluate("map.rows[0].rank") == 37
        before = cell(visited, 0, 10)
        visited.page.get_by_label("phase", exact=True).check()
        assert cell(visited, 0, 10) != before
        assert "communicating" in text(visited, "#heat-legend")


def test_all_ranks_stand_in_a_table_for_those_who_see_no_canvas(
    browser: Browser, site: Site
) -> None:
    site.live(Job(1024), seconds=3)
    with visit(browser) as visited:
        shown(visited, site)
        assert visited.page.locator("#rank-table tr").count() == 0
        visited.page.locator("#ranks summary").click()
        visited.page.locator("#rank-table tbody tr").nth(1023).wait_for()
        assert visited.page.locator("#rank-table tbody tr").count() == 1024
        row = visited.page.locator("#rank-table tbody tr").nth(5)
        assert "+31.0 % cpu_quota" in row.inner_text()


def test_an_incidents_story_opens_and_stays_open(browser: Browser, site: Site) -> None:
    site.live(Job(16))
    with visit(browser) as visited:
        shown(visited, site)
        hang = visited.page.locator("#incidents details").last
        assert not hang.locator("ol").is_visible()
        hang.locator("summary").click()
        assert "first sign of trouble" in hang.locator("ol").inner_text()
        assert "holdfast explain i1" in hang.inner_text()
        site.live(Job(16, state="ended"), 1)
        visited.page.evaluate("ask()")
        until(visited, "watch.view.state === 'ended'")
        assert hang.locator("ol").is_visible()


def lately(began_unix_s: float) -> dict[str, Incident]:
    """A hang and a crash in the ten minutes before."""
    hang = dataclasses.replace(
        INCIDENTS["i1"],
        culprit_node="node-4",
        culprit_ranks=[37],
        confidence=0.94,
        since_unix_s=began_unix_s - 420,
        detected_unix_s=began_unix_s - 405,
        recovered_unix_s=began_unix_s - 377,
        step_reached=984,
        step_resumed=976,
        evidence=["rank 37: in all_reduce (train.py:88), while 63 peers wait for it"],
    )
    crash = dataclasses.replace(
        hang,
        identifier="i4",
        cause="crash",
        culprit_node="node-1",
        culprit_ranks=[12],
        since_unix_s=began_unix_s - 120,
        detected_unix_s=began_unix_s - 119.8,
        recovered_unix_s=began_unix_s - 101,
        evidence=["rank 12: ValueError: a sample of length 0, in load (data.py:31)"],
    )
    return {"i1": hang, "i4": crash}


def test_the_timeline_leads_to_the_story(browser: Browser, site: Site) -> None:
    site.live(Job(64, incidents=lately(1_000_000.0)))
    with visit(browser) as visited:
        shown(visited, site)
        left = visited.page.evaluate("timeline.marks.find((mark) => mark.id === 'i1').left")
        visited.page.locator("#timeline").click(position={"x": left + 1, "y": 15})
        assert visited.page.evaluate("document.activeElement.parentNode.dataset.id") == "i1"
        assert "Rank 37 on node node-4 hung" in text(visited, "#incidents details[open]")


HOSTILE = "<img src=x onerror=window.taken=1><script>window.taken=1</script>"


def test_what_a_job_calls_itself_is_shown_and_never_run(browser: Browser, site: Site) -> None:
    evil: dict[str, Any] = {"message": HOSTILE, "exit_code": 1}
    job = Job(16, names=HOSTILE + "{}", state="stopped", plan=evil)
    job.incidents["i1"] = _renamed(job.incidents["i1"])
    site.live(job, 3)
    with visit(browser) as visited:
        shown(visited, site)
        visited.page.locator("#ranks summary").click()
        assert HOSTILE in text(visited, "#headline")
        assert f"{HOSTILE}1" in text(visited, "#nodes")
        assert HOSTILE in visited.page.locator("#incidents").inner_text()
        assert visited.page.locator("img, body script:not(:last-of-type)").count() == 0
        assert visited.page.evaluate("window.taken") is None
        assert visited.complaints == []


def _renamed(incident: Incident) -> Incident:
    return dataclasses.replace(incident, cause=HOSTILE, evidence=[HOSTILE], culprit_node=HOSTILE)


def test_a_redis_that_is_away_is_told(browser: Browser, site: Site) -> None:
    site.live(Job(16))
    with visit(browser) as visited:
        shown(visited, site)
        assert not visited.page.locator("#stale").is_visible()
        quiet = site.now_s
        for _ in range(5):
            away = picture(Job(16), site.now_s + 1, store_up=False, is_leader=False)
            heard = dict.fromkeys(away.heartbeats, 1_000_000.0 + quiet)
            site.tell(Job(16), orders=away.orders, heartbeats=heard)
        visited.page.evaluate("ask()")
        visited.page.locator("#stale").wait_for(state="visible")
        assert "Redis is away" in text(visited, "#stale")
        assert "Redis has been away for 4.0 s" in text(visited, "#headline")
        assert "light yellow" in (visited.page.locator("#light").get_attribute("class") or "")
        own, other = visited.page.locator("#nodes tbody tr").all_inner_texts()
        assert own.split("\t")[:3] == ["node-0 (led)", "member", "now"]
        assert other.split("\t")[:3] == ["node-1", "member", "5.0 s ago"]
        visited.page.locator("#ranks summary").click()
        row = visited.page.locator("#rank-table tbody tr").nth(15).inner_text().split("\t")
        assert row[3].endswith(", as last heard")
        assert row[4] == "5.0 s ago"
        assert "does not lead" not in text(visited, "#teller")
        assert visited.page.locator("#teller a").count() == 0  # a link to itself, it would be


def test_ranks_of_a_lost_node_are_shown_as_lost(browser: Browser, site: Site) -> None:
    job = Job(16, slow=None, incidents={})
    site.live(job)
    last = 1_000_000.0 + site.now_s
    found = (Finding(Kind.NODE_LOST, "node-1", last, 0.95),)
    for _ in range(9):
        heard = {"node-0": 1_000_001.0 + site.now_s, "node-1": last}
        site.tell(job, findings=found, heartbeats=heard)
    with visit(browser) as visited:
        shown(visited, site)
        assert text(visited, "#headline") == "node node-1 is lost"
        visited.page.locator("#ranks summary").click()
        row = visited.page.locator("#rank-table tbody tr").nth(15).inner_text().split("\t")
        assert (row[3], row[4], row[5]) == ("lost", "9.0 s ago", "–")
        lost, well = cell(visited, 15, 38), cell(visited, 7, 38)
        assert lost not in (well, cell(visited, 15, 20))
        assert cell(visited, 15, 20) == cell(visited, 7, 20)
        assert "lost" in text(visited, "#heat-legend")


def test_no_time_below_the_map_is_cut_off(browser: Browser, site: Site) -> None:
    site.live(Job(4), 119)
    with visit(browser) as visited:
        shown(visited, site)
        for width in range(600, 1200, 50):
            visited.page.set_viewport_size({"width": width, "height": 800})
            visited.page.evaluate("drawHeat()")
            cut = visited.page.evaluate(
                """() => {
                  const canvas = document.getElementById('heat'), {columns} = map.view.heat;
                  const context = canvas.getContext('2d');
                  const size = sizes(map.rows.length, columns.length, canvas.clientWidth);
                  return timeLabels(context, columns, size, canvas.clientWidth)
                    .filter(([left, words]) => left + context.measureText(words).width
                            > canvas.clientWidth);
                }"""
            )
            assert cut == []


def test_a_sidecar_that_is_gone_is_told_and_asked_seldomer(browser: Browser, site: Site) -> None:
    site.live(Job(16))
    with visit(browser) as visited:
        visited.page.clock.install()
        shown(visited, site)
        site.close()
        visited.page.clock.run_for(20_000)
        visited.page.locator("#stale").wait_for(state="visible")
        assert "not reachable for" in text(visited, "#stale")
        until(visited, "watch.delay > 2000")
        assert visited.page.locator("#heat").is_visible()


def test_what_changes_is_shown_without_loading_again(browser: Browser, site: Site) -> None:
    site.live(Job(16, slow=None, incidents={}))
    with visit(browser) as visited:
        shown(visited, site)
        assert text(visited, "#headline") == "running, and nothing is wrong"
        site.live(Job(16, slow=None, incidents={}, state="done"), 1)
        until(visited, "watch.view.state === 'done'")
        assert text(visited, "#headline") == "every rank ended well"


def test_who_does_not_lead_links_to_who_does(browser: Browser, site: Site) -> None:
    site.live(Job(16, leader="node-1"), is_leader=False)
    with visit(browser) as visited:
        shown(visited, site)
        link = visited.page.locator("#teller a")
        assert link.get_attribute("href") == "http://127.0.0.1:9751/"
        assert visited.page.evaluate("map.rows.length") == 8


def test_where_the_time_went_is_shown_once_it_is_known(browser: Browser, site: Site) -> None:
    job = Job(16)
    site.live(job, 3)
    with visit(browser) as visited:
        shown(visited, site)
        assert not visited.page.locator("#account-section").is_visible()
        site.live(dataclasses.replace(job, account=ACCOUNT), 1)
        visited.page.locator("#account-section").wait_for(state="visible")
        assert visited.page.locator("#account div").count() == 4
        assert "productive" in text(visited, "#account-table")
        widths = visited.page.evaluate(
            "[...document.querySelectorAll('#account div')].map((one) => one.clientWidth)"
        )
        assert widths == sorted(widths, reverse=True)


def test_lengths_of_time_are_said_as_everywhere_else(browser: Browser, site: Site) -> None:
    under_a_minute = [0.0, 0.0004, 0.35, 0.9994, 0.9996, 1.0, 9.97, 59.94, 59.96]
    longer = [60.0, 119.6, 125.0, 3599.6, 3600.0, 7261.0, 86399.6, 90000.0, 1e7]
    with visit(browser) as visited:
        visited.page.goto(site.address)
        said = visited.page.evaluate("(all) => all.map(span)", [*under_a_minute, *longer])
    assert said == [span(one) for one in (*under_a_minute, *longer)]


def test_on_a_telephone_nothing_is_wider_than_the_screen(browser: Browser, site: Site) -> None:
    site.live(Job(64))
    with visit(browser, viewport={"width": 390, "height": 800}) as visited:
        shown(visited, site)
        assert visited.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_before_the_first_tick_the_page_waits_with_a_word(browser: Browser, site: Site) -> None:
    with visit(browser) as visited:
        shown(visited, site)
        assert text(visited, "#headline") == "no tick yet"
        assert text(visited, "#heat-empty") == "no rank has told of a step yet"
        assert visited.complaints == []


def test_a_sidecar_that_wants_a_token_is_shown_it(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("open-sesame-0123456789\n")
    file.chmod(0o600)
    site = Site(Protection(BearerToken(file)))
    site.live(Job(16), 3)
    try:
        with visit(browser) as visited:
            visited.page.goto(site.address)
            visited.page.locator("#token").wait_for(state="visible")
            assert "llm" not in text(visited, "body")
            visited.page.locator("#token").fill("open-sesame-0123456789")
            visited.page.keyboard.press("Enter")
            until(visited, "watch.view !== null")
            assert text(visited, "#run") == "job llm"
            assert not visited.page.locator("#ask").is_visible()
    finally:
        site.close()


BEGAN_UNIX_S = 1_795_000_000.0

TIMES = {
    "began": "1794999000000000",
    "at": "1795000000000000",
    "s:productive": "871000000",
    "s:init": "14000000",
    "s:warmup": "9000000",
    "s:data_wait": "21000000",
    "s:saving": "12000000",
    "s:straggler": "18000000",
    "s:hang_undetected": "15000000",
    "s:restart": "32000000",
    "s:restore": "8000000",
    "i:i1": "15000000 1000000 12000000 4000000 3000000 960000 61440000 8 hang node-4",
}


def test_the_picture_in_the_documents_is_of_this_page(browser: Browser, site: Site) -> None:
    """HOLDFAST_WRITE_PICTURES=1 writes it."""
    job = Job(
        64,
        slow=37,
        slow_from_s=40,
        incidents=lately(BEGAN_UNIX_S),
        began_unix_s=BEGAN_UNIX_S,
        account=TIMES,
    )
    site.live(job, 100)
    with visit(browser, viewport={"width": 1100, "height": 1000}, timezone_id="UTC") as visited:
        visited.page.clock.set_fixed_time(BEGAN_UNIX_S + 100)
        shown(visited, site)
        taken = visited.page.screenshot(type="png")
    if os.environ.get("HOLDFAST_WRITE_PICTURES"):
        PICTURE.parent.mkdir(parents=True, exist_ok=True)
        PICTURE.write_bytes(taken)
    assert len(taken) < MOST_BYTES
    assert PICTURE.stat().st_size < MOST_BYTES
