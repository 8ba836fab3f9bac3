from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_sidecar.launcher import gate_notice
from holdfast_sidecar.settings import GateSettings


@pytest.mark.parametrize(
    ("has_driver", "expected", "has_sidecar", "awaits"),
    [
        (False, 0, True, False),
        (True, 0, True, True),
        (False, 8, True, True),
        (True, 8, False, False),
    ],
)
def test_a_verdict_is_worth_a_wait_where_there_are_gpus_and_a_sidecar(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    has_driver: bool,
    expected: int,
    has_sidecar: bool,
    awaits: bool,
) -> None:
    driver = tmp_path / "nvidiactl"
    if has_driver:
        driver.touch()
    monkeypatch.setattr(gate_notice, "DRIVERS", (driver,))
    assert gate_notice.awaits_gate(GateSettings(expected_gpus=expected), has_sidecar) is awaits


def test_a_wished_test_is_waited_for_on_any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_notice, "DRIVERS", ())
    assert gate_notice.awaits_gate(GateSettings(test_after_blame=True), has_sidecar=True)
