"""What only matters to those who start the job by plain torchrun instead of `holdfast run`."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast_sidecar.examination.check import FAIL, NOTE, OK, Check

SHARE_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
MAX_RESTARTS = "PET_MAX_RESTARTS"
"""torchrun takes every option from PET_<OPTION> too."""


def check_torchrun(environment: Mapping[str, str]) -> list[Check]:
    """Look at what torchrun would inherit from this environment."""
    return [_judge_store(environment.get(SHARE_STORE)), _judge_restarts(environment)]


def _judge_store(value: str | None) -> Check:
    if value == "1":
        return Check("torchrun", OK, f"{SHARE_STORE}=1: every attempt gets a fresh store")
    line = (
        f"with torchrun's own rendezvous set {SHARE_STORE}=1: the store shared between attempts "
        "makes restarts on several nodes hang; `holdfast run` and --rdzv-backend=holdfast need not"
    )
    return Check("torchrun", NOTE, line)


def _judge_restarts(environment: Mapping[str, str]) -> Check:
    value = environment.get(MAX_RESTARTS)
    if value is None:
        line = "give plain torchrun --max-restarts 1 or more: its default of 0 restarts nothing"
        return Check("torchrun", NOTE, line)
    if value.isdecimal() and int(value) >= 1:
        return Check("torchrun", OK, f"{MAX_RESTARTS}={value}")
    return Check("torchrun", FAIL, f"{MAX_RESTARTS}={value} restarts nothing: make it 1 or more")
