from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.export.picture import PLAN, VIEW, picture, ranks, with_words
from tests.unit.ranks.scene import history, look, steps
from tests.unit.records.slow_job import QUIET

from holdfast.contract.page import Phase, Word
from holdfast_sidecar.components.gpu.readings import GpuReading
from holdfast_sidecar.components.machine import MachineReading
from holdfast_sidecar.export.catalogue import CATALOGUE
from holdfast_sidecar.export.exposition import draw, expose
from holdfast_sidecar.export.metrics import RARE
from holdfast_sidecar.export.state import TickState
from holdfast_sidecar.records.checkpoint import SnapshotReport
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.reports import NodeReport
from holdfast_sidecar.records.steps import SlowCause
from holdfast_sidecar.store.orders import Orders
from holdfast_sidecar.store.protocol import Lease, Section

GOLDEN = Path(__file__).with_name("golden.prom")
OF_THIS_PROCESS = re.compile(
    r"^(holdfast_sidecar_(?:cpu_seconds_total|resident_memory_bytes)\{.*\}) .*$", re.M
)


def page(accept: str = "") -> str:
    body, _ = expose(draw(picture(), "job"), accept)
    return OF_THIS_PROCESS.sub(r"\1 measured", body.decode())


def test_the_page_is_the_golden_one() -> None:
    if os.environ.get("HOLDFAST_WRITE_GOLDEN"):
        GOLDEN.write_text(page())
    assert page() == GOLDEN.read_text(), "if this is meant: HOLDFAST_WRITE_GOLDEN=1 pytest …"


def ended() -> TickState:
    """The same, once the run is over."""
    over = {"current": encode(replace(PLAN, state="stopped", exit_code=1))}
    view = replace(VIEW, sections={**VIEW.sections, Section.PLAN: over})
    return replace(picture(), orders=replace(picture().orders, view=view))


def test_everything_in_the_catalogue_is_told_and_nothing_else() -> None:
    samples = [*draw(picture(), "job"), *draw(ended(), "job")]
    told = {sample.name: set(sample.labels) for sample in samples}
    assert told == {entry.name: set(entry.labels) for entry in CATALOGUE}


def test_only_the_leader_tells_about_the_job() -> None:
    told = {sample.name for sample in draw(picture(is_leader=False), "job")}
    assert told == {entry.name for entry in CATALOGUE if not entry.leader_only}


def test_no_two_samples_are_the_same_series() -> None:
    series = [(s.name, tuple(sorted(s.labels.items()))) for s in draw(picture(), "job")]
    assert len(series) == len(set(series))


def names(shown: TickState) -> set[str]:
    return {sample.name for sample in draw(shown, "job")}


def test_what_is_not_known_is_absent() -> None:
    bare = picture(machine=MachineReading(None, None, GpuReading(is_present=False)))
    fresh = replace(bare, ranks=ranks(history(look(10.0, Phase.STARTING, step=0))))
    missing = names(picture()) - names(fresh)
    assert not [name for name in names(fresh) if "fast_gpu" in name or "_host_" in name]
    assert {"holdfast_rank_loss", "holdfast_rank_step_seconds"} <= missing
    assert "holdfast_rank_last_step_timestamp_seconds" not in names(fresh)


def rank_names(shown: TickState) -> set[str]:
    """What this node tells of its own ranks; who is slow the leader says, wherever that is."""
    of_job = {entry.name for entry in CATALOGUE if entry.leader_only}
    told = (sample.name for sample in draw(shown, "job") if "rank" in sample.labels)
    return set(told) - of_job


def test_ranks_that_a_later_attempt_has_elsewhere_are_not_told_here() -> None:
    """The node is kept outside now, or a spare: its pages are those of the attempt before."""
    shown = picture()
    assert {"holdfast_rank_up", "holdfast_gpu_rank_info"} < rank_names(shown)
    later = replace(PLAN, attempt=PLAN.attempt + 1)
    outside = replace(shown, orders=replace(shown.orders, plan=later))
    assert rank_names(outside) == set()
    assert {"holdfast_gpu_info", "holdfast_net_tcp_retransmits_total"} < names(outside)


@pytest.mark.parametrize("state", ["running", "evidence", "ended", "stopped"])
def test_ranks_that_died_in_the_newest_attempt_are_told(state: str) -> None:
    dead = ranks(history(look(10.0, is_gone=True)))
    shown = replace(picture(), ranks=dead)
    shown = replace(shown, orders=replace(shown.orders, plan=replace(PLAN, state=state)))
    assert {s.name: s.value for s in draw(shown, "job")}["holdfast_rank_up"] == 0


def test_a_loss_that_is_no_number_is_counted_and_not_shown() -> None:
    shown = replace(picture(), ranks=ranks(history(look(10.0, loss=float("nan")))))
    samples = {s.name: s.value for s in draw(shown, "job")}
    assert "holdfast_rank_loss" not in samples
    assert samples["holdfast_rank_nonfinite_losses_total"] == 1


def test_before_the_first_snapshot_nothing_is_said_of_what_one_costs() -> None:
    bare = replace(
        picture(),
        ranks=ranks(history(with_words(look(10.0), {Word.SNAPSHOT_WANTED: 4096}))),
        snapshot=SnapshotReport(3),
        orders=replace(picture().orders, snapshot=None),
    )
    told = {s.name: s.value for s in draw(bare, "job") if "_snapshot_" in s.name}
    assert told == {
        "holdfast_snapshot_memory_bytes": 0,
        "holdfast_snapshot_taken_total": 0,
        "holdfast_snapshot_skipped_total": 0,
        "holdfast_snapshot_blocked_seconds_total": 0,
    }


def test_a_rank_that_has_no_state_to_take_has_no_series_of_snapshots() -> None:
    without = replace(picture(), ranks=ranks(history(look(10.0))))
    assert not {name for name in rank_names(without) if "snapshot" in name}
    assert {name for name in rank_names(picture()) if "snapshot" in name}


def test_counters_start_at_zero_before_the_first_event() -> None:
    quiet = replace(picture(), findings=(), cost=replace(picture().cost, found={}))
    samples = [s for s in draw(quiet, "job") if s.name == "holdfast_findings_total"]
    assert len(samples) > 5
    assert {s.value for s in samples} == {0.0}


def slow_series(shown: TickState) -> dict[str, float]:
    about = ("job_slow", "rank_slow", "_mfu_", "_memory_", "job_watched")
    return {s.name: s.value for s in draw(shown, "job") if any(one in s.name for one in about)}


def test_what_is_judged_of_an_attempt_that_is_over_is_counted_and_not_shown() -> None:
    """Nobody has judged the new attempt's steps yet; what was lost before stays lost."""
    told = slow_series(picture())
    assert told["holdfast_rank_slowdown_ratio"] == 0.31
    assert told["holdfast_job_mfu_ratio"] == 0.382
    later = {Section.PLAN: {"current": encode(replace(PLAN, attempt=4))}}
    shown = picture()
    view = replace(VIEW, sections={**VIEW.sections, **later})
    after = slow_series(replace(shown, orders=replace(shown.orders, view=view)))
    assert set(told) - set(after) == {
        "holdfast_job_slow_ranks",
        "holdfast_job_slowdown_gain_ratio",
        "holdfast_rank_slowdown_ratio",
        "holdfast_job_mfu_ratio",
    }


def test_every_cause_of_slowness_is_counted_from_zero_and_nobody_slow_is_no_series() -> None:
    quiet = encode(NodeReport("a", "x", 1, 3, 4, 3, True, slow=replace(QUIET, attempt=3)))
    view = replace(VIEW, sections={**VIEW.sections, Section.NODES: {"a": quiet}})
    shown = replace(picture(), orders=replace(picture().orders, view=view))
    samples = [s for s in draw(shown, "job") if s.name == "holdfast_job_slowed_seconds_total"]
    assert {s.labels["cause"]: s.value for s in samples} == {
        cause.value: 0.0 for cause in SlowCause
    }
    told = slow_series(shown)
    assert told["holdfast_job_slow_ranks"] == 0
    assert "holdfast_rank_slowdown_ratio" not in told


def test_parts_of_a_step_that_a_rank_never_had_are_no_series() -> None:
    def parts(shown: TickState) -> set[str]:
        return {
            s.labels["phase"]
            for s in draw(shown, "job")
            if s.name == "holdfast_rank_phase_seconds_total"
        }

    assert parts(picture()) & RARE == {"data"}
    assert "forward" in parts(picture())
    rank = look(10.0, Phase.BACKWARD, step=45, records=steps(2, forward=30, saving=4))
    assert "saving" in parts(replace(picture(), ranks=ranks(history(rank))))


def test_while_redis_is_away_the_node_is_still_told() -> None:
    away = replace(picture(), orders=Orders(lease=VIEW.lease, store_up=False, view=VIEW))
    samples = {s.name: s.value for s in draw(away, "job")}
    assert samples["holdfast_store_up"] == 0
    assert samples["holdfast_rank_step"] == 45
    assert "holdfast_job_state" not in samples


def test_a_leader_that_waits_is_told_so() -> None:
    def waits(leader: str) -> float:
        report = NodeReport("a", "x", 1, 3, 4, 3, True, waiting="no node has joined yet")
        view = replace(VIEW, sections={Section.NODES: {"a": encode(report)}})
        orders = Orders(is_leader=True, lease=Lease(4, leader), store_up=True, view=view)
        shown = replace(picture(), orders=orders)
        return {s.name: s.value for s in draw(shown, "job")}["holdfast_leader_waiting"]

    assert waits("a/x") == 1
    assert waits("a/y") == 0
