"""Our timeouts beside those of torch, NCCL and schedulers."""

from __future__ import annotations

import dataclasses

import pytest

from holdfast_sidecar.cli.doctor.command import check_timeouts, read_slurm
from holdfast_sidecar.config.settings import PolicySettings, Settings, StallSettings
from holdfast_sidecar.config.timeouts import (
    ForeignTimeouts,
    foreign_rungs,
    parse_slurm,
    parse_surroundings,
)

LIMITED = Settings(stall=StallSettings(act_after_s=120.0))

CONFIGURATION = """Configuration data as of 2026-11-20T10:00:00
KillWait                = 30 sec
PropagatePrioProcess    = 0
SlurmdTimeout           = 300 sec
SlurmctldTimeout        = 120 sec
"""


def broken(around: ForeignTimeouts, settings: Settings | None = None) -> list[str]:
    rungs = foreign_rungs(settings or Settings(), around)
    return [rung.upper_name for rung in rungs if not rung.holds]


def test_the_defaults_fit_everywhere() -> None:
    everywhere = dataclasses.replace(parse_surroundings({}, parse_slurm(CONFIGURATION)), pod_s=30.0)
    assert broken(everywhere) == []
    assert everywhere.kill_wait_s == 30.0
    assert everywhere.slurmd_s == 300.0
    assert everywhere.link_s == pytest.approx(30.1, abs=0.1)
    assert {check.verdict for check in check_timeouts(Settings(), everywhere)} == {"ok"}


@pytest.mark.parametrize(
    ("environ", "settings", "says"),
    [
        (
            {"TORCH_NCCL_ENABLE_MONITORING": "0"},
            Settings(stall=StallSettings(act_after_s=595.0)),
            "NCCL's timeout",
        ),
        ({"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "60"}, LIMITED, "NCCL's monitor"),
        ({"NCCL_IB_TIMEOUT": "22"}, LIMITED, "stall.act_after_s"),
        (
            {"KUBERNETES_SERVICE_HOST": "10.0.0.1"},
            Settings(policy=PolicySettings(preemption_grace_s=30.0)),
            "Kubernetes",
        ),
    ],
)
def test_each_that_is_in_the_wrong_order_is_named(
    environ: dict[str, str], settings: Settings, says: str
) -> None:
    wrong = broken(parse_surroundings(environ, {}), settings)
    assert len(wrong) == 1
    assert says in wrong[0]


def test_what_is_given_in_words_counts_before_what_is_assumed() -> None:
    assert broken(parse_surroundings({}, {}, group_timeout_s=60.0)) == []
    assert broken(parse_surroundings({}, {}, group_timeout_s=60.0), LIMITED) == [
        "NCCL's timeout for collectives",
        "gloo's timeout for collectives",
    ]
    assert broken(parse_surroundings({}, {}, grace_s=20.0))[0].startswith("Kubernetes")
    off = {"TORCH_NCCL_ENABLE_MONITORING": "0", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "1"}
    assert broken(parse_surroundings(off, {}), LIMITED) == []
    assert parse_surroundings({"NCCL_IB_TIMEOUT": "x"}, {}) == parse_surroundings({}, {})


def test_slurm_that_kills_too_soon_fails_and_torchrun_is_only_noted() -> None:
    slow = Settings(policy=PolicySettings(preemption_grace_s=45.0))
    around = parse_surroundings({}, {"KillWait": 40.0})
    wrong = [c for c in check_timeouts(slow, around) if c.verdict != "ok"]
    assert sorted(check.verdict for check in wrong) == ["fail", "note"]
    assert "(KillWait) = 40 s does not hold: the job would be killed while" in next(
        check.line for check in wrong if check.verdict == "fail"
    )


def test_the_ladder_is_printed_from_its_lowest_rung_up() -> None:
    lines = [c.line for c in check_timeouts(Settings(), parse_surroundings({}, {}))]
    lower = [float(line.partition(" < ")[0].rpartition(" = ")[2].split()[0]) for line in lines]
    assert lower == sorted(lower)


def test_a_slurm_that_is_not_there_says_nothing() -> None:
    assert read_slurm("no-such-scontrol") == ""
    assert parse_slurm("") == {}
