from __future__ import annotations

import dataclasses

from tests.unit.detectors.scene import history, look, moment, ranks

from holdfast.page import Ending
from holdfast_sidecar.detectors.crash import find_crashes
from holdfast_sidecar.findings import Kind


def test_a_process_that_went_without_a_word_has_crashed() -> None:
    scene = ranks(history(look(1.0), look(2.0, is_gone=True), look(3.0, is_gone=True)))
    (finding,) = find_crashes(scene, moment(3.0))
    assert (finding.kind, finding.ranks, finding.acts) == (Kind.CRASH, [0], True)
    assert finding.since_unix_s == 1_000_002.0


def test_its_last_words_are_evidence() -> None:
    words = {"type": "ValueError", "message": "no such token"}
    gone = dataclasses.replace(look(2.0, is_gone=True, ending=Ending.EXCEPTION), last_words=words)
    (finding,) = find_crashes(ranks(history(look(1.0), gone)), moment(2.0))
    assert "last words: ValueError: no such token" in finding.evidence


def test_a_rank_that_finished_has_not_crashed() -> None:
    scene = ranks(history(look(1.0), look(2.0, is_gone=True, ending=Ending.FINISHED)))
    assert list(find_crashes(scene, moment(2.0))) == []


def test_a_page_whose_owner_was_gone_at_first_sight_is_left_over_from_before() -> None:
    scene = ranks(history(look(1.0, is_gone=True), look(2.0, is_gone=True)))
    assert list(find_crashes(scene, moment(2.0))) == []
