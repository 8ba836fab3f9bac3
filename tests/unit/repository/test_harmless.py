"""Who may end a process or remove a file: whoever holds a permit, which the policy alone makes.

Read from the syntax trees: what ends and removes is called in two modules, permits are made in
those of one list, and docs/harmless.md names every module that asks for one. Besides: what the code
can list of what it does has a row there.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

from holdfast.contract import switches
from holdfast_sidecar.cli.doctor.gpu import UNTRIED
from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.export.sidecar_metrics import ACTIONS
from holdfast_sidecar.incidents import explain
from holdfast_sidecar.launcher.arguments import make_parser
from holdfast_sidecar.policy.budget import ENDED_BY_US, PLANNED
from holdfast_sidecar.policy.modes import OF_CAUSE

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("hooks/holdfast", "sidecar/holdfast_sidecar")

ENDS = {"kill", "killpg", "pidfd_send_signal", "terminate", "send_signal"}
REMOVES = {"unlink", "rmtree", "rmdir", "removedirs", "rm", "rm_file"}
FUNCTIONS_OF = {"os", "shutil", "signal"}

PRIMITIVES = {"contract/ending_processes": ENDS, "contract/removing": REMOVES}
"""The two modules that call them."""

EXEMPT = {"cli/demo", "checkpoint/snapshot/memory_holder"}
"""The demonstration, in its own folder; and a program that runs without any of our packages."""

LICENCES = {
    "own_child": "own child",
    "own_group": "own child",
    "own_session": "own child",
    "warranted": "own rank",
    "released_by": "own rank",
    "answerable": "own rank",
    "left_by": "own rank",
    "owned_file": "own file",
    "own_upload": "own file",
    "written_here": "own file",
    "marked": "mark",
}
"""What makes a permit -> the licence on which that rests."""

ON_THEIR_OWN = {
    "end_holding": "own child",
    "end_ranks": "own child",
    "end_leftovers": "own rank",
    "remove_files": "own file",
    "remove_node": "own file",
    "remove_own": "own file",
    "remove_shared_memory": "own file",
    "remove_slots": "own file",
}
"""What asks for the permits itself for whatever its caller names, so that who calls it is listed as
if it had asked."""

NAMED = LICENCES | ON_THEIR_OWN

POLICY = {
    "contract/permit": {"own_child", "own_group", "own_session"},
    "contract/owned": {"owned_file"},
    "contract/storage": {"own_upload", "written_here"},
    "contract/checkpoint_files": {"marked"},
    "policy/budget": {"warranted"},
    "ranks/ending": {"released_by", "left_by"},
    "ranks/stacks": {"answerable"},
}
"""The modules that make permits, with what makes them."""

INSIDE = {
    "contract/permit": {"part"},
    "contract/owned": {"remove_own", "stored_owner"},
}
"""Functions that make a permit for their own use: for a part of what is permitted, a directory of
which every file was looked at, and a probe that was just made."""

ROW = re.compile(r"^\| `([\w/.]+)` \| ([\w ,]+) \| ((?:`\w+`(?:, )?)+) \| .+ \|$", re.MULTILINE)


def listed() -> dict[str, tuple[set[str], set[str]]]:
    """Module -> its licences and what it asks for its permits, as docs/harmless.md has it."""
    text = (ROOT / "docs/harmless.md").read_text()
    section = text.split("## Who may end or remove")[1].split("\n## ")[0]
    return {
        module: (set(licences.split(", ")), set(re.findall(r"`(\w+)`", asked)))
        for module, licences, asked in ROW.findall(section)
    }


def primitives_of(source: str) -> set[str]:
    """Calls that end a process or remove a file, whatever they are called on and as."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            if node.attr in ENDS | REMOVES:
                found.add(node.attr)
            if node.attr == "remove" and ast.unparse(node) == "os.remove":
                found.add("remove")
        if isinstance(node, ast.ImportFrom) and node.module in FUNCTIONS_OF:
            found |= {name.name for name in node.names} & (ENDS | REMOVES | {"remove"})
    return found


def asked_of(source: str) -> set[str]:
    """What a module calls, or hands on, that makes permits or asks for them."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found.add(node.id)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            found.add(node.attr)
        if isinstance(node, ast.ImportFrom):
            found |= {name.name for name in node.names if name.asname}
    return found & set(NAMED)


def makers_of(source: str) -> set[str]:
    """Functions in which a permit is made; `` where it is made outside of any."""
    found: set[str] = set()

    def look(node: ast.AST, function: str) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            function = node.name
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            if name == "Permit":
                found.add(function)
        for inner in ast.iter_child_nodes(node):
            look(inner, function)

    look(ast.parse(source), "")
    return found


def modules() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            module = str(path.relative_to(ROOT / package).with_suffix(""))
            if not module.startswith(tuple(EXEMPT)):
                yield module, path.read_text()


def test_two_modules_alone_end_and_remove() -> None:
    found = {module: called for module, source in modules() if (called := primitives_of(source))}
    assert set(found) == set(PRIMITIVES)
    assert all(called <= PRIMITIVES[module] for module, called in found.items())


def test_the_policy_alone_makes_permits() -> None:
    found = {module: makers for module, source in modules() if (makers := makers_of(source))}
    assert found == {module: made | INSIDE.get(module, set()) for module, made in POLICY.items()}
    assert set().union(*POLICY.values()) == set(LICENCES)


def test_every_module_that_asks_for_permits_stands_in_the_list_with_its_licences() -> None:
    asked = {module: names for module, source in modules() if (names := asked_of(source))}
    assert {module: names for module, (_, names) in listed().items()} == asked
    assert {module: licences for module, (licences, _) in listed().items()} == {
        module: {NAMED[name] for name in names} for module, names in asked.items()
    }


def test_every_licence_and_every_exemption_is_explained() -> None:
    text = (ROOT / "docs/harmless.md").read_text()
    assert all(f"**{licence}**" in text for licence in LICENCES.values())
    assert all(f"`{exempt}`" in text for exempt in EXEMPT)


def test_who_is_exempt_for_importing_nothing_of_ours_imports_nothing_of_ours() -> None:
    source = (ROOT / "sidecar/holdfast_sidecar/checkpoint/snapshot/memory_holder.py").read_text()
    assert "import holdfast" not in source
    assert "from holdfast" not in source


def test_a_call_under_another_name_is_found() -> None:
    assert primitives_of("import os\nend = os.kill\n") == {"kill"}
    assert primitives_of("from shutil import rmtree as gone\n") == {"rmtree"}
    assert primitives_of("import os\nos.remove('x')\n[1].remove(1)\n") == {"remove"}
    assert asked_of("f(owned_file)\nx.own_child(1)\n") == {"owned_file", "own_child"}
    assert asked_of("from holdfast.contract.permit import own_group as it\n") == {"own_group"}
    assert makers_of("def f():\n  return permit.Permit(1)\nPermit(2)\n") == {"f", ""}


def first_column(document: str, title: str) -> list[str]:
    """Names in the first cells of the table below a title."""
    text = (ROOT / "docs" / document).read_text()
    section = text.split(f"# {title}\n", 1)[1].split("\n#", 1)[0]
    cells = [row.split(" | ")[0] for row in section.splitlines() if row.startswith("| `")]
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def test_every_cause_of_an_attempts_end_has_one_row() -> None:
    causes = {*explain._CAUSES, *PLANNED, *ENDED_BY_US, *OF_CAUSE} - {"quarantine"}
    assert sorted(first_column("harmless.md", "For each cause of an attempt's end")) == sorted(
        causes
    )


def test_every_action_of_a_sidecar_has_one_row() -> None:
    assert sorted(first_column("harmless.md", "Actions of a sidecar")) == sorted(ACTIONS)


def test_every_hook_has_one_row() -> None:
    named = first_column("configuration.md", "Hooks in the training process")
    assert sorted(named) == sorted((*switches.HOOKS, *switches.OPTIONAL))


def test_every_switch_exists() -> None:
    known = {
        f"{section.name}.{setting.name}"
        for section in dataclasses.fields(Settings)
        for setting in dataclasses.fields(getattr(Settings(), section.name))
    }
    written = first_column("harmless.md", "Switches")
    settings = {name for text in written for name in re.findall(r"--set ([\w.]+)=", text)}
    assert settings
    assert settings <= known
    flags = {text for text in written if text.startswith("--") and " " not in text}
    assert flags
    assert flags <= set(make_parser()._option_string_actions)


def test_what_was_never_run_on_a_gpu_stands_there_as_doctor_says_it() -> None:
    _, _, section = (ROOT / "docs/harmless.md").read_text().partition("## What was never tried")
    rows = re.findall(r"^\| ([^|:]+): [^|]*\| (on|off) \| `([^`]+)`", section, re.MULTILINE)
    assert rows == [
        (one.what, "on" if one.is_on(Settings(), {}) else "off", one.switch) for one in UNTRIED
    ]
