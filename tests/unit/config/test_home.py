"""Where a user's own files are."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_sidecar.config.paths import personal_directory, usual_state_root


@pytest.mark.parametrize("given", [None, "", "state", "./state", "~/state"])
def test_a_relative_xdg_directory_is_ignored_as_its_specification_says(
    given: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert personal_directory(given, "~/.config") == tmp_path / ".config"
    monkeypatch.setenv("XDG_STATE_HOME", given or "")
    assert usual_state_root() == tmp_path / ".local/state/holdfast"


def test_a_whole_path_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert usual_state_root() == tmp_path / "holdfast"
