import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from holdfast_sidecar import __version__
from holdfast_sidecar.cli import main
from holdfast_sidecar.cli.main import COMMANDS, cli
from holdfast_sidecar.config.settings import BadInput


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, prog_name="holdfast")


def test_help_names_every_command_without_importing_any() -> None:
    code = (
        "import sys; from holdfast_sidecar.cli.main import cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit as end: assert not end.code\n"
        "loaded = [name for name in sys.modules if name.split('.')[0] in ('torch', 'redis')]\n"
        "loaded += [n for n in sys.modules if n.startswith('holdfast_sidecar.cli.') "
        "and not n.endswith('main')]\n"
        "sys.exit(str(loaded) if loaded else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name, line in COMMANDS.items():
        assert name in done.stdout
        assert line.split()[0] in done.stdout


def test_without_a_command_the_help_is_printed_as_help() -> None:
    result = run()
    assert result.exit_code in (0, 2)  # 0 before click 8.2
    assert result.stdout == run("--help").stdout
    assert result.stderr == ""


def test_the_version_is_printed() -> None:
    assert run("--version").output == f"holdfast {__version__}\n"


def test_bad_input_is_one_line_and_exit_2() -> None:
    result = run("config", "--set", "checkpoint.keep=many")
    assert result.exit_code == 2
    assert result.output == (
        "holdfast: checkpoint.keep = 'many' (command line): expected a whole number\n"
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nonsense"], "No such command 'nonsense' (see `holdfast --help`)"),
        (["config", "--nonsense"], "(see `holdfast config --help`)"),
        (["status", "--job", "a b"], "can't be the name of a job"),
    ],
)
def test_a_wrong_word_is_one_line_and_exit_2(arguments: list[str], says: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.output.startswith("holdfast: ")
    assert says in result.output
    assert result.output.count("\n") == 1


def test_an_error_of_ours_is_not_dressed_up_as_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def config() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(main.Commands, "get_command", lambda *_: config)
    result = run("config")
    assert isinstance(result.exception, ZeroDivisionError)


def test_exit_codes_of_commands_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    @click.pass_context
    def config(ctx: click.Context) -> None:
        ctx.exit(7)

    monkeypatch.setattr(main.Commands, "get_command", lambda *_: config)
    assert run("config").exit_code == 7


def test_several_lines_of_bad_input_become_one() -> None:
    assert main.one_line(BadInput("one\n  two")) == "one two"


def test_a_terminal_without_our_signs_gets_the_rest() -> None:
    code = "from holdfast_sidecar.cli import main; main.cli.main(['trace', '--help'])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
    )
    assert done.returncode == 0, done.stderr
    assert b"--ranks N,N?" in done.stdout


def test_ctrl_c_while_python_still_imports_ends_it_without_a_traceback(tmp_path: Path) -> None:
    # The handler is Python's own, also where the tests were started in the background of a shell.
    slow = (
        "import os, signal, time",
        "signal.signal(signal.SIGINT, signal.default_int_handler)",
        "os.kill(os.getpid(), signal.SIGINT)",
        "time.sleep(60)",
    )
    (tmp_path / "click.py").write_text("\n".join(slow))
    project = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    entry = re.search(r'^holdfast = "(.+):(.+)"$', project, re.MULTILINE)
    assert entry is not None
    done = subprocess.run(
        [sys.executable, "-c", f"from {entry[1]} import {entry[2]}; {entry[2]}()"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert (done.returncode, done.stderr) == (130, "")
