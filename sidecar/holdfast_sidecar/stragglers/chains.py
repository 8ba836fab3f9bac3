"""Stages of a pipeline that a script built by hand, by who sends to whom in each step. Pure.

Neighbouring stages send to one another, activations one way and gradients the other, and each but
the first begins a step by hearing from the one before it. Ranks that swap the borders of what they
compute send to one another, too: only where all fit into chains of equal length they are stages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from holdfast.page import FIRST


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
