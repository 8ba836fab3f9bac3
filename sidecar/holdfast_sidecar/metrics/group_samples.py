"""What is told of a rank's process groups: those whose waits are told apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.page import Word
from holdfast_sidecar.performance.stragglers.groups import UNDEFINED
from holdfast_sidecar.ranks.observation import RankHistory
from holdfast_sidecar.records.metric import Sample, Told
from holdfast_sidecar.records.steps import parse_groups


def draw_groups(history: RankHistory, groups: Sequence[str], told: Told) -> Iterator[Sample]:
    """groups: as the rank's report tells them."""
    words = history.look.words
    for slot, name in enumerate(name_groups(groups)):
        if name:
            yield from told("rank_group_calls_total", words[Word.COLLECTIVES_1 + slot], group=name)
            yield from told("rank_group_bytes_total", words[Word.SENT_BYTES_1 + slot], group=name)
            waited_s = history.group_waits_s[slot]
            yield from told("rank_group_wait_seconds_total", waited_s, group=name)


def name_groups(groups: Sequence[str]) -> list[str]:
    """What each is for, else a sign of its members; numbered where several are alike. Empty: there
    is none."""
    names: list[str] = []
    for group in parse_groups(list(groups)):
        title = "" if group is None or group.title == UNDEFINED else group.title
        name = title or (f"group {group.digest[:8]}" if group is not None else "")
        alike = sum(one.partition(" #")[0] == name for one in names)
        names.append(f"{name} #{alike + 1}" if name and alike else name)
    return names
