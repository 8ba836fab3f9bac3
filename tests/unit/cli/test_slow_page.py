"""`holdfast explain --slow` and `holdfast report`, as pages and as data."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.unit.records.slow_job import PLAN, QUIET, SLOW, STANDING, line, nodes

from holdfast_sidecar.cli import report_pages
from holdfast_sidecar.cli import slow as slow_page
from holdfast_sidecar.cli.main import cli
from holdfast_sidecar.cli.recall import Recalled
from holdfast_sidecar.cli.slow import bars
from holdfast_sidecar.config.paths import Paths
from holdfast_sidecar.config.settings import CostSettings
from holdfast_sidecar.export.job_record import RecordKeeping, read_record
from holdfast_sidecar.performance.summary import see
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.reports import Losses, Performance, RankSteps
from holdfast_sidecar.records.steps import PaceChange, SlowCause, SlownessReport, spell
from holdfast_sidecar.store.protocol import Section

GIB = 2**30
DEAR = CostSettings(2.5, "EUR")
NOW = 5000.0


def recalled(standing: SlownessReport | None = STANDING, **given: int) -> Recalled:
    return Recalled("chargpt", see(PLAN, nodes(standing, **given), "a/i"), is_over=False)


def test_who_is_slow_is_told_with_cause_evidence_advice_and_cost() -> None:
    told = slow_page.page(recalled(), NOW, DEAR)
    assert told.splitlines()[0] == "job chargpt: rank 5 on b is slow"
    for words in (
        "7 ranks compared up to step 2,048 of attempt 0, 1 h of steps in all, judged 10.0 s ago",
        "rank 5 on b: 31 % slower",
        "with the others of role pp=0; the time goes into: forward",
        "step 1,200, 16 min 40 s ago",
        "cpu_quota: its control group's CPU quota is used up",
        "sure        95% of who it is, 90% of why\n",
        "its control group was throttled for 28 % of the time",
        "raise the quota (cpu.max) of the pod",
        "the job would be 18 % faster without it",
        "6 min of the job, 0.80 GPU hours, 2.00 EUR",
        "this job would be 18 % faster without rank 5\n",
        "6.0 % faster with even work (sequence lengths) (2 min so far)",
        "6 min 36 s of the job, 0.88 GPU hours, 2.20 EUR (11 %)",
        "not judged  rank 7: no other rank has its role",
    ):
        assert words in told, told
    assert max(map(len, told.splitlines())) <= 100


ASLEEP = dataclasses.replace(
    SLOW, cause=SlowCause.COMPUTE, cause_confidence=0.57, is_guess=True, is_asleep=True
)


def test_who_sleeps_is_not_said_to_compute_and_the_cause_to_be_a_guess() -> None:
    standing = dataclasses.replace(STANDING, slow=[ASLEEP])
    told = " ".join(slow_page.page(recalled(standing), NOW, DEAR).split())
    assert "compute: it sleeps or waits for something outside, and nothing that is" in told
    assert "sure 95% of who it is, 57% of why, a guess" in told
    (one,) = slow_page.plain(recalled(standing), DEAR)["standing"]["slow"]
    assert (one["confidence"], one["cause_confidence"], one["is_guess"]) == (0.95, 0.57, True)


CHANGED = (
    "changed every rank takes 1.8 times as long as before step 200 (94 ms of own work a step, 52 ms"
    " before; most of that in forward): what the job does has changed, or what all of them share"
)


def test_that_all_of_them_became_slower_is_told_and_nobody_blamed() -> None:
    change = PaceChange(200, 1.8, 0.052, 0.094, "forward")
    standing = dataclasses.replace(QUIET, change=change)
    slow, report = (
        " ".join(page(recalled(standing), NOW, DEAR).split())
        for page in (slow_page.page, report_pages.report_page)
    )
    assert slow.startswith("job chargpt: nobody is slow")
    assert CHANGED in slow
    assert CHANGED in report
    assert report_pages.plain(recalled(standing), DEAR)["change"]["ratio"] == 1.8
    assert slow_page.plain(recalled(standing), DEAR)["standing"]["change"]["since_step"] == 200


def test_several_ranks_are_and_one_is() -> None:
    two = dataclasses.replace(STANDING, slow=[dataclasses.replace(SLOW, ranks=[1, 3])])
    assert "ranks 1, 3 on b are slow\n" in slow_page.page(recalled(two), NOW, DEAR)
    alone = dataclasses.replace(QUIET, judged_ranks=1)
    told = slow_page.page(recalled(alone), NOW, DEAR)
    assert "watched     1 rank compared" not in told
    assert "nobody is slow" not in told
    assert told.startswith("job chargpt: one rank alone, which can be compared with nobody\n")
    one = Performance(1.0, 1, alone, recalled().performance.ranks[:1])  # type: ignore[union-attr]
    report = report_pages.report_page(Recalled("j", one, False), NOW, DEAR)
    assert report.startswith("job j: 1 rank\n")
    assert "where a step's time goes (of 1 rank, 152 ms)" in report


def test_why_a_slow_node_is_not_replaced_is_told_while_the_job_goes_on() -> None:
    seen = recalled().performance
    assert seen is not None
    why = "no spare waits that could take its place"
    stays = dataclasses.replace(seen, staying={"rank 5 on b": why})
    told = dataclasses.replace(recalled(), performance=stays)
    assert f"stays       not replaced: {why}" in slow_page.page(told, NOW, DEAR)
    assert slow_page.plain(told, DEAR)["not_replaced"] == {"rank 5 on b": why}
    over = dataclasses.replace(told, is_over=True)
    assert "not replaced" not in slow_page.page(over, NOW, DEAR)


def test_a_slow_link_is_told_by_its_group_and_compared_with_no_ranks() -> None:
    link = dataclasses.replace(
        SLOW, cause=SlowCause.LINK, role="", part="communicating", group="mesh_dp"
    )
    standing = dataclasses.replace(STANDING, slow=[link])
    told = " ".join(slow_page.page(recalled(standing), NOW, DEAR).split())
    assert "steps in which nobody waits longer than usual in exchanges" in told
    assert "communicating in the process group mesh_dp" in told
    assert "all others" not in told


def test_the_slow_rank_is_the_one_that_waits_least_in_the_picture() -> None:
    picture = bars(see(PLAN, nodes(), "a/i"))
    head, *rows = picture.splitlines()
    assert head.startswith("steps 2,033 to 2,048, means: █ own work  ░ waiting for others")
    assert len(rows) == 8
    slow = next(row for row in rows if "<- slow" in row)
    assert slow.startswith("rank 5  b  ")
    assert slow.count("░") == min(row.count("░") for row in rows)
    assert "142 ms own, 10 ms waiting" in slow
    assert rows[0].count("█") == round(40 * 100 / 152)
    assert {row.count("█") + row.count("░") for row in rows} == {40}


def test_where_waiting_hides_in_the_backward_pass_the_picture_says_so() -> None:
    hidden = [
        RankSteps(rank, "a", spell(line(rank, waits_seen=0, communicating=0, backward=60000)))
        for rank in range(2)
    ]
    *head, row, _ = bars(Performance(1.0, 2, STANDING, hidden)).splitlines()
    assert "▒ backward, in which waiting can't be told apart" in " ".join(head)
    assert "▒" in row
    assert "0 ms waiting" in row


def test_of_thousands_the_slowest_are_drawn_and_the_others_summed_up() -> None:
    ranks = [
        RankSteps(rank, "a", spell(line(rank, forward=80000 + 10 * rank, communicating=0)))
        for rank in range(4096)
    ]
    rows = bars(Performance(1.0, 4096, STANDING, ranks)).splitlines()
    assert len(rows) == 34
    assert rows[-1].startswith("and 4,064 more; of all 4,096: 100 ms to 141 ms own, in the middle ")


def test_nobody_slow_says_so_with_what_was_watched() -> None:
    told = slow_page.page(recalled(QUIET), NOW, CostSettings())
    assert told.startswith("job chargpt: nobody is slow\nwatched     7 ranks compared")
    assert "slow\n" not in told.partition("\n")[2]


@pytest.mark.parametrize(
    ("unjudged", "head"),
    [
        (7, "job chargpt: who is slow can't be judged\n"),
        (2, "job chargpt: nobody is slow of the 5 in 7 ranks that can be judged\n"),
    ],
)
def test_who_can_not_be_judged_is_not_told_to_be_well(unjudged: int, head: str) -> None:
    standing = dataclasses.replace(QUIET, unjudged_ranks=unjudged)
    assert slow_page.page(recalled(standing), NOW, CostSettings()).startswith(head)


def test_a_job_that_nobody_judged_says_what_that_takes() -> None:
    told = slow_page.page(recalled(None), NOW, CostSettings())
    assert "nobody has judged this job's steps yet" in told
    assert "rank 5" in told  # the picture is there all the same
    assert "nobody has judged" in report_pages.report_page(recalled(None), NOW, CostSettings())
    assert "nobody has judged" in slow_page.page(Recalled("j", None, False), NOW, CostSettings())


def test_what_may_pass_is_told_apart_from_what_lasts() -> None:
    passing = dataclasses.replace(SLOW, is_persistent=False)
    one = dataclasses.replace(STANDING, slow=[passing])
    assert "rank 5 on b is slow (it may pass)" in slow_page.page(recalled(one), NOW, CostSettings())
    both = dataclasses.replace(STANDING, slow=[SLOW, passing])
    assert "2 are slow: rank 5 on b, rank 5 on b (1 of them may pass)" in slow_page.page(
        recalled(both), NOW, CostSettings()
    )


def test_who_was_slow_in_an_attempt_that_is_over_is_not_said_to_be_slow_now() -> None:
    one = dataclasses.replace(recalled(), attempt=1)
    told = slow_page.page(one, NOW, DEAR)
    assert "<- slow" not in told
    assert told.splitlines()[0] == (
        "job chargpt: attempt 1 is too young to judge; in the one before: rank 5 on b is slow"
    )


def test_pages_fit_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    told = slow_page.page(recalled(), NOW, DEAR)
    assert max(map(len, told.splitlines())) <= 60, told
    assert "█" in told
    first, *_ = report_pages.report_page(recalled(), NOW, DEAR).partition("\n\nlost")
    assert max(map(len, first.splitlines())) <= 60, first


def test_slowness_grows_no_older_once_the_job_is_over() -> None:
    over = dataclasses.replace(recalled(), is_over=True)
    for later in (NOW, NOW + 3600):
        assert "step 1,200, 16 min 30 s ago" in slow_page.page(over, later, DEAR)


def test_a_job_that_is_over_is_not_said_to_have_somebody_slow_now() -> None:
    over = dataclasses.replace(recalled(), is_over=True)
    told = slow_page.page(over, NOW, DEAR).splitlines()[0]
    assert told == "job chargpt is over; last judged: rank 5 on b is slow"
    assert report_pages.report_page(over, NOW, DEAR).startswith("job chargpt: 8 ranks, over\n")


def test_scripts_can_read_each_ranks_steps_and_where_it_is_known_from() -> None:
    one = dataclasses.replace(recalled(), remark="kept here", attempt=0)
    told = json.loads(json.dumps(slow_page.plain(one, DEAR)))
    assert told["steps"][5]["means"]["own"] == 142000
    assert told["steps"][5]["means"]["communicating"] == 10000
    assert "line" not in told["steps"][5]
    report = json.loads(json.dumps(report_pages.plain(one, DEAR)))
    assert (told["remark"], told["attempt"]) == (report["remark"], report["attempt"])
    assert (report["step"], report["at_unix_s"]) == (2048, 4990.0)


def test_scripts_get_the_same_with_prices() -> None:
    told = json.loads(json.dumps(slow_page.plain(recalled(), DEAR)))
    assert told["is_anybody_slow"]
    assert told["costs"] == [
        {"who": "rank 5 on b", "lost_s": 360.0, "gpu_hours": 0.8, "money": 2.0}
    ]
    assert told["standing"]["slow"][0]["cause"] == "cpu_quota"
    assert len(told["steps"]) == 8
    assert (
        json.loads(json.dumps(slow_page.plain(recalled(None), CostSettings())))["standing"] is None
    )


def test_a_report_tells_how_well_the_machines_are_used_and_where_a_step_goes() -> None:
    memory = {
        "memory_total": 80 * GIB,
        "memory_peak": 78 * GIB,
        "memory_reserved": 60 * GIB,
        "memory_allocated": 45 * GIB,
        "memory_retries": 3,
    }
    told = report_pages.report_page(recalled(STANDING, **memory), NOW, DEAR)
    for words in (
        "job chargpt: 8 ranks",
        "MFU            38.2 %, HFU 41.0 %",
        "tokens/s       512,300",
        "communication  12 % of a step",
        "pace           82 % of the first steps' throughput",
        "not known      bubbles: the job has no pipeline stages",
        "where a step's time goes (the middle of 8 ranks, 152 ms)",
        "78.0 GiB of 80.0 GiB  2.0 GiB",
        "25 %",
    ):
        assert words in told, told
    rows = [row.split() for row in told.splitlines()]
    assert ["cpu_quota", "6", "min", "10", "%", "0.80", "2.00"] in rows
    assert any(row[:4] == ["rank", "5", "on", "b"] for row in rows)
    assert next(row for row in rows if row[:1] == ["forward"])[-1] == "%"


def test_what_earlier_runs_lost_is_told_apart() -> None:
    before = Losses(100.0, {"link": 50.0}, {})
    one = dataclasses.replace(recalled(), before=before)
    told = report_pages.report_page(one, NOW, CostSettings())
    assert "in runs before, to" in told
    plain = report_pages.plain(one, CostSettings(2.0))
    assert plain["lost_before"]["total_s"] == 50.0
    assert plain["lost"]["money"] == pytest.approx(396 * 8 / 3600 * 2)
    assert plain["memory"] == []
    assert plain["median_step_us"]["forward"] == 80000


def seen_by(plan: object, standing: SlownessReport | None) -> dict[Section, dict[str, str]]:
    reports = {one.node: encode(one) for one in nodes(standing)}
    return {Section.PLAN: {"current": encode(plan)}, Section.NODES: reports}


def kept(home: Path, *runs: tuple[object, SlownessReport | None]) -> None:
    """Each a sidecar of its own, as in runs of one job after another on this node."""
    for plan, standing in runs:
        places = Paths(shm=home, state=home / "chargpt" / "a")
        RecordKeeping(places, "").keep(seen_by(plan, standing), is_last=True)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_SET_PATHS_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("HOLDFAST_JOB", raising=False)
    return tmp_path


DONE = dataclasses.replace(PLAN, state="done")


def test_both_are_told_after_the_end_from_what_this_machine_kept(home: Path) -> None:
    kept(home, (DONE, STANDING))
    slow = CliRunner().invoke(cli, ["explain", "--slow", "chargpt"])
    assert slow.exit_code == 0, slow.output
    assert "this is what is kept here of job 'chargpt'" in slow.output
    assert "rank 5 on b: 31 % slower" in slow.output
    assert "rank 5  b  " in slow.output
    told = CliRunner().invoke(cli, ["report", "chargpt", "--json"])
    assert told.exit_code == 0, told.output
    plain = json.loads(told.output[told.output.index("{") :])
    assert plain["efficiency"]["mfu"] == 0.382
    assert plain["is_over"]
    assert CliRunner().invoke(cli, ["report", "never-was"]).exit_code == 3


def test_the_next_run_begins_with_what_the_one_before_lost(home: Path) -> None:
    again = dataclasses.replace(PLAN, attempt=1, began_unix_s=9000.0)
    kept(home, (DONE, STANDING), (again, None))
    told = CliRunner().invoke(cli, ["report", "chargpt"]).output
    assert "the run before this one" in told
    third = dataclasses.replace(PLAN, attempt=2, began_unix_s=9900.0)
    kept(home, (third, dataclasses.replace(STANDING, attempt=2, lost_s={"link": 7.0})))
    found = read_record(home / "chargpt")
    assert found is not None
    record = found[0]
    assert record.losses_before.by_cause == {"cpu_quota": 360.0, "collector": 36.0}
    assert record.performance is not None
    assert record.performance.standing is not None
    assert record.performance.standing.lost_s == {"link": 7.0}


def test_what_was_judged_while_ranks_left_is_not_what_is_kept(home: Path) -> None:
    """The one that ended first waits for nobody any more, and who is left is compared with few."""
    places = Paths(shm=home, state=home / "chargpt" / "a")
    keeping = RecordKeeping(places, "")
    keeping.keep(seen_by(PLAN, STANDING), is_last=True)
    leaving = nodes(dataclasses.replace(QUIET, judged_ranks=3), ending=1)
    reports = {one.node: encode(one) for one in leaving}
    sections = {Section.PLAN: {"current": encode(DONE)}, Section.NODES: reports}
    keeping.keep(sections, is_last=True)
    found = read_record(home / "chargpt")
    assert found is not None
    assert found[0].state == "done"
    assert found[0].performance is not None
    assert found[0].performance.standing == STANDING


def test_a_sidecar_that_is_started_anew_keeps_what_was_known(home: Path) -> None:
    kept(home, (PLAN, STANDING), (PLAN, None))
    found = read_record(home / "chargpt")
    assert found is not None
    assert found[0].performance is not None
    assert found[0].performance.standing == STANDING
    assert found[0].losses_before == Losses()
