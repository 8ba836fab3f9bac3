"""A node's test by work, for real: on this machine's CPU, with torch and gloo."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from holdfast_sidecar.components.health_check.self_test import TestProcess
from holdfast_sidecar.components.health_check.stress_request import (
    ALL_REDUCE,
    CPU,
    GPU,
    MATMUL,
    MEMORY,
    Result,
    StressRequest,
)

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SITE = """
import torch, sys
true = torch.Tensor.{name}
count = [0]
def wrong(self, *given, **named):
    result = true(self, *given, **named)
    count[0] += 1
    if count[0] {when} and "stress.worker" in " ".join(sys.orig_argv):
        {harm}
    return result
torch.Tensor.{name} = wrong
"""


def run(errand: StressRequest, patience_s: float = 60.0) -> tuple[Result, list[str]]:
    """The result, and what it said it was at on the way."""
    began_s = time.monotonic()
    process = TestProcess.start(errand, began_s, patience_s)
    at: list[str] = []
    while True:
        result = process.look(time.monotonic())
        if process.at not in at:
            at.append(process.at)
        if result is not None:
            return result, at
        time.sleep(0.01)


def test_on_this_machine_nothing_is_wrong_and_every_figure_is_there() -> None:
    result, at = run(StressRequest(os.getpid(), CPU, 2, part_s=0.3))
    assert (result.error, result.wrong, result.model) == ("", [], "cpu")
    assert set(result.figures) == {MATMUL, MEMORY, ALL_REDUCE}
    assert all(value > 1e6 for value in result.figures.values())
    assert at[0] == "starting"
    assert "testing memory" in at


def test_one_process_sums_over_nobody() -> None:
    result, _ = run(StressRequest(os.getpid(), CPU, 1, part_s=0.1))
    assert set(result.figures) == {MATMUL, MEMORY}
    assert result.wrong == []


@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="this torch knows GPUs")
def test_a_device_that_torch_can_t_use_is_an_error_of_the_test() -> None:
    result, _ = run(StressRequest(os.getpid(), GPU, 1, part_s=0.1))
    assert result.error == f"cuda 0: torch {torch.__version__} was built without CUDA"
    assert result.wrong == []


def test_a_worker_that_fails_says_why_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As where torch is not there, or not whole."""
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.12: no such file')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    result, _ = run(StressRequest(os.getpid(), CPU, 1, part_s=0.1))
    assert result.error == "cpu 0: exit code 1: ImportError: libcudart.so.12: no such file"
    assert "Traceback" in capfd.readouterr().err, "the log keeps the whole of it"


@pytest.mark.parametrize(
    ("name", "harm", "told"),
    [
        ("__matmul__", "result[3, 4] += 1", "products came out wrong"),
        ("copy_", "self.view(-1)[7] ^= 64", "words of memory differ"),
    ],
)
def test_one_bit_that_is_wrong_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, harm: str, told: str
) -> None:
    """The fault is planted under torch: one element of one result."""
    when = "== 5" if name == "__matmul__" else ">= 2 and self.numel() > 1000"
    (tmp_path / "sitecustomize.py").write_text(SITE.format(name=name, harm=harm, when=when))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    result, _ = run(StressRequest(os.getpid(), CPU, 1, part_s=0.1))
    assert result.error == ""
    (wrong,) = result.wrong
    assert told in wrong
    assert wrong.startswith("cpu 0: ")


def test_its_time_is_over() -> None:
    result, _ = run(StressRequest(os.getpid(), CPU, 1, part_s=60.0), patience_s=3.0)
    assert result.error.startswith("it was not over within 3 s (last: ")


@pytest.mark.parametrize(
    ("told", "is_its_own"),
    [
        ("CUDA error: uncorrectable ECC error encountered", True),
        ("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`", True),
        ("NCCL error in: NCCLUtils.hpp:317, unhandled cuda error (run with NCCL_DEBUG=INFO)", True),
        ("NCCL error in: NCCLUtils.hpp:317, unhandled system error, NCCL version 2.27.3", False),
        ("CUDA out of memory. Tried to allocate 8.00 GiB.", False),
        ("CUDA error: out of memory", False),
    ],
)
def test_what_surrounds_a_device_is_told_from_its_own_errors(told: str, is_its_own: bool) -> None:
    from holdfast_sidecar.components.health_check.stress.worker import blames_device

    assert blames_device(told) is is_its_own
