"""A rank says which GPUs it trains on, once, and never starts CUDA for it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.contract import page
from holdfast.contract.identity import read_identity
from holdfast.patches.optimizer import OptimizerSteps
from holdfast.recording.devices import describe, write_devices
from holdfast.recording.recorder import Recorder


def parameter(index: int | None) -> Any:
    return SimpleNamespace(is_cuda=index is not None, device=SimpleNamespace(index=index))


def optimizer(*indices: int | None) -> Any:
    return SimpleNamespace(param_groups=[{"params": [parameter(index) for index in indices]}])


def torch_with_gpus() -> Any:
    """As torch tells of GPUs; asking one that holds nothing is an error."""

    def properties(index: int) -> Any:
        assert index in (1, 3)
        return SimpleNamespace(
            uuid=f"aaaa-{index}", pci_domain_id=0, pci_bus_id=0x10 + index, pci_device_id=0
        )

    return SimpleNamespace(cuda=SimpleNamespace(get_device_properties=properties))


def test_the_gpus_that_hold_parameters_are_told_with_who_says_so(tmp_path: Path) -> None:
    path = tmp_path / "attempt-0-local-0.devices"
    write_devices(torch_with_gpus(), optimizer(3, None, 1, 3), path)
    assert json.loads(path.read_text()) == {
        "process": str(read_identity()),
        "devices": [
            {"uuid": "aaaa-1", "pci": "0000:11:00.0"},
            {"uuid": "aaaa-3", "pci": "0000:13:00.0"},
        ],
    }
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_a_rank_on_the_cpu_asks_nothing_of_cuda(tmp_path: Path) -> None:
    write_devices(SimpleNamespace(), optimizer(None), tmp_path / "devices")
    assert list(tmp_path.iterdir()) == []


def test_a_torch_that_does_not_tell_leaves_it_empty() -> None:
    assert describe(SimpleNamespace()) == {"uuid": "", "pci": ""}
    assert describe(SimpleNamespace(uuid="ab")) == {"uuid": "ab", "pci": ""}


def test_it_is_said_when_an_optimizer_first_steps_and_not_again() -> None:
    said: list[Any] = []
    steps = OptimizerSteps(Recorder(bytearray(page.PAGE_SIZE), attempt=0), said.append)
    first = optimizer_that_can_be_held()
    for _ in range(3):
        steps.begin(first)
        steps.end(first)
    assert said == [first]


def test_a_script_with_a_new_optimizer_for_each_step_says_it_once() -> None:
    said: list[int] = []
    tell = lambda optimizer: said.append(id(optimizer))  # noqa: E731 - it must not hold it
    steps = OptimizerSteps(Recorder(bytearray(page.PAGE_SIZE), attempt=0), tell)
    for _ in range(3):
        each = optimizer_that_can_be_held()
        steps.begin(each)
        steps.end(each)
        del each
    assert len(said) == 1


def optimizer_that_can_be_held() -> Any:
    class Held:
        """Anything that can be held weakly."""

    return Held()


@pytest.mark.torch
def test_a_real_optimizer_on_the_cpu_writes_nothing(tmp_path: Path) -> None:
    import torch

    held = torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.1)
    write_devices(torch, held, tmp_path / "devices")
    assert list(tmp_path.iterdir()) == []
    assert not torch.cuda.is_initialized()
