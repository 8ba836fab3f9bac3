from __future__ import annotations

from collections import Counter

import pytest
from tests.unit.components.xid.stories import STORIES, Story
from tests.unit.components.xid.telling import run_all, wrong_in


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_a_story_ends_as_the_reference_says(story: Story) -> None:
    assert wrong_in(story) == []


def test_there_are_sixty_stories_each_with_its_source() -> None:
    names = Counter(story.name for story in STORIES)
    assert len(STORIES) >= 60
    assert max(names.values()) == 1
    assert all(story.source for story in STORIES)


def test_all_of_them_are_told_at_once_for_the_bench() -> None:
    right, total, wrong = run_all()
    assert (right, wrong) == (total, [])
