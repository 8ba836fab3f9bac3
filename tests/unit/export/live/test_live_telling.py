from __future__ import annotations

from dataclasses import replace

from tests.unit.export.picture import picture as known_picture
from tests.unit.ranks.large_job import Job, picture

from holdfast_sidecar.export.http_server import JSON, HttpRequest
from holdfast_sidecar.export.live.packing import unpack
from holdfast_sidecar.export.live.routes import LiveTelling
from holdfast_sidecar.export.live.view import LiveView
from holdfast_sidecar.export.state import TickState

ASKED = HttpRequest("/live.json")


def seen(telling: LiveTelling, shown: TickState | None) -> LiveView:
    view = unpack(telling.answer(ASKED, shown).body)
    assert view is not None
    return view


def test_before_the_first_tick_it_says_so() -> None:
    view = seen(LiveTelling("llm"), None)
    assert (view.run, view.light, view.headline) == ("llm", "grey", "no tick yet")


def test_the_map_holds_what_was_heard_tick_by_tick() -> None:
    telling = LiveTelling("llm")
    for second in range(5):
        telling.hear(picture(Job(16), now_s=float(second)))
    view = seen(telling, picture(Job(16), now_s=4.0))
    assert len(view.heat.columns) == 5
    assert list(view.heat.rows) == list(range(16))
    slow = [ratio for ratio in view.heat.rows[5] if ratio is not None]
    assert min(slow) > 1.2


def test_ranks_are_asked_once_a_second_at_most() -> None:
    telling = LiveTelling("llm")
    shown = picture(Job(16), now_s=1.0)
    for part in range(5):
        moment = replace(shown.moment, now_unix_s=1_000_001.0 + part / 10)
        telling.hear(replace(shown, moment=moment))
    assert telling._memory.opened is not None
    assert set(telling._memory.opened.counts.values()) == {1}


def test_it_is_drawn_once_a_tick_however_many_ask() -> None:
    telling, shown = LiveTelling("llm"), picture(Job(8))
    telling.hear(shown)
    assert telling.answer(ASKED, shown).body is telling.answer(ASKED, shown).body
    later = picture(Job(8), now_s=11.0)
    assert seen(telling, later).now_unix_s == 1_000_011.0


def test_it_knows_since_when_redis_has_been_away() -> None:
    telling, shown = LiveTelling("llm"), known_picture()
    gone = replace(shown, orders=replace(shown.orders, store_up=False, is_leader=False))
    telling.hear(shown)
    assert seen(telling, shown).store_away_since_unix_s is None
    telling.hear(gone)
    later = replace(gone, moment=replace(gone.moment, now_s=20.0, now_unix_s=1_000_020.0))
    telling.hear(later)
    assert seen(telling, later).store_away_since_unix_s == 1_000_010.0
    back = replace(shown, moment=replace(shown.moment, now_s=30.0, now_unix_s=1_000_030.0))
    telling.hear(back)
    assert seen(telling, back).store_away_since_unix_s is None


def test_it_is_told_to_nobody_without_the_token_and_kept_by_no_cache() -> None:
    telling = LiveTelling("llm")
    answer = telling.answer(ASKED, known_picture())
    assert not telling.is_open
    assert answer.content_type == JSON
    assert answer.headers["Cache-Control"] == "no-store"
