"""Every `holdfast` command of a runbook is one that there is, with options that it takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests.unit.alerts.shipped import ALERTS

from holdfast_sidecar.cli.main import cli

BOOKS = sorted((ALERTS / "runbooks").glob("*.md"))


def commands(text: str) -> Iterator[str]:
    """Lines of code blocks and words in backticks that call `holdfast`."""
    blocks = re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    yield from (line for block in blocks for line in block.splitlines() if line[:9] == "holdfast ")
    rest = re.sub(r"^```\n.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from re.findall(r"`(holdfast [^`]*)`", rest)


def trouble(line: str) -> str:
    """Why it would not run; empty: it would."""
    words = shlex.split(line)[1:]
    if words[0] == "run":
        return ""  # takes every option of torchrun
    command: click.Command | None = cli
    with click.Context(cli) as context:
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            if (found := command.get_command(context, words[0])) is None:
                break
            command, words = found, words[1:]
    if command is cli:
        return f"no command {words[0]}"
    assert command is not None
    if isinstance(command, click.Group) and not command.invoke_without_command:
        return f"{command.name} needs a command"
    known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
    given = {word.partition("=")[0] for word in words if word.startswith("--")}
    places = sum(1 if p.nargs > 0 else 99 for p in command.params if isinstance(p, click.Argument))
    return (
        f"no option {', '.join(sorted(given - known))}"
        if given - known
        else _extra(command, words, places)
    )


def _extra(command: click.Command, words: list[str], places: int) -> str:
    flags = {
        o
        for p in command.params
        if isinstance(p, click.Option) and p.is_flag
        for o in (*p.opts, *p.secondary_opts)
    }
    bare, skips = [], False
    for word in words:
        if skips:
            skips = False
        elif word.startswith("--"):
            skips = word not in flags and "=" not in word
        else:
            bare.append(word)
    needed = [p for p in command.params if isinstance(p, click.Argument) and p.required]
    if len(bare) > places or len(bare) < len(needed):
        return f"{command.name} takes other words than {' '.join(bare) or 'none'}"
    return ""


@pytest.mark.parametrize("book", BOOKS, ids=lambda path: path.stem)
def test_the_commands_of_a_runbook_exist(book: Path) -> None:
    wrong = {line: trouble(line) for line in commands(book.read_text())}
    assert {line: why for line, why in wrong.items() if why} == {}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("holdfast nonsense", "no command nonsense"),
        ("holdfast status --jobs RUN", "no option --jobs"),
        ("holdfast node drain --job RUN", "drain takes other words than none"),
        ("holdfast checkpoint --job RUN", "checkpoint needs a command"),
        ("holdfast pause now --job RUN", "pause takes other words than now"),
    ],
)
def test_a_command_that_does_not_exist_is_found(line: str, why: str) -> None:
    assert trouble(line) == why


SIDECARS = [
    "python -m holdfast_sidecar.cli.main sidecar --job llm --node a --launcher-pid 7 --set x=1",
    "/opt/holdfast/bin/python /opt/holdfast/bin/holdfast sidecar --job llm --node a",
    "/usr/bin/python /usr/bin/holdfast sidecar --job=llm --node=a --listen=0.0.0.0:9750",
]
"""As a launcher, systemd and Kubernetes start that of node a in the run llm."""

OTHERS = [
    "python /bin/holdfast run --job llm --node a --set sidecar.listen=127.0.0.1:9750 train.py",
    "python -m holdfast_sidecar.launcher.warm_interpreter 5 torch train.py",
    "python -m holdfast_sidecar.checkpoint.writer --job llm --node a",
    "python sidecar/holdfast_sidecar/ranks/death_watch_child.py 12",
    "python -m holdfast_sidecar.cli.main sidecar --job llm2 --node a --launcher-pid 7",
    "python -m holdfast_sidecar.cli.main sidecar --job llm --node ab --launcher-pid 7",
    "bash -c pgrep -af 'sidecar --job[= ]llm --node[= ]a( |$)'",
]


@pytest.mark.parametrize("name", ["HoldfastSidecarStuck", "HoldfastSidecarDown"])
def test_a_runbook_s_pgrep_finds_the_one_sidecar_and_nobody_else(name: str) -> None:
    text = (ALERTS / "runbooks" / f"{name}.md").read_text()
    pattern = re.findall(r"^pgrep -af '(.*)'$", text, re.MULTILINE)[0]
    pattern = pattern.replace("RUN", "llm").replace("NODE", "a")
    assert [line for line in SIDECARS + OTHERS if re.search(pattern, line)] == SIDECARS


def test_every_runbook_names_a_command_of_ours() -> None:
    silent = [book.stem for book in BOOKS if not list(commands(book.read_text()))]
    assert silent == []


def test_links_from_one_runbook_to_another_lead_somewhere() -> None:
    dead = [
        f"{book.name}: {target}"
        for book in BOOKS
        for target in re.findall(r"\]\(([^)]+)\)", book.read_text())
        if not (book.parent / target).exists()
    ]
    assert dead == []
