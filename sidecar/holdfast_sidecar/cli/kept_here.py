"""What lies on this machine of an incident, for people: who failed first, and where bundles are."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from holdfast_sidecar.config.paths import find
from holdfast_sidecar.incidents.aftermath import FIRST_ERROR, SUFFIX
from holdfast_sidecar.incidents.explain import Story
from holdfast_sidecar.incidents.first_error import Failure, Sign, confidence, order
from holdfast_sidecar.records.formatting import span

FAILURES_TOLD = 4
"""The first and what followed at once; the rest is in the files."""

LONGEST_WORDS = 200

FILES_LISTED = 6
"""So many files are listed one by one; a directory with more is told as a whole."""


def bundles(state: Path, story: Story) -> list[str]:
    """Where the incident's bundles are: paths on this machine, `host:path` on others."""
    here = find(state, f"*/incidents/{story.identifier}{SUFFIX}")
    nodes_here = {path.parents[1].name for path in here}
    elsewhere = [place for node, place in sorted(story.bundles.items()) if node not in nodes_here]
    return [*map(str, here), *elsewhere]


def failures(state: Path, story: Story) -> list[Failure]:
    """Who failed, the first one first, from what the nodes of this machine kept together."""
    signs: dict[Sign, None] = {}
    for path in find(state, f"*/incidents/{story.identifier}/{FIRST_ERROR}"):
        signs |= dict.fromkeys(_read_signs(path))
    return order(signs)


def tell_failures(found: Sequence[Failure]) -> list[str]:
    """`rank 3 on node b: ValueError: … (90% sure)`, then who followed and how much later."""
    if not found:
        return []
    first, *others = found
    lines = [f"first     {_who(first)} ({confidence(found):.0%} sure it was the first to fail)"]
    lines += [f"then      {_who(one)}{_later(first, one)}" for one in others[: FAILURES_TOLD - 1]]
    more = len(others) - (FAILURES_TOLD - 1)
    return [*lines, *([f"          and {more} more"] if more > 0 else [])]


def in_brief(kept: Sequence[tuple[Path, int]]) -> list[tuple[str, int]]:
    """Files and sizes as they are listed: of a directory with many, only what is there in all."""
    by_folder: dict[Path, list[tuple[Path, int]]] = {}
    for path, count in kept:
        by_folder.setdefault(path.parent, []).append((path, count))
    rows = []
    for folder, inside in by_folder.items():
        if len(inside) > FILES_LISTED:
            rows.append((f"{folder}/ ({len(inside)} files)", sum(count for _, count in inside)))
        else:
            rows += [(str(path), count) for path, count in inside]
    return rows


def _who(failure: Failure) -> str:
    words = " ".join(failure.words.split())
    cut = words if len(words) <= LONGEST_WORDS else f"{words[:LONGEST_WORDS]}…"
    return f"rank {failure.rank} on node {failure.node}: {cut}"


def _later(first: Failure, then: Failure) -> str:
    if first.at_unix_s is None or then.at_unix_s is None:
        return ""
    after_s = then.at_unix_s - first.at_unix_s
    when = f"{span(after_s)} later" if after_s >= 0 else f"{span(-after_s)} earlier"
    return f" ({when}{'' if then.is_own else ', having lost a peer'})"


def _read_signs(path: Path) -> Iterator[Sign]:
    known = {field.name for field in fields(Sign)}
    try:
        for sign in json.loads(path.read_text())["signs"]:
            given: dict[str, Any] = {name: sign[name] for name in known & set(sign)}
            yield Sign(**given)
    except (OSError, ValueError, TypeError, KeyError):
        return
