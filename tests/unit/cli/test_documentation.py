import re
from pathlib import Path

from holdfast_sidecar.cli.checkpoint import checkpoint
from holdfast_sidecar.cli.main import COMMANDS
from holdfast_sidecar.config.loading import flatten
from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.config.timeouts import rungs
from holdfast_sidecar.policy.budget import EXIT_DO_NOT_REQUEUE

DOCUMENT = Path(__file__).parents[3] / "docs" / "configuration.md"


def rows() -> dict[str, str]:
    text = DOCUMENT.read_text()
    found = re.findall(r"^\| `(\w+\.\w+)` \| (?:`([^`]*)`|\*\(empty\)\*) \|", text, re.MULTILINE)
    return dict(found)


def test_the_document_names_every_setting_with_its_default_and_no_other() -> None:
    assert rows() == {name: str(value) for name, value in flatten(Settings())}


def test_the_document_names_every_rung_of_the_ladder() -> None:
    text = DOCUMENT.read_text()
    ladder = text[text.index("| must be below") : text.index("On a slow or distant")]
    for rung in rungs(Settings()):
        names = {*re.findall(r"\w+\.\w+_s", f"{rung.lower_name} {rung.upper_name}")}
        lines = [set(re.findall(r"\w+\.\w+_s", line)) for line in ladder.splitlines()]
        assert lines.count(names) == 1, rung


def test_the_document_tells_every_commands_exit_codes() -> None:
    text = DOCUMENT.read_text()
    codes = text[text.index("## Commands and their exit codes") :]
    told = re.findall(r"^\| `holdfast (\w+)(?: (\w+))?`", codes, re.MULTILINE)
    assert {command for command, _ in told} == set(COMMANDS)
    assert {part for command, part in told if command == "checkpoint"} == set(checkpoint.commands)
    top = re.search(r"^\| `holdfast top` \|[^|]*\| ([^|]*) \| ([^|]*) \|", codes, re.MULTILINE)
    assert top is not None
    assert "nobody of the job answers" in top[1], "as its help has it"
    assert f"one more code, {EXIT_DO_NOT_REQUEUE}:" in codes
