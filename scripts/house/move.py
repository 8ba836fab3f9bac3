"""Move the modules of one room: python -m scripts.house.move ROOM [--dry]

Needs libcst, which the project itself does not. Afterwards: ruff check --fix, ruff format, and
python -m scripts.house.proof.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from scripts.house.merging import merge, moved_from
from scripts.house.plan import BASE, Plan, module_of, python_files, read_plan
from scripts.house.rewriting import rewrite

TEXTS = {".md", ".toml", ".yaml", ".yml", ".sh", ".json", ".py", ".service"}
LEFT_ALONE = ("docs/decisions/", "bench/results/", "scripts/house/", "CHANGELOG.md")
"""They speak of how it was."""


def main() -> int:
    """Move, and say on stderr what has to be done by hand; with --dry only the latter."""
    room, repository = sys.argv[1], Path.cwd()
    plan = read_plan(repository, room)
    todo = [path for path in python_files(repository) if _is_concerned(plan, path)]
    print(
        f"{room}: {len(plan.parts)} modules of {len(plan.new_path)}; {len(todo)} files", flush=True
    )
    with ProcessPoolExecutor(2) as pool:
        done = [*pool.map(partial(_rewritten, plan), todo, chunksize=16)]
    codes = {path: code for path, (code, _) in zip(todo, done, strict=True)}
    problems = [problem for _, found in done for problem in found]
    print("\n".join(problems), file=sys.stderr)
    if problems or "--dry" in sys.argv:
        return int(bool(problems))
    merged = {new: _merged(plan, new, codes) for new in plan.parts}
    _move_files(plan)
    for path, code in codes.items():
        if path not in plan.new_path:
            (repository / path).write_text(code)
    for path, code in merged.items():
        (repository / path).write_text(code)
    for path in _rewrite_texts(plan):
        print(f"text: {path}")
    return 0


def _is_concerned(plan: Plan, path: str) -> bool:
    if path in plan.new_path:
        return True
    text = (plan.repository / path).read_text()
    return any(all(half in text for half in name.rsplit(".", 1)) for name in plan.module)


def _rewritten(plan: Plan, path: str) -> tuple[str, list[str]]:
    return rewrite(plan, path, (plan.repository / path).read_text())


def _merged(plan: Plan, new: str, codes: dict[str, str]) -> str:
    parts = plan.parts[new]
    moved = {part: moved_from(part, new, codes[part]) for part in parts}
    if len(parts) == 1:
        return moved[parts[0]]
    return merge(moved, {part: _needs(plan, part) for part in parts}, parts[0])


def _needs(plan: Plan, path: str) -> set[str]:
    """Parts of the same new module that this one imports from."""
    new, found = plan.new_path[path], set()
    by_module = {module_of(old): old for old in plan.parts[new]}
    for node in ast.parse((plan.repository / path).read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            found |= {by_module[name] for name in names if name in by_module}
    return found


def _move_files(plan: Plan) -> None:
    """The largest part becomes the new file, so that its history can be followed."""
    repository = plan.repository
    for new, old in plan.files.items():
        (repository / new).parent.mkdir(parents=True, exist_ok=True)
        _git(repository, "mv", old, new)
    for new, parts in plan.parts.items():
        if new not in parts:
            largest = max(parts, key=lambda part: (repository / part).stat().st_size)
            (repository / new).parent.mkdir(parents=True, exist_ok=True)
            _git(repository, "mv", largest, new)
    gone = [old for old in plan.new_path if old not in plan.parts and (repository / old).exists()]
    if gone:
        _git(repository, "rm", "-q", *gone)


def _rewrite_texts(plan: Plan) -> Iterator[str]:
    """Dotted names and paths in all that people and other programs read."""
    words = {old: new for old, new in _words(plan) if old != new}
    if not words:
        return
    longest_first = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    pattern = re.compile(rf"(?<![\w./-])({longest_first})(?![\w/])")
    for path in _git(plan.repository, "ls-files").splitlines():
        file = plan.repository / path
        is_text = file.suffix in TEXTS or file.name in ("Makefile", "run")
        if not is_text or not file.is_file() or path.startswith(LEFT_ALONE):
            continue
        before = file.read_text()
        after = pattern.sub(lambda match: words[match[1]], before)
        if after != before:
            file.write_text(after)
            yield path


def _words(plan: Plan) -> Iterator[tuple[str, str]]:
    for old, new in plan.new_path.items():
        if old.endswith("__init__.py"):
            continue
        if module_of(new).startswith(f"{module_of(old)}."):
            continue  # within what is moved: its new name would be found in it, and moved again
        yield module_of(old), module_of(new)
        yield old, new
        yield old.removeprefix("sidecar/"), new.removeprefix("sidecar/")
        yield old.removeprefix("hooks/"), new.removeprefix("hooks/")
        short = old.removeprefix(f"{BASE}/")
        if "/" in short:
            yield short, new.removeprefix(f"{BASE}/")


def _git(repository: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=repository, check=True, capture_output=True, text=True
    ).stdout


if __name__ == "__main__":
    sys.exit(main())
