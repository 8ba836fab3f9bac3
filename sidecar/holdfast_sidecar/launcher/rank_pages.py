"""What the launcher wants to know from its ranks' pages; the sidecar reads the rest."""

from __future__ import annotations

from pathlib import Path

from holdfast import page
from holdfast_sidecar.ranks.observation import find_onset
from holdfast_sidecar.records.plan import Member


def read_words(path: Path) -> tuple[int, ...] | None:
    """The words of a page; None when there is no whole page."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    if len(content) < page.PAGE_SIZE or page.parse_identity_zone(content) is None:
        return None
    return page.parse_words(content)


def said_finished(words: tuple[int, ...] | None) -> bool:
    """Whether the rank said that it ended well."""
    return words is not None and words[page.Word.ENDING] == page.Ending.FINISHED


def read_onset(path: Path) -> int:
    """Since which step the rank's losses were not finite; -1: they were, or there is no page."""
    try:
        content = path.read_bytes()
    except OSError:
        return -1
    if len(content) < page.PAGE_SIZE or page.parse_identity_zone(content) is None:
        return -1
    records = [record for _, record in page.parse_records(content, after=0)]
    return find_onset(page.parse_words(content), records)


def read_step(words: tuple[int, ...] | None) -> int:
    """Steps that the rank completed; 0 without a page."""
    return 0 if words is None else words[page.Word.STEP]


def read_step_end_s(words: tuple[int, ...] | None) -> float | None:
    """When its last step ended, or it began, CLOCK_MONOTONIC; None without a page."""
    return None if words is None else words[page.Word.BOUNDARY_NS] / 1e9


def read_completed_steps(shm: Path, attempt: int, member: Member) -> dict[str, int]:
    """rank -> steps that it had completed, of this place's ranks that left a page."""
    words = {
        member.first_rank + local_rank: read_words(shm / page.page_name(attempt, local_rank))
        for local_rank in range(member.slots)
    }
    return {str(rank): read_step(left) for rank, left in words.items() if left is not None}


def has_stepped(words: tuple[int, ...]) -> bool:
    """Whether the rank has completed a step in this attempt."""
    return words[page.Word.PUBLISHED] > 0 or words[page.Word.OPTIMIZER_CALLS] > 0


def has_flag(words: tuple[int, ...], flag: page.Flag) -> bool:
    """Whether the rank has set this flag."""
    return bool(words[page.Word.FLAGS] & flag)
