"""What each pane says, of a healthy job and of one in trouble."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.cli.tui.canvases import canvas, drawn
from tests.unit.export.live.pretend_views import healthy, redis_away, troubled, unheard

from holdfast_sidecar.cli.tui.panes import body, keys_line
from holdfast_sidecar.cli.tui.state import Pane, ViewState
from holdfast_sidecar.cli.tui.text import ASCII, UNICODE, TextStyle, plain
from holdfast_sidecar.export.live.view import LiveView


def test_a_rank_s_row_has_its_phase_its_times_and_its_course() -> None:
    title, *rows = drawn(troubled(4), Pane.RANKS)
    assert title.split()[:4] == ["rank", "node", "phase", "time"]
    assert rows[0].split()[:6] == ["0", "node-0", "forward", "1.00s", "900ms", "-"]
    assert rows[2].split()[:7] == ["*", "2", "node-0", "forward", "1.31s", "1.21s", "+31%"]
    assert rows[2].endswith("▇")
    assert rows[3].split()[:4] == ["!", "3", "node-0", "gone"]


def test_what_is_not_heard_any_more_is_marked_and_has_the_age_of_its_last_word() -> None:
    rows = drawn(unheard(24), Pane.RANKS, width=200, height=24)[1:]
    assert rows[8].split()[:8] == ["!", "8", "node-1", "lost", "32.0s", "12,345", "-", "-"]
    assert rows[16].split()[:8] == ["?", "16", "node-2", "forward", "32.0s", "12,345", "-", "-"]
    assert rows[0].split()[:4] == ["0", "node-0", "forward", "250ms"]
    away = drawn(redis_away(), Pane.RANKS, width=200)[1:]
    assert away[8].split()[:5] == ["?", "8", "node-1", "forward", "32.0s"]


def test_of_a_rank_that_is_not_heard_can_be_read_when_it_was() -> None:
    lost = drawn(unheard(24), Pane.RANKS, read="rank 8", height=24)
    assert "phase       lost, last heard 32.0 s ago" in lost
    silent = drawn(unheard(24), Pane.RANKS, read="rank 16", height=24)
    assert "phase       forward, last heard 32.0 s ago" in silent


def test_while_redis_is_away_nobody_is_said_to_lead() -> None:
    assert not any(row.endswith("leads") for row in drawn(redis_away(), Pane.NODES))
    assert any(row.endswith("led") for row in drawn(redis_away(), Pane.NODES))


def test_columns_come_with_the_room_for_them() -> None:
    titles = {
        width: drawn(troubled(4, has_gpus=True), Pane.RANKS, width=width)[0].split()
        for width in (40, 78, 118, 200)
    }
    assert titles[40][:2] == ["rank", "phase"]
    assert {"phase", "time", "slow", "gpu", "°C"} <= set(titles[78])
    assert {"why", "mem", "own", "for"} <= set(titles[118])
    assert {"MHz", "W", "step"} <= set(titles[200])
    for before, after in ((40, 78), (78, 118), (118, 200)):
        assert set(titles[before][:-2]) <= set(titles[after])  # without from when to when


def test_gpus_have_columns_only_where_there_are_any() -> None:
    assert "gpu" not in drawn(troubled(4), Pane.RANKS, width=200)[0]
    row = drawn(troubled(4, has_gpus=True), Pane.RANKS, width=200)[1]
    assert {"97%", "61", "75%", "1980", "640"} <= set(row.split())


def test_a_node_s_row_names_its_worst_rank() -> None:
    title, first, second, *_ = drawn(troubled(64), Pane.RANKS)
    assert title.split()[:3] == ["ranks", "worst", "node"]
    assert first.split()[:5] == ["!", "0-7", "3", "node-0", "gone"]
    assert second.split()[:4] == ["8-15", "8", "node-1", "forward"]


def test_all_that_is_known_of_a_rank_can_be_read() -> None:
    told = drawn(troubled(4, has_gpus=True), Pane.RANKS, read="rank 2")
    assert told[0] == "rank 2 on node-0"
    assert "slow        31% slower than its peers, cause: gpu_clock" in told
    assert "GPU         97% busy, 61 °C, 1980 MHz, 640 W" in told
    assert "GPU memory  60.0GB of 80.0GB" in told
    assert "finding     straggler: rank 2 on node-0: gpu_clock" in told
    assert any(line.startswith("next        look at the power cap") for line in told)


def test_incidents_stand_newest_first_and_open_ones_are_marked() -> None:
    _, newest, older = drawn(troubled(4), Pane.INCIDENTS)
    assert newest.split()[:4] == ["!", "7.00s", "-", "restart"]
    assert newest.endswith("  crash: rank 3 on node-0 died: SIGKILL")
    assert older.split()[:3] == ["60m", "90.0s", "restart"]


def test_an_incident_s_story_can_be_read() -> None:
    told = drawn(troubled(4), Pane.INCIDENTS, read="20261123-050000-crash")
    assert told == [
        "incident 20261123-050000-crash: crash, rank 3 on node-0",
        "rank 3 on node-0 died: SIGKILL",
        "+0 ms: rank 3 died",
        "because SIGKILL",
        "next: look at dmesg",
    ]


def test_findings_say_whether_they_are_acted_on() -> None:
    _, crash, straggler = drawn(troubled(4), Pane.FINDINGS)
    assert crash.split()[:3] == ["!", "7.00s", "crash"]
    assert straggler.split()[:2] == ["60.0s", "straggler"]
    key = body(canvas(troubled(4), ViewState(Pane.FINDINGS))).keys[1]
    assert drawn(troubled(4), Pane.FINDINGS, read=key) == [
        "straggler",
        "rank 2 on node-0: gpu_clock",
        "found 1 min ago",
        "told, and nothing is ended for it",
    ]


def test_several_findings_of_a_kind_are_told_apart() -> None:
    view = troubled(4)
    view = replace(view, findings=[view.findings[0], view.findings[0]])
    assert len(set(body(canvas(view, ViewState(Pane.FINDINGS))).keys)) == 2


def test_who_is_slow_is_told_with_the_cause_and_the_gain() -> None:
    _, row = drawn(troubled(4), Pane.SLOW)
    assert row.split()[:8] == ["+31%", "18%", "rank", "2", "on", "node-0", "gpu_clock", "90%"]
    told = drawn(troubled(4), Pane.SLOW, read="2 node-0 gpu_clock")
    assert told[0] == "rank 2 on node-0 is slow"
    assert "cause: its GPU runs at a lower clock than the others (90% sure)" in told
    assert "without it the job would be 18% faster" in told


def test_the_account_s_bars_are_as_long_as_their_shares() -> None:
    title, *rows = drawn(healthy(4), Pane.ACCOUNT)
    assert title == "53 min in all  goodput 91.5%  ETTR 94.0%"
    names = [row[:25].rstrip() for row in rows[:3]]
    assert names == ["productive steps", "restarting", "saving"], "as the report says them"
    assert [row.count("█") for row in rows[:3]] == [29, 1, 1]
    assert rows[-1].startswith("1 min 30 s of training had to be done again")


def test_nodes_in_trouble_stand_first() -> None:
    view = healthy(16)
    lost = replace(view.nodes[1], state="lost", heartbeat_unix_s=None, findings=2)
    _, first, second = drawn(replace(view, nodes=[view.nodes[0], lost]), Pane.NODES)
    assert first.split()[:5] == ["!", "node-1", "lost", "-", "2"]
    assert second.split()[:3] == ["node-0", "member", "200ms"]
    assert second.endswith("leads")


def test_the_help_names_every_key_and_sign() -> None:
    told = "\n".join(drawn(healthy(4), Pane.HELP))
    assert all(word in told for word in ("Esc", "PgUp", "8-15", "█ 3x", "W communicating"))


@pytest.mark.parametrize(
    ("pane", "said"),
    [
        (Pane.RANKS, "no rank has been heard of yet"),
        (Pane.INCIDENTS, "no incident so far"),
        (Pane.FINDINGS, "nothing is found to be wrong"),
        (Pane.SLOW, "nobody is slow"),
        (Pane.ACCOUNT, "the account of this run is not known (yet): its leader keeps it"),
        (Pane.NODES, "no node is known"),
    ],
)
def test_an_empty_pane_says_why(pane: Pane, said: str) -> None:
    made = body(canvas(LiveView(), ViewState(pane)))
    assert (made.keys, made.empty) == ([], said)


@pytest.mark.parametrize("pane", [Pane.RANKS, Pane.INCIDENTS, Pane.FINDINGS, Pane.SLOW, Pane.NODES])
def test_words_that_nothing_has_leave_a_pane_empty(pane: Pane) -> None:
    made = body(canvas(troubled(4), ViewState(pane, filter="nonsense")))
    assert made.keys == []
    assert "these words" in made.empty


def test_the_line_of_keys_fits_into_80_columns_and_marks_the_pane_without_colours() -> None:
    line = plain(keys_line(troubled(4), ViewState(Pane.FINDINGS), 80, UNICODE))
    assert line == (
        " Ranks  Incidents 2 [Findings 2] Slow 1  Account  Nodes  ? Help  q quit / filter"
    )
    many = replace(troubled(4), incidents=[*troubled(4).incidents] * 25)
    line = plain(keys_line(many, ViewState(), 80, UNICODE))
    assert line.startswith("[Ranks] Incidents 50  Findings 2  Slow 1 ")
    assert line.endswith(" q quit")
    assert len(line) <= 80


def test_without_unicode_every_pane_is_ascii() -> None:
    for pane in Pane:
        made = body(canvas(troubled(64, has_gpus=True), ViewState(pane), width=200, signs=ASCII))
        lines = [made.title, *made.rows(0, 99)]
        assert all(plain(line).isascii() for line in lines), pane


def test_what_is_coloured_says_the_same_in_words() -> None:
    """A look is never all there is: whoever sees no colours sees a sign or a word."""
    for pane in (Pane.RANKS, Pane.INCIDENTS, Pane.FINDINGS, Pane.SLOW):
        made = body(canvas(troubled(4), ViewState(pane)))
        for line in made.rows(0, 9):
            bad = [span for span in line if span.look in (TextStyle.BAD, TextStyle.DOUBTFUL)]
            assert all(span.text.strip() for span in bad), (pane, line)
