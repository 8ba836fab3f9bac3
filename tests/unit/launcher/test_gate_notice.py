from __future__ import annotations

from pathlib import Path

import pytest
from testing.fake_node import build_node

from holdfast_sidecar.config.settings import GateSettings
from holdfast_sidecar.launcher import plan_state
from holdfast_sidecar.launcher.plan_state import awaits_gate


@pytest.fixture(autouse=True)
def no_driver_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_state, "OWN", tmp_path / "dev")


@pytest.mark.parametrize(
    ("has_driver", "expected", "has_sidecar", "awaits"),
    [
        (False, 0, True, False),
        (True, 0, True, True),
        (False, 8, True, True),
        (True, 8, False, False),
    ],
)
@pytest.mark.parametrize("tree", ["dev", "host/dev"])
def test_a_verdict_is_worth_a_wait_where_there_are_gpus_and_a_sidecar(
    tmp_path: Path, tree: str, has_driver: bool, expected: int, has_sidecar: bool, awaits: bool
) -> None:
    (tmp_path / tree).mkdir(parents=True)
    if has_driver:
        (tmp_path / tree / "nvidiactl").touch()
    settings = GateSettings(expected_gpus=expected)
    assert awaits_gate(settings, has_sidecar, str(tmp_path / "host")) is awaits


def test_a_node_of_fake_gpus_is_worth_the_same_wait(tmp_path: Path) -> None:
    node = build_node(tmp_path / "fake", tmp_path / "lib", gpus=2, ports=0)
    assert awaits_gate(GateSettings(), True, str(node.root))
    none = build_node(tmp_path / "bare", tmp_path / "lib", gpus=0, ports=0)
    assert not awaits_gate(GateSettings(), True, str(none.root))


def test_a_wished_test_is_waited_for_on_any_machine() -> None:
    assert awaits_gate(GateSettings(test_after_blame=True), True, "/")
