"""Where a rank says it stands, and in which process groups: from its two small files to the short
texts that its report carries, and back. Pure.

A layout reads `pp=0/2 dp=1/2 tp=0/2 micro_batches=8 role=trainer`: of each dimension where, and of
how many; into how many micro-batches the pipeline cuts a batch; and last what the script calls its
part in the job, which may have blanks in it. Where nothing tells which stage it is of a pipeline
that there may be, it reads `with=0+2 after=0`: see `chains`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.page import GROUPS_TIMED, UNCLEAR
from holdfast_sidecar.stragglers.chains import Messages
from holdfast_sidecar.stragglers.described_groups import PIPELINE, dimensions

_PIPELINES = frozenset({PIPELINE, "pipe", "pipeline", "pipeline_parallel", "stage", "stages"})

_MICRO_BATCHES = "micro_batches="

_ROLE = "role="
WITH = "with="
"""Only in layouts of ranks that may be a pipeline's stages."""
_AFTER = "after="

DEFAULT = "default_pg"
"""What torch calls the group of all ranks."""


class Layout(NamedTuple):
    """Parsed."""

    coordinate: Mapping[str, int]
    shape: Mapping[str, int]
    role: str
    micro_batches: int = 0
    """Into so many a pipeline cuts a batch; 0: not known."""


def spell_layout(text: str, groups: str = "", rank: int = -1) -> str:
    """What a `.layout` file says, and for want of a mesh the `.groups` file of this rank; empty
    where they say nothing that can be understood."""
    told, in_groups = _parse(text), _parse(groups)
    try:
        sizes = list(zip(told["dims"], told["coordinate"], told["shape"], strict=True))
    except (KeyError, TypeError, ValueError):
        sizes = []
    words = [_spell(name, at, size) for name, at, size in sizes]
    described = [_spell(*one) for one in dimensions(in_groups, rank)]
    if not words:
        words = [word for word in described if not _is_pipeline(word)]
    if not any(map(_is_pipeline, words)):
        # Stages that torch knows of say which they are; of a group it follows.
        stage = _spell(PIPELINE, told.get("stage"), told.get("stages"))
        words += [stage] if stage else [word for word in described if _is_pipeline(word)]
    role = told.get("role")
    if not role and not any(map(_is_pipeline, words)) and not _is_whole(words, in_groups):
        words += _spell_messages(told.get("messages"))
    micro_batches = told.get("micro_batches")
    if isinstance(micro_batches, int) and micro_batches > 0:
        words.append(f"{_MICRO_BATCHES}{micro_batches}")
    words += [f"{_ROLE}{' '.join(role.split())}"] if isinstance(role, str) and role.strip() else []
    return " ".join(filter(None, words))


def _is_pipeline(word: str) -> bool:
    return word.startswith(f"{PIPELINE}=")


def _is_whole(words: Sequence[str], groups: Mapping[str, Any]) -> bool:
    """Whether these dimensions place each rank: then there is no pipeline that they leave out."""
    sizes = [int(word.rpartition("/")[2]) for word in words if word]
    ranks = [len(group["ranks"]) for group in _described(groups) if group["title"] == DEFAULT]
    return bool(sizes) and math.prod(sizes) in ranks


def _described(groups: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for group in groups.values():
        if isinstance(group, dict) and isinstance(group.get("ranks"), list) and "title" in group:
            yield group


def _spell_messages(told: Any) -> list[str]:
    try:
        beside, after = sorted(map(int, told["with"])), int(told["after"])
    except (KeyError, TypeError, ValueError):
        return []
    return [f"{WITH}{'+'.join(map(str, beside))}", f"{_AFTER}{after}"] if beside else []


def parse_messages(text: str) -> Messages | None:
    """Those of a layout as a report tells it; None where there are none, or what they could tell is
    known."""
    if WITH not in text:
        return None
    words = f" {text}".partition(f" {_ROLE}")[0].split()
    beside = [word.removeprefix(WITH).split("+") for word in words if word.startswith(WITH)]
    after = [word.removeprefix(_AFTER) for word in words if word.startswith(_AFTER)]
    try:
        return Messages(int(after[0]), frozenset(map(int, beside[0])))
    except IndexError:
        return None
    except ValueError:
        return Messages(UNCLEAR, frozenset())


def parse_layout(text: str) -> Layout:
    """A layout as a report tells it."""
    dimensions, _, role = f" {text}".partition(f" {_ROLE}")
    coordinate, shape, micro_batches = dict[str, int](), dict[str, int](), 0
    for word in dimensions.split():
        name, _, where = word.partition("=")
        at, _, size = where.partition("/")
        if at.isdecimal() and size.isdecimal():
            coordinate[name], shape[name] = int(at), int(size)
        elif f"{name}=" == _MICRO_BATCHES and where.isdecimal():
            micro_batches = int(where)
    return Layout(coordinate, shape, role, micro_batches)


def spell_groups(text: str) -> list[str]:
    """Of a `.groups` file those groups whose waits are told apart, in their order; empty where none
    is known."""
    told = ["" for _ in range(GROUPS_TIMED)]
    for slot, group in _slots(_parse(text)):
        told[slot] = group
    return told if any(told) else []


def _slots(groups: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    for group in groups.values():
        try:
            slot, digest, size = group["slot"], str(group["digest"]), len(group["ranks"])
            title = str(group["title"])
        except (KeyError, TypeError):
            continue
        if isinstance(slot, int) and 0 <= slot < GROUPS_TIMED:
            yield slot, f"{title}/{digest}/{size}"


def _parse(text: str) -> dict[str, Any]:
    try:
        told = json.loads(text)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _spell(name: Any, at: Any, size: Any) -> str:
    """A rank that holds several stages stands where the first of them does."""
    at = at[0] if isinstance(at, list) and at else at
    if not isinstance(name, str) or not isinstance(at, int) or not isinstance(size, int):
        return ""
    name = "_".join(name.split()) or "dim"
    return f"{PIPELINE if name in _PIPELINES else name}={at}/{size}"
