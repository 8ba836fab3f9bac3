"""Six hours of a made-up run as OpenMetrics text: python story.py END_UNIX_S [RANKS] >series.om

For pictures only: nothing here was measured.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from incidents import (
    A_NODE,
    COMMUNICATION_S,
    HANGS_FROM_S,
    LASTS_S,
    LOST_S,
    RESTARTS,
    STEP_S,
    category,
    chance,
    hangs,
    own_s,
    phase,
    restarts,
)

Labels = dict[str, str]
Point = Callable[[int], float | None]
MOMENTS = range(0, LASTS_S + 1, STEP_S)


@dataclass
class Story:
    """A run of so many ranks, from this moment on."""

    ranks: int
    begin_unix_s: int
    step_s: dict[int, float] = field(default_factory=dict)
    spent_s: dict[str, dict[int, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        spent: dict[str, float] = dict.fromkeys({category(at) for at in MOMENTS}, 0.0)
        for at in MOMENTS:
            slowest = max(own_s(rank, at) for rank in range(self.ranks))
            self.step_s[at] = slowest + COMMUNICATION_S
            spent[category(at)] += STEP_S
            for name, seconds in spent.items():
                self.spent_s.setdefault(name, {})[at] = seconds

    def lines(self) -> Iterator[str]:
        """Every sample, series by series."""
        for name, labels, point in (*self.of_ranks(), *self.of_nodes(), *self.of_the_job()):
            told = {"job": "holdfast-sidecar", "run": "llm-7b"} | labels
            written = ",".join(f'{key}="{value}"' for key, value in told.items())
            for at in MOMENTS:
                if (value := point(at)) is not None:
                    yield f"{name}{{{written}}} {value:.12g} {self.begin_unix_s + at}"
        yield "# EOF"

    def of_ranks(self) -> Iterator[tuple[str, Labels, Point]]:
        """What each rank's own sidecar tells of it."""
        for rank in range(self.ranks):
            place = {"node": f"node-{rank // A_NODE}", "rank": str(rank)}
            yield "holdfast_rank_own_seconds", place, training(partial(own_s, rank))
            yield "holdfast_rank_step_seconds", place, training(self.step_s.__getitem__)
            yield "holdfast_rank_phase_id", place, partial(self._phase, rank)
            yield "holdfast_rank_last_step_timestamp_seconds", place, self._stepped
            yield "holdfast_rank_step", place, step
            yield "holdfast_rank_up", place, lambda at: 1
            yield "holdfast_rank_loss", place, partial(loss, rank)
            yield "holdfast_rank_gradient_norm", place, lambda at: 0.8 + 3 / (1 + at / 900)
            yield "holdfast_rank_nonfinite_losses_total", place, lambda at: 0
            yield "holdfast_rank_nonfinite_gradients_total", place, lambda at: 0
            for name, share in (("forward", 0.3), ("backward", 0.55), ("optimizer", 0.05)):
                spent = partial(lambda share, at: share * at, share)
                yield "holdfast_rank_phase_seconds_total", place | {"phase": name}, spent
            waited = {"phase": "communicating"}
            yield "holdfast_rank_phase_seconds_total", place | waited, lambda at: 0.1 * at

    def of_nodes(self) -> Iterator[tuple[str, Labels, Point]]:
        """What sidecars and the leader tell of machines."""
        for number in range(-(-self.ranks // A_NODE)):
            node = {"node": f"node-{number}"}
            yield "holdfast_sidecar_info", node | {"version": "0.1.0", "mode": "act"}, lambda at: 1
            beat = self._beat
            yield "holdfast_node_last_heartbeat_timestamp_seconds", node, beat
            blamed = partial(lemon, f"node-{number}")
            yield "holdfast_node_lemon_score", node, blamed

    def of_the_job(self) -> Iterator[tuple[str, Labels, Point]]:
        """What the leader tells of the run."""
        for state in ("running", "evidence", "ended", "done", "stopped"):
            yield "holdfast_job_state", {"state": state}, partial(is_in, state)
        for name, seconds in self.spent_s.items():
            labels = {"category": name}
            yield "holdfast_job_time_seconds_total", labels, seconds.__getitem__
            weighted = partial(self._weighted, seconds)
            yield "holdfast_job_gpu_time_seconds_total", labels, weighted
        for begin, _, cause, node in RESTARTS:
            after = partial(since, begin)
            yield "holdfast_job_incidents_total", {"cause": cause}, after
            lost = {"cause": cause, "node": node}
            yield "holdfast_job_lost_work_seconds_total", lost, partial(since, begin, LOST_S)
            weight = LOST_S * self.ranks
            yield "holdfast_job_lost_work_gpu_seconds_total", lost, partial(since, begin, weight)
        for name, took in (("detect", 40), ("drain", 8), ("rendezvous", 12), ("restore", 50)):
            labels = {"phase": name}
            yield "holdfast_job_recovery_phase_seconds_sum", labels, partial(restarted, took)
            yield "holdfast_job_recovery_phase_seconds_count", labels, partial(restarted, 1)
        for name, point in self.gauges().items():
            yield name, {}, point

    def gauges(self) -> dict[str, Point]:
        """Those of the job that have no labels."""
        hot = partial(lambda at: 8 if 1.5 * 3600 < at < 2.4 * 3600 else 0)
        return {
            "holdfast_job_attempt": partial(restarted, 1),
            "holdfast_job_restarts_total": partial(restarted, 1),
            "holdfast_job_ranks_expected": lambda at: self.ranks,
            "holdfast_job_ranks_reporting": lambda at: 0 if restarts(at) else self.ranks,
            "holdfast_job_nodes_expected": lambda at: self.ranks // A_NODE,
            "holdfast_job_nodes_spare": lambda at: 2,
            "holdfast_job_nodes_kept_out": lambda at: 0,
            "holdfast_job_gpus": lambda at: self.ranks,
            "holdfast_job_step": step,
            "holdfast_job_slow_ranks": hot,
            "holdfast_job_paused": lambda at: 0,
            "holdfast_job_mfu_ratio": training(lambda at: 0.42 * 0.44 / self.step_s[at]),
            "holdfast_job_tokens_per_second": training(
                lambda at: self.ranks * 8192 / self.step_s[at]
            ),
            "holdfast_job_pace_ratio": training(lambda at: 0.44 / self.step_s[at]),
            "holdfast_job_goodput_ratio": lambda at: 0.86,
            "holdfast_job_ettr_ratio": lambda at: 0.9,
            "holdfast_job_mtbf_seconds": lambda at: 10800,
            "holdfast_job_restart_budget_remaining": lambda at: 3,
            "holdfast_job_last_recovery_duration_seconds": lambda at: 95,
            "holdfast_job_communication_share_ratio": lambda at: 0.07,
            "holdfast_job_data_share_ratio": lambda at: 0.02,
            "holdfast_job_pipeline_bubble_ratio": lambda at: 0,
            "holdfast_checkpoint_interval_target_seconds": lambda at: 900,
            "holdfast_checkpoint_last_durable_timestamp_seconds": self._sealed,
            "holdfast_peer_lag_seconds": lambda at: 30,
        }

    def _phase(self, rank: int, at_s: int) -> float:
        return phase(rank, at_s, self.step_s[at_s])

    def _stepped(self, at_s: int) -> float:
        return self.begin_unix_s + (HANGS_FROM_S if hangs(at_s) else at_s)

    def _beat(self, at_s: int) -> float:
        return self.begin_unix_s + at_s - 1

    def _sealed(self, at_s: int) -> float:
        return self.begin_unix_s + at_s - at_s % 900

    def _weighted(self, seconds: dict[int, float], at_s: int) -> float:
        return self.ranks * seconds[at_s]


def training(point: Callable[[int], float]) -> Point:
    """Nothing while ranks are ended."""
    return lambda at: None if restarts(at) else point(at)


def step(at_s: int) -> float:
    """Steps completed."""
    return int(at_s / 0.44)


def loss(rank: int, at_s: int) -> float:
    """It falls, as it does."""
    return 2.1 + 7 / (1 + at_s / 1500) + 0.01 * chance("loss", rank, at_s).gauss(0, 1)


def is_in(state: str, at_s: int) -> float:
    """Whether the plan is in this state."""
    return state == ("ended" if restarts(at_s) else "running")


def since(begin_s: float, *arguments: float) -> float:
    """`weight` (or 1) from a moment on."""
    *weight, at_s = arguments
    return (weight[0] if weight else 1.0) * (at_s > begin_s)


def restarted(weight: float, at_s: int) -> float:
    """That often so far, times a weight."""
    return weight * sum(at_s > begin for begin, *_ in RESTARTS)


def lemon(node: str, at_s: int) -> float:
    """Failures that are held against a node."""
    return sum(at_s > begin for begin, _, _, blamed in RESTARTS if blamed == node)


if __name__ == "__main__":
    end_unix_s = int(sys.argv[1])
    made = Story(int(sys.argv[2]) if len(sys.argv) > 2 else 64, end_unix_s - LASTS_S)
    sys.stdout.writelines(f"{line}\n" for line in made.lines())
