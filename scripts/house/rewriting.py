"""One file's code with every reference to what moves rewritten. Pure, but for what it is given.

A name keeps its name, unless two meet in the new module. Imports of what becomes the file's own
module vanish, and `module.name` of such a one becomes `name`.
"""

# ruff: noqa: N802
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import libcst as cst
from libcst import metadata
from libcst.helpers import get_full_name_for_node
from scripts.house.plan import Plan, module_of

Groups = dict[str, list[cst.ImportAlias]]


def rewrite(plan: Plan, path: str, source: str) -> tuple[str, list[str]]:
    """(the new code, what has to be done by hand)."""
    wrapper = metadata.MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
    rewriter = _Rewriter(plan, path)
    return wrapper.visit(rewriter).code, rewriter.problems


class _Rewriter(cst.CSTTransformer):
    METADATA_DEPENDENCIES = (metadata.ScopeProvider, metadata.ParentNodeProvider)

    def __init__(self, plan: Plan, path: str) -> None:
        super().__init__()
        self._plan, self._path = plan, path
        new = plan.new_path.get(path)
        self._own = "" if new is None else module_of(new)
        self._was = module_of(path)
        self._changed: dict[int, cst.BaseExpression] = {}
        """id of a node -> what comes in its place."""
        self._imports: dict[int, Groups] = {}
        self._bound: set[str] = set()
        self.problems: list[str] = []

    def visit_Module(self, node: cst.Module) -> None:
        scopes = {one for one in self.metadata[metadata.ScopeProvider].values() if one is not None}
        self._bound = {found.name for one in scopes for found in one.assignments}
        top = [one for one in scopes if isinstance(one, metadata.GlobalScope)]
        for found in [found for one in top for found in one.assignments]:
            to = self._plan.renamed.get((self._was, found.name)) if self._own else None
            if to and not isinstance(found, metadata.ImportAssignment):
                self._rename_definition(found, to)

    def _rename_definition(self, found: metadata.Assignment, to: str) -> None:
        name = getattr(found.node, "name", found.node)
        if isinstance(name, cst.Name):
            self._changed[id(name)] = cst.Name(to)
        self._rename_uses(found, to)

    def _rename_uses(self, found: metadata.BaseAssignment, to: str) -> None:
        for access in found.references:
            self._refuse_shadow(access, to)
            if isinstance(access.node, cst.Name):
                self._changed[id(access.node)] = access.node.with_changes(value=to)
            else:
                self._tell(f"{found.name} is used as {type(access.node).__name__}")

    def _rename_module_uses(self, found: metadata.BaseAssignment, was: str, to: str | None) -> None:
        """`to` None: its names are the file's own."""
        for access in found.references:
            parent = self.metadata[metadata.ParentNodeProvider].get(access.node)
            if not isinstance(parent, cst.Attribute) or parent.value is not access.node:
                if to is None:
                    self._tell(f"module {was} is used whole")
                else:
                    self._refuse_shadow(access, to)
                    self._changed[id(access.node)] = cst.Name(to)
                continue
            name = self._plan.renamed.get((was, parent.attr.value), parent.attr.value)
            self._refuse_shadow(access, to or name)
            if to is None:
                self._changed[id(parent)] = cst.Name(name, lpar=parent.lpar, rpar=parent.rpar)
            else:
                self._changed[id(parent)] = parent.with_changes(
                    value=cst.Name(to), attr=cst.Name(name)
                )

    def _refuse_shadow(self, access: metadata.Access, to: str) -> None:
        if getattr(access.node, "value", "") == to:
            return  # it is called so already
        scope = access.scope
        while not isinstance(scope, metadata.GlobalScope | metadata.BuiltinScope):
            if any(found.name == to for found in scope.assignments):
                self._tell(f"{to} means something else in a scope that would use it")
            scope = scope.parent

    def _tell(self, problem: str) -> None:
        self.problems.append(f"{self._path}: {problem}")

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        if isinstance(node.names, cst.ImportStar) or node.module is None or node.relative:
            return False
        source = get_full_name_for_node(node.module) or ""
        groups: Groups = defaultdict(list)
        scope = self.metadata[metadata.ScopeProvider][node]
        changes = [
            self._take(alias, source, groups, self._binding(scope, node, alias))
            for alias in node.names
        ]
        if any(changes):
            self._imports[id(node)] = groups
        return False

    def _binding(
        self, scope: metadata.Scope, node: cst.ImportFrom, alias: cst.ImportAlias
    ) -> metadata.ImportAssignment:
        here = alias.evaluated_alias or alias.evaluated_name
        return next(
            found
            for found in scope.assignments
            if isinstance(found, metadata.ImportAssignment)
            and found.node is node
            and found.name == here
        )

    def _take(
        self,
        alias: cst.ImportAlias,
        source: str,
        groups: Groups,
        found: metadata.ImportAssignment,
    ) -> bool:
        """Put one imported name where it comes from now; whether that is elsewhere."""
        name = alias.evaluated_name
        if f"{source}.{name}" in self._plan.modules:
            return self._take_module(alias, source, groups, found)
        target = self._plan.module.get(source, source)
        to = self._plan.renamed.get((source, name), name)
        if (target, to) == (source, name):
            groups[source].append(alias)
            return False
        if target == self._own:
            if found.name != to:
                self._rename_uses(found, to)
            return True
        here = alias.evaluated_alias or to
        if here != found.name:
            self._rename_uses(found, here)
        groups[target].append(_alias(to, here))
        return True

    def _take_module(
        self,
        alias: cst.ImportAlias,
        source: str,
        groups: Groups,
        found: metadata.ImportAssignment,
    ) -> bool:
        was = f"{source}.{alias.evaluated_name}"
        target = self._plan.module.get(was)
        if target is None:
            groups[source].append(alias)
            return False
        if target == self._own:
            self._rename_module_uses(found, was, None)
            return True
        package, last = target.rsplit(".", 1)
        here = last if last == found.name or last not in self._bound else found.name
        if here != found.name or any(module == was for module, _ in self._plan.renamed):
            self._rename_module_uses(found, was, here)
        groups[package].append(_alias(last, here))
        return True

    def visit_Import(self, node: cst.Import) -> bool:
        for alias in node.names:
            if alias.evaluated_name in self._plan.module:
                self._tell(f"import {alias.evaluated_name}")
        return False

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        return self._changed.get(id(original_node), updated_node)

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        to = self._changed.get(id(original_node))
        if isinstance(to, cst.Attribute):
            return updated_node.with_changes(value=to.value, attr=to.attr)
        return updated_node if to is None else to

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement] | cst.RemovalSentinel:
        groups = self._imports.get(id(original_node.body[0]))
        if groups is None:
            return updated_node
        lines = [*_statements(groups)]
        if not lines:
            return cst.RemoveFromParent()
        lines[0] = lines[0].with_changes(leading_lines=original_node.leading_lines)
        lines[-1] = lines[-1].with_changes(trailing_whitespace=original_node.trailing_whitespace)
        return cst.FlattenSentinel(lines)


def _statements(groups: Groups) -> Iterator[cst.SimpleStatementLine]:
    for source, aliases in groups.items():
        module = cst.parse_expression(source)
        assert isinstance(module, cst.Name | cst.Attribute)
        names = [alias.with_changes(comma=cst.MaybeSentinel.DEFAULT) for alias in aliases]
        yield cst.SimpleStatementLine([cst.ImportFrom(module, names)])


def _alias(name: str, here: str) -> cst.ImportAlias:
    asname = None if here == name else cst.AsName(cst.Name(here))
    return cst.ImportAlias(cst.Name(name), asname)
