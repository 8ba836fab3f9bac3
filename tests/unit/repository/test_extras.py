"""What is skipped on a laptop is never skipped unseen in CI."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.extras import package
from tests.servers import required

TESTS = Path(__file__).parents[2]
OURS = "textual|grafana_client|promql_parser|jsonschema|yaml|playwright"


def test_a_package_that_is_missing_is_a_failure_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no_such_package is not installed"):
        package("no_such_package")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(ModuleNotFoundError):
        package("no_such_package")


def test_a_program_that_is_missing_is_a_failure_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no-such-program is not installed"):
        required("no-such-program")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception):
        required("no-such-program")


def test_what_the_readme_installs_brings_what_its_commands_need() -> None:
    readme = (TESTS.parent / "README.md").read_text()
    installed = re.search(r"^pip install .*\.\[([a-z,]+)\]", readme, re.MULTILINE)
    assert installed is not None
    assert "`holdfast top` (live)" in readme
    assert {"train", "server", "top"} <= set(installed[1].split(","))


def test_no_test_skips_itself_for_want_of_what_ci_has() -> None:
    forms = rf"importorskip\(\s*[\"']({OURS})\b|pytest\.skip\([^)]*(promtool|amtool|alertmanager)"
    found = [
        str(path.relative_to(TESTS))
        for path in sorted(TESTS.rglob("*.py"))
        if path != Path(__file__) and re.search(forms, path.read_text())
    ]
    assert found == []
