"""Which launch this launcher belongs to, and what it was told to run: launches are not to be mixed.

A name can be the same by chance; a scheduler's id cannot.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from holdfast.contract import environment as names
from holdfast_sidecar.config.paths import user_name
from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.records.reports import OF_USER, AgentReport

LONGEST = 40
"""Of an id inside a job's name; a Kubernetes uid has 36 characters."""

OF_A_NODE = frozenset({"node_rank", "machine_rank", "master_addr", "local_addr"})
"""Options of scripts that rightly differ between the nodes of one launch, without their dashes."""

SHOWN_NODES = 4
"""Named of each group in a warning; of a large job the first ones are enough to look at."""


def launch_of(environment: Mapping[str, str]) -> str:
    """The launch that a launcher under a given job name belongs to: its scheduler's job, so that a
    step that is started again on another node comes back; where there is none, its user's."""
    return scheduler_job(environment) or f"{OF_USER}{user_name()}"


def scheduler_job(environment: Mapping[str, str]) -> str:
    """What the scheduler, or whoever starts the launchers, calls this job; empty: nothing says."""
    if given := environment.get(names.LAUNCH_ID, "").strip():
        return given[:200]
    slurm = environment.get("SLURM_JOB_ID", "")
    return f"slurm-{slurm}" if slurm else ""


def scheduler_launch(environment: Mapping[str, str], is_one_node: bool) -> str:
    """The same, told from other launches inside one allocation: fit to name a job after.

    Of one node: told from the other tasks of its step, too, each of which is a launch of its own.
    """
    known = scheduler_job(environment)
    if known.startswith("slurm-") and not environment.get(names.LAUNCH_ID, "").strip():
        parts = ["SLURM_STEP_ID", *(["SLURM_PROCID"] if is_one_node else [])]
        known = ".".join([known, *(environment[name] for name in parts if environment.get(name))])
    return known if len(known) <= LONGEST else _digest(known)


def describe_command(
    script: str, arguments: Sequence[str], ranks: int, settings: Settings
) -> dict[str, str]:
    """What all nodes of a job mostly have in common. Arguments may hold secrets: digests only."""
    kept = {
        "policy": dataclasses.asdict(settings.policy),
        "stall": dataclasses.asdict(settings.stall),
        "checkpoint": dataclasses.asdict(settings.checkpoint) | {"key_file": ""},
        "snapshot": [settings.snapshot.every_steps, settings.snapshot.peer],
    }
    return {
        "script": _digest(script),
        "arguments of the script": _digest(json.dumps(list(arguments))),
        "ranks per node": str(ranks),
        "user": user_name(),
        "settings": _digest(json.dumps(kept, sort_keys=True)),
    }


def launch_command(script: str, arguments: Sequence[str], own: Collection[str]) -> str:
    """A digest of what a launch runs, alike on all of its nodes. own: this node's name and
    addresses, which an option may rightly name."""
    alike = [Path(script).name]
    option = ""
    for argument in arguments:
        name, has_value, value = argument.partition("=")
        if argument.startswith("-"):
            option, value = name, value if has_value else ""
        else:
            value = argument
        is_own = option.lstrip("-").replace("-", "_") in OF_A_NODE or value in own
        alike.append(option if option and value and is_own else argument)
        option = option if argument.startswith("-") and not has_value else ""
    return _digest(json.dumps(alike))


def differing_parts(own: AgentReport, others: Iterable[AgentReport]) -> str:
    """In what the command of this launcher differs from those of others, of what tells launches
    apart."""
    parts = ("script", "arguments of the script")
    unlike = [p for p in parts if any(o.command.get(p) != own.command.get(p) for o in others)]
    return ", ".join(unlike) or "its command"


def unlike_commands(agents: Sequence[AgentReport]) -> str:
    """One line on the nodes of an attempt that were started differently; empty: none were."""
    parts = sorted({part for agent in agents for part in agent.command})
    told = []
    for part in parts:
        groups: dict[str, list[str]] = {}
        for agent in sorted(agents, key=lambda agent: agent.node):
            groups.setdefault(agent.command.get(part, ""), []).append(agent.node)
        if len(groups) > 1:
            told.append(f"{part} ({' | '.join(_some(nodes) for nodes in groups.values())})")
    if not told:
        return ""
    return f"the nodes of this job were started with different commands: {'; '.join(told)}"


def _some(nodes: Sequence[str]) -> str:
    more = len(nodes) - SHOWN_NODES
    return ", ".join(nodes[:SHOWN_NODES]) + (f" and {more} more" if more > 0 else "")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
