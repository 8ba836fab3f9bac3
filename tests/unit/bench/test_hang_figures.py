from __future__ import annotations

from typing import Any

from bench.detection.hang_figures import hang_figures
from bench.detection.hang_kinds import KINDS
from bench.detection.quiet_figures import quiet_figures
from bench.figures import Figure


def hang(kind: str = "deadlock", **changed: Any) -> dict[str, Any]:
    told = {
        "row": "hangs",
        "contestant": "Holdfast",
        "kind": kind,
        "is_provable": KINDS[kind],
        "declared_s": 1.2,
        "acted_s": 3.0 if KINDS[kind] else None,
        "step_s": 0.1,
        "is_right": True,
    }
    return {**told, **changed}


def by_name(figures: list[Figure]) -> dict[str, Figure]:
    return {figure.name: figure for figure in figures}


def test_twelve_kinds_are_measured_and_two_of_them_are_silence_alone() -> None:
    assert len(KINDS) == 12
    assert [kind for kind in KINDS if not KINDS[kind]] == ["endless-loop", "hanging-read"]


def test_hangs_told_and_ended_in_time_by_the_right_name_meet_all_goals() -> None:
    figures = by_name(hang_figures([hang(kind) for kind in KINDS]))
    assert figures["hangs: told within 3 steps + 1 s"].value == 1.0
    assert all(figure.met is True for figure in figures.values() if figure.goal)


def test_a_late_word_a_late_end_a_wrong_name_and_a_hasty_end_each_miss_theirs() -> None:
    def missed(*samples: dict[str, Any]) -> list[str]:
        found = hang_figures([*(hang() for _ in range(9)), *samples])
        return [figure.name for figure in found if figure.goal and figure.met is False]

    assert missed() == []
    assert missed(hang(declared_s=1.31)) == ["hangs: told within 3 steps + 1 s"]
    assert missed(hang(declared_s=None)) == ["hangs: told within 3 steps + 1 s"]
    assert missed(hang(acted_s=3.31)) == ["hangs that can be proven: acted on 2 s later"]
    assert missed(hang(acted_s=None)) == ["hangs that can be proven: acted on 2 s later"]
    assert missed(hang(is_right=False)) == []
    twice = [hang(is_right=False)] * 2
    assert missed(*twice) == ["hangs: kinds of which it was wrong twice"]
    thrice = [hang(kind, is_right=False) for kind in ("deadlock", "gil-held", "stopped")]
    assert missed(*thrice) == ["hangs: culprit wrong"]
    assert missed(hang("endless-loop", acted_s=3.0)) == ["hangs: ended on silence alone"]


def test_one_false_alarm_is_one_too_many() -> None:
    quiet = {"row": "quiet", "job": "real", "seconds": 1800.0, "steps": 9, "habits": 3}
    well = by_name(quiet_figures([{**quiet, "alarms": []}]))
    assert well["healthy job: false alarms"].met is True
    assert well["simulated job: false alarms"].value is None
    ill = by_name(quiet_figures([{**quiet, "alarms": ["hang of ranks [0]"]}]))
    assert ill["healthy job: false alarms"].met is False


def test_without_samples_nothing_is_met() -> None:
    assert not any(figure.met is True for figure in (*hang_figures([]), *quiet_figures([])))
