"""`holdfast top` without a screen: one picture, the data, and what is said of bad input."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.extras import package
from tests.unit.export.live.pretend_views import healthy, troubled

from holdfast.contract.identity import read_identity
from holdfast_sidecar.cli.find_job import addresses_here, jobs_here, only_one
from holdfast_sidecar.cli.main import cli
from holdfast_sidecar.cli.tui.sources import parse_view
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.export.live.packing import pack


def run(*arguments: str, state: Path | None = None) -> Result:
    more = () if state is None else ("--set", f"paths.state_dir={state}")
    return CliRunner().invoke(cli, ["top", *arguments, *more], prog_name="holdfast")


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "views.jsonl"
    path.write_bytes(pack(troubled(4)) + b"\n")
    return path


def write_record(state: Path, job: str, node: str, address: str, pid: int | None = None) -> None:
    me = read_identity()
    assert me is not None
    folder = state / job / node
    folder.mkdir(parents=True)
    content = {
        "pid": os.getpid() if pid is None else pid,
        "start_ticks": me.start_ticks,
        "metrics_address": address,
    }
    (folder / "sidecar.json").write_text(json.dumps(content))


def test_one_picture_is_plain_text(recording: Path) -> None:
    result = run("--once", "--replay", str(recording))
    assert result.exit_code == 0
    assert result.output.splitlines()[1].startswith("! rank 3 on node-0 died: SIGKILL")
    assert "\x1b" not in result.output


def test_one_picture_in_ascii(recording: Path) -> None:
    assert run("--once", "--ascii", "--replay", str(recording)).output.isascii()


def test_words_to_look_for(recording: Path) -> None:
    result = run("--once", "--filter", "2", "--replay", str(recording))
    assert "only: 2" in result.output


def test_the_data_is_one_line_and_can_be_shown_again(recording: Path) -> None:
    result = run("--json", "--replay", str(recording))
    assert result.output.count("\n") == 1
    told = json.loads(result.output)
    assert [rank["rank"] for rank in told["ranks"]] == [0, 1, 2, 3]
    assert parse_view(result.output) == parse_view(recording.read_text())


def test_an_unknown_name_is_one_line_and_exit_2(tmp_path: Path) -> None:
    result = run("--once", "--job", "nonsense", state=tmp_path)
    assert result.exit_code == 2
    assert result.output.startswith("holdfast: no job 'nonsense' of yours runs here")
    assert result.output.count("\n") == 1


def test_several_jobs_want_a_name(tmp_path: Path) -> None:
    for job in ("one", "two"):
        write_record(tmp_path, job, "a", "127.0.0.1:1")
    result = run("--once", state=tmp_path)
    assert (result.exit_code, result.output) == (
        2,
        "holdfast: several jobs are here, name one with --job: one, two\n",
    )


def test_a_sidecar_that_does_not_answer_is_one_line_and_exit_1(tmp_path: Path) -> None:
    write_record(tmp_path, "llm", "a", "127.0.0.1:1")
    result = run("--json", state=tmp_path)
    assert (result.exit_code, result.output) == (
        1,
        "holdfast: 127.0.0.1:1 does not answer: Connection refused\n",
    )


def test_the_only_living_sidecar_s_job_is_meant(tmp_path: Path) -> None:
    write_record(tmp_path, "llm", "a", "127.0.0.1:1")
    write_record(tmp_path, "llm", "b", "127.0.0.1:2")
    write_record(tmp_path, "over", "a", "127.0.0.1:3", pid=1 << 22)
    (tmp_path / "llm" / "c").mkdir()
    (tmp_path / "llm" / "c" / "sidecar.json").write_text("{")
    assert jobs_here(tmp_path) == {"llm": ["127.0.0.1:1", "127.0.0.1:2"]}
    assert list(addresses_here(tmp_path / "over")) == []
    assert only_one({}) is None
    with pytest.raises(BadInput):
        only_one({"a": [], "b": []})


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--replay", "/nonexistent"], "can't read /nonexistent: No such file or directory"),
        (["--url", "ftp://x:1"], "'ftp://x:1' is no address of a sidecar"),
        (["--url", "node7"], "'node7' names no port: write http://node7:PORT"),
        (["--every", "0"], "'--every'"),
        (["--every", "nan"], "'--every': 'nan' is no number to count with"),
        (["--every", "inf"], "'--every'"),
        (["--job", "../x"], "can't be the name of a job"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(arguments: list[str], says: str, tmp_path: Path) -> None:
    result = run("--once", *arguments, state=tmp_path)
    assert result.exit_code == 2
    assert says in result.output
    assert result.output.count("\n") == 1


def test_without_a_terminal_there_is_no_screen(recording: Path) -> None:
    package("textual")
    result = run("--replay", str(recording))
    assert result.exit_code == 2
    assert "needs a terminal; --once prints one picture" in result.output


def test_without_textual_it_says_how_to_get_it(
    recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = run("--replay", str(recording))
    assert result.exit_code == 2
    assert "pip install 'holdfast[top]'" in result.output
    assert result.output.count("\n") == 1
    assert run("--once", "--replay", str(recording)).exit_code == 0


def test_a_large_job_s_data_is_one_line_too(tmp_path: Path) -> None:
    (tmp_path / "v").write_bytes(pack(healthy(1024)))
    assert run("--json", "--replay", str(tmp_path / "v")).output.count("\n") == 1
