"""That a move changed no definition: python -m scripts.house.proof BEFORE [AFTER]

BEFORE and AFTER are revisions; without AFTER the working tree. The multiset of all top-level
definitions of the package, as syntax trees without the names of modules, must be the same.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Set
from pathlib import Path

_PLACES = ("sidecar", "hooks", "testing", "scripts/reference.py")
"""Where the package's definitions are, and go."""

_NAMED = re.compile(r"holdfast(_sidecar)?\.[\w./]+|[\w/]+\.py\b")


def main() -> int:
    """Print what is in one of the two only; 1 where there is something."""
    sources = [
        [*_sources(revision)] for revision in (sys.argv[1], sys.argv[2] if sys.argv[2:] else "")
    ]
    modules = set().union(*map(imported_modules, [*sources[0], *sources[1]]))
    before, after = (Counter(definitions(found, modules)) for found in sources)
    print(f"{before.total()} definitions before, {after.total()} after")
    for sign, found in (("-", before - after), ("+", after - before)):
        for dumped, count in sorted(found.items()):
            print(f"{sign}{count} {dumped[:300]}")
    return int(before != after)


def _sources(revision: str) -> Iterator[str]:
    if not revision:
        listed = _git("ls-files", *_PLACES).splitlines()
        paths = [Path(path) for path in listed if path.endswith(".py")]
        yield from (path.read_text() for path in paths if path.exists())
        return
    for path in _git("ls-tree", "-r", "--name-only", revision, *_PLACES).splitlines():
        if path.endswith(".py"):
            yield _git("show", f"{revision}:{path}")


def imported_modules(source: str) -> set[str]:
    """Names that a module uses for modules of the package."""
    return {
        alias.asname or alias.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("holdfast")
        for alias in node.names
        if alias.name.islower()
    }


def definitions(sources: Iterable[str], modules: Set[str] = frozenset()) -> Iterator[str]:
    """Each top-level definition of these sources, written out so that a move leaves it the same:
    without the names of modules that are used in any of them."""
    clashes = tomllib.loads((Path(__file__).parent / "clashes.toml").read_text())
    was = {new: place.split(":")[1] for place, new in clashes.items()}
    for source in sources:
        tree = ast.parse(source)
        for node in tree.body:
            if not _is_frame(node):
                yield ast.dump(_Plain(modules, was).visit(node))


def _is_frame(node: ast.stmt) -> bool:
    """Docstrings, imports and loggers: they are stated once where modules are merged."""
    is_words = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    is_import = isinstance(node, ast.Import | ast.ImportFrom)
    is_checked = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    is_logger = ast.unparse(node).endswith("logging.getLogger(__name__)")
    return is_words or is_import or is_checked or is_logger


class _Plain(ast.NodeTransformer):
    """Without what a move may change: module prefixes, clashing names, modules named in strings."""

    def __init__(self, modules: Set[str], was: dict[str, str]) -> None:
        self._modules, self._was = modules, was

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.value.id in self._modules:
            return ast.Name(self._was.get(node.attr, node.attr), ast.Load())
        self.generic_visit(node)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """A folder above the module: how many are between them depends on where it lies."""
        self.generic_visit(node)
        is_above = isinstance(node.value, ast.Attribute) and node.value.attr == "parents"
        return node.value if is_above else node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name(self._was.get(node.id, node.id), node.ctx)

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        text = node.value
        return ast.Constant(_NAMED.sub("…", text)) if isinstance(text, str) else node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """An import within a function."""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.stmt:
        node.name = self._was.get(node.name, node.name)
        self.generic_visit(node)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        node.name = self._was.get(node.name, node.name)
        self.generic_visit(node)
        return node


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
