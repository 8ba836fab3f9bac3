"""What must not be in any file of the project, and what must be in every package."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = (ROOT / "hooks" / "holdfast", ROOT / "sidecar" / "holdfast_sidecar")

# Spelled in pieces, so that this file does not find itself.
FOREIGN = {
    "a home directory": re.compile(r"/(?:home|Users)/[a-z]\w*/|/ro" r"ot/"),
    "a checkout's place": re.compile(r"(?<![\w.}])/wo" r"rk/|/opt/h" r"f\b"),
    "a package registry": re.compile(
        r"https?://[^\s/]*(?:py" r"pi|pythonho" r"sted|regis" r"try)[^\s/]*|down" r"load\.pytorch"
    ),
    "a credential in an address": re.compile(r"https?://[^\s/:@]+:[^\s/@]+@"),
}

VAGUE = {"utils", "util", "helpers", "helper", "common", "core", "base", "manager", "misc"}


def tracked() -> list[Path]:
    """Files that git tracks, or would after `git add`."""
    answer = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in answer.stdout.split("\0") if name and (ROOT / name).is_file()]


def modules() -> list[Path]:
    return [path for package in PACKAGES for path in package.rglob("*.py")]


def test_no_file_names_a_place_of_one_machine_or_a_registry() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {what}: {line.strip()}"
        for path in tracked()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        for what, pattern in FOREIGN.items()
        if pattern.search(line)
    ]
    assert found == []


def test_the_search_for_foreign_places_finds_them() -> None:
    planted = {
        "a home directory": "see /home/" + "ada/notes",
        "a checkout's place": "cd /wo" + "rk/main",
        "a package registry": "https://py" + "pi.example/simple",
        "a credential in an address": "https://ada:" + "secret@example.org/",
    }
    assert {what for what, text in planted.items() if FOREIGN[what].search(text)} == set(FOREIGN)


def test_every_module_opens_by_saying_what_it_answers_for() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in modules()
        if path.read_text().strip() and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


def test_no_module_has_a_vague_name() -> None:
    assert [str(path) for path in modules() if path.stem in VAGUE] == []


def test_every_environment_name_is_spelled_in_one_file_only() -> None:
    """And in the bootstrap, which must look before it may import anything of ours."""
    spelled = re.compile(r"""["']HOLDFAST_[A-Z_]+["']""")
    strays = [
        f"{path.relative_to(ROOT)}: {hit}"
        for path in modules()
        if path.name not in ("environment.py", "sitecustomize.py")
        for hit in spelled.findall(path.read_text())
    ]
    assert strays == []


def test_only_five_places_catch_every_exception() -> None:
    """The hook guard, probe runner, action runner, the sidecar's tick and the exchange guard."""
    catching = [
        str(path.relative_to(ROOT))
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Try) and raises_something_of_others(node)
        for handler in node.handlers
        if catches_everything(handler)
    ]
    assert set(catching) <= {
        "hooks/holdfast/guard.py",
        "sidecar/holdfast_sidecar/ranks/ending.py",
        "sidecar/holdfast_sidecar/store/protocol.py",
        "sidecar/holdfast_sidecar/loop.py",
        "sidecar/holdfast_sidecar/linux/probe_runner.py",
    }
    assert len(catching) == len(set(catching)), catching


def raises_something_of_others(attempt: ast.Try) -> bool:
    """False for `try: raise error`: what is caught there is known."""
    return not all(isinstance(statement, ast.Raise) for statement in attempt.body)


def catches_everything(handler: ast.ExceptHandler) -> bool:
    """Whether this handler goes on after any Exception, rather than raise again or leave."""
    broad = handler.type is None or (
        isinstance(handler.type, ast.Name) and handler.type.id in ("Exception", "BaseException")
    )
    last = ast.unparse(handler.body[-1])
    return broad and not last.startswith(("raise", "sys.exit("))
