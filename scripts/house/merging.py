"""The code of a module made of several, each rewritten already. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_LOGGER = re.compile(r"^(log|logger) = logging\.getLogger\(__name__\)\n", re.MULTILINE)
_FUTURE = "from __future__ import annotations"
_PARENTS = re.compile(r"(__file__\)(?:\.resolve\(\))?\.parents)\[(\d+)\]")

OUT_OF_ROOM = 2
"""From this parent on a file's own path leads out of its room, mostly to the repository."""


@dataclass(frozen=True)
class Part:
    """What one module consisted of."""

    docstring: str
    imports: list[str]
    checked: list[str]
    """Imports for type checkers alone, indented."""
    body: str


def moved_from(old: str, new: str, code: str) -> str:
    """The code with the parents of its own path counted from where it lies now."""
    deeper = new.count("/") - old.count("/")

    def counted(match: re.Match[str]) -> str:
        number = int(match[2])
        return f"{match[1]}[{number + deeper if number >= OUT_OF_ROOM else number}]"

    return _PARENTS.sub(counted, code)


def split(code: str) -> Part:
    """Take a module apart. Imports that come after other code stay in its body."""
    lines, nodes = code.splitlines(keepends=True), ast.parse(code).body
    docstring = ast.get_docstring(ast.parse(code), clean=False) or ""
    at = int(bool(docstring))
    last = (nodes[0].end_lineno or 0) if at else 0
    imports, checked = [], []
    for node in nodes[at:]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.append("".join(lines[last : node.end_lineno]).strip("\n"))
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            checked.append("".join(lines[node.body[0].lineno - 1 : node.end_lineno]).rstrip("\n"))
        else:
            break
        last = node.end_lineno or 0
    return Part(docstring.strip(), imports, checked, "".join(lines[last:]).strip("\n"))


def merge(parts: Mapping[str, str], needs: Mapping[str, set[str]], lead: str) -> str:
    """One module. parts: path -> code, in reading order; needs: those whose names a part may want
    while it is imported; lead: whose docstring is that of all. The others' become comments."""
    order = _order([*parts], needs)
    taken = {path: split(parts[path]) for path in order}
    imports = [line for part in taken.values() for line in part.imports]
    checked = [line for part in taken.values() for line in part.checked]
    loggers = sorted({name for part in taken.values() for name in _LOGGER.findall(part.body)})
    pieces = [f'"""{taken[lead].docstring}{_end(taken[lead].docstring)}"""']
    if any(_FUTURE in line for line in imports):
        pieces.append(_FUTURE)
    pieces.append("\n".join(dict.fromkeys(line for line in imports if _FUTURE not in line)))
    if checked:
        pieces.append("if TYPE_CHECKING:\n" + "\n".join(dict.fromkeys(checked)))
    pieces += [f"{name} = logging.getLogger(__name__)" for name in loggers]
    for path, part in taken.items():
        if path != lead and part.docstring:
            pieces.append("\n" + _comment(part.docstring))
        pieces.append(_LOGGER.sub("", part.body).strip("\n"))
    return "\n\n".join(piece for piece in pieces if piece.strip()) + "\n"


def _end(docstring: str) -> str:
    return "\n" if "\n" in docstring else ""


def _comment(docstring: str) -> str:
    return "\n".join(f"# {line}".rstrip() for line in docstring.splitlines())


def _order(paths: Sequence[str], needs: Mapping[str, set[str]]) -> list[str]:
    """Each after those that it needs, else as they are given. Raises ValueError for a cycle."""
    done: list[str] = []
    while len(done) < len(paths):
        ready = [p for p in paths if p not in done and needs[p] <= {*done, p}]
        if not ready:
            raise ValueError(f"these need each other: {sorted(set(paths) - set(done))}")
        done.append(ready[0])
    return done
