"""Where a rank stands: on which node, with whom it is compared, in which process groups."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from holdfast.contract.page import FIRST, GROUPS_TIMED, UNCLEAR
from holdfast_sidecar.records.steps import ProcessGroup, StepLine

# Stages of a pipeline that a script built by hand, by who sends to whom in each step. Pure.
#
# Neighbouring stages send to one another, activations one way and gradients the other, and each but
# the first begins a step by hearing from the one before it. Ranks that swap the borders of what
# they compute send to one another, too: only where all fit into chains of equal length they are
# stages.


class Messages(NamedTuple):
    """Of one rank's steps."""

    after: int
    """From whom it hears before it says anything; `FIRST`: from nobody; else it isn't clear."""
    beside: frozenset[int]
    """To whom it sends and from whom it hears."""


class Stage(NamedTuple):
    """Which one of how many."""

    at: int
    of: int


def find_stages(told: Mapping[int, Messages]) -> dict[int, Stage]:
    """Rank -> its stage; empty where it doesn't follow for each of them."""
    followers: dict[int, list[int]] = {}
    for rank, messages in told.items():
        followers.setdefault(messages.after, []).append(rank)
    chains = [list(_chain(rank, followers)) for rank in followers.get(FIRST, ())]
    lengths = {len(chain) for chain in chains}
    if len(lengths) != 1 or sum(map(len, chains)) != len(told):
        return {}
    if not all(_fits(chain, told) for chain in chains):
        return {}
    return {rank: Stage(at, len(chain)) for chain in chains for at, rank in enumerate(chain)}


def _chain(rank: int, followers: Mapping[int, list[int]]) -> Iterator[int]:
    """From its first stage to the last, or to where it forks. Who follows whom is told by each
    once, and the first follows nobody: so it ends."""
    yield rank
    while len(after := followers.get(rank, [])) == 1:
        rank = after[0]
        yield rank


def _fits(chain: list[int], told: Mapping[int, Messages]) -> bool:
    """Whether each is beside those in the chain that are beside it, and nobody else."""
    return len(chain) > 1 and all(
        told[rank].beside == {*chain[max(0, at - 1) : at], *chain[at + 1 : at + 2]}
        for at, rank in enumerate(chain)
    )


# What a script says of its process groups when it makes them: `new_group(..., group_desc="pp")`.
#
# A group of a well-known purpose places its members: along its dimension they stand in the order of
# their ranks in it. Pure.

PIPELINE = "pp"
"""What the dimension along which stages lie is called here; scripts have more names for it."""

_DIMENSIONS = {
    **dict.fromkeys(("pp", "pipe", "pipeline", "pipe_parallel"), PIPELINE),
    **dict.fromkeys(("pipeline_parallel", "pipeline_model_parallel"), PIPELINE),
    **dict.fromkeys(("tp", "tensor_parallel", "tensor_model_parallel"), "tp"),
    **dict.fromkeys(("dp", "data_parallel"), "dp"),
    **dict.fromkeys(("cp", "context_parallel"), "cp"),
}
"""Only names that mean one thing: Megatron's MODEL_PARALLEL_GROUP lies along two dimensions, its
experts' groups across the others, and a group called `stage` or `pp0` may as well be the ranks of
one stage."""

_WORDS = re.compile(r"[^a-z0-9]+")
_FRAME = re.compile(r"^mesh_|(_gloo|_nccl|_cpu|_process)?(_group|_groups|_pg)?(_gloo|_nccl|_cpu)?$")
"""Of a title, what is not the purpose: `mesh_pp` of a mesh, `DATA_PARALLEL_GROUP_GLOO`."""


class Dimension(NamedTuple):
    """Where a rank stands along it, and of how many."""

    name: str
    at: int
    size: int


def dimension_of(title: str) -> str:
    """That a group with this title lies along; empty where the title doesn't tell."""
    words = _WORDS.sub("_", title.casefold()).strip("_")
    return _DIMENSIONS.get(_FRAME.sub("", words), "")


def dimensions(groups: Mapping[str, Any], rank: int) -> list[Dimension]:
    """Those along which this rank's groups place it. Where groups of one purpose place it in
    different ways nothing is said of that dimension."""
    found: dict[str, set[Dimension]] = {}
    for one in _placed(groups, rank):
        found.setdefault(one.name, set()).add(one)
    return [one for places in found.values() if len(places) == 1 for one in places]


def _placed(groups: Mapping[str, Any], rank: int) -> Iterator[Dimension]:
    for group in groups.values():
        try:
            name, ranks = dimension_of(str(group["title"])), list(group["ranks"])
        except (KeyError, TypeError):
            continue
        if name and rank in ranks:
            yield Dimension(name, ranks.index(rank), len(ranks))


OF_A_MESH = "mesh_"
"""So torch calls the groups of a DeviceMesh, with the name of the dimension behind it."""

_WAITS = tuple(StepLine._fields.index(f"wait_{slot}") for slot in (1, 2, 3, 4))


@dataclass(frozen=True)
class RankPlace:
    """One rank."""

    rank: int
    node: str
    role: str = ""
    """Ranks of equal role have the same kind of work: they are compared with one another."""
    coordinate: Mapping[str, int] = field(default_factory=dict)
    """Dimension of the parallel layout (`dp`, `tp`, `pp`) -> where it stands; empty: not known."""
    shape: Mapping[str, int] = field(default_factory=dict)
    """Dimension -> how many there are."""
    groups: tuple[ProcessGroup | None, ...] = (None, None, None, None)
    """Those whose waits its lines tell apart, in their order."""
    has_device: bool = False
    """It trains on a GPU."""
    is_host_only: bool = False
    """It trains on none, and all its process groups are gloo's: devices of other kinds, which
    nobody asks here, have backends of their own."""

    is_unknown_stage: bool = False
    """It sends to others and hears from them in each step, and nothing tells what it does of the
    work: its role is like nobody else's."""

    micro_batches: int = 0
    """Into so many its pipeline cuts a batch; 0: not known."""

    @property
    def stages(self) -> int:
        """Of its pipeline; 1: it is in none."""
        return self.shape.get(PIPELINE, 1)

    @cached_property
    def waits_elsewhere(self) -> tuple[int, ...]:
        """The fields of its lines in which it waits for others than its pipeline's stages."""
        groups = zip(_WAITS, self.groups, strict=True)
        return tuple(
            at for at, group in groups if group and not _is_pipeline_group(group, self.stages)
        )


def _is_pipeline_group(group: ProcessGroup, stages: int) -> bool:
    """Stages may also send each other messages in a group of all ranks; then it has their number
    only where there is nothing but the pipeline."""
    if group.title.startswith(OF_A_MESH):
        return group.title == OF_A_MESH + PIPELINE
    title = group.title.casefold()
    return PIPELINE in title or "pipe" in title or group.size == stages


# Where a rank says it stands, and in which process groups: from its two small files to the short
# texts that its report carries, and back. Pure.
#
# A layout reads `pp=0/2 dp=1/2 tp=0/2 micro_batches=8 role=trainer`: of each dimension where, and
# of how many; into how many micro-batches the pipeline cuts a batch; and last what the script calls
# its part in the job, which may have blanks in it. Where nothing tells which stage it is of a
# pipeline that there may be, it reads `with=0+2 after=0`: see `chains`.

_PIPELINES = frozenset({PIPELINE, "pipe", "pipeline", "pipeline_parallel", "stage", "stages"})

_MICRO_BATCHES = "micro_batches="

_ROLE = "role="
WITH = "with="
"""Only in layouts of ranks that may be a pipeline's stages."""
_AFTER = "after="

DEFAULT = "default_pg"
"""What torch calls the group of all ranks."""


class RankCoordinates(NamedTuple):
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
        words = [word for word in described if not _names_pipeline(word)]
    if not any(map(_names_pipeline, words)):
        # Stages that torch knows of say which they are; of a group it follows.
        stage = _spell(PIPELINE, told.get("stage"), told.get("stages"))
        words += [stage] if stage else [word for word in described if _names_pipeline(word)]
    role = told.get("role")
    if not role and not any(map(_names_pipeline, words)) and not _is_whole(words, in_groups):
        words += _spell_messages(told.get("messages"))
    micro_batches = told.get("micro_batches")
    if isinstance(micro_batches, int) and micro_batches > 0:
        words.append(f"{_MICRO_BATCHES}{micro_batches}")
    words += [f"{_ROLE}{' '.join(role.split())}"] if isinstance(role, str) and role.strip() else []
    return " ".join(filter(None, words))


def _names_pipeline(word: str) -> bool:
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


def parse_layout(text: str) -> RankCoordinates:
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
    return RankCoordinates(coordinate, shape, role, micro_batches)


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
