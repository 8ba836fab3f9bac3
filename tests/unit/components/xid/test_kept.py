from __future__ import annotations

import fcntl
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.components.xid.stories import STORIES
from tests.unit.components.xid.telling import told

from holdfast_sidecar.components.xid.events import FROM_KERNEL_LOG, XidEvent
from holdfast_sidecar.components.xid.history import (
    KEPT_S,
    MOST_KEPT,
    History,
    Occurrence,
    occurrence_of,
)
from holdfast_sidecar.components.xid.storage import (
    BootNote,
    Shared,
    as_json,
    read_boot,
    read_history,
    with_own,
    write_history,
)

HERE, THERE = "boot of this machine", "boot of another"


@pytest.fixture
def history() -> History:
    stories = {story.name: story for story in STORIES}
    return told(stories["mended, and there again"]).history


@pytest.fixture
def now_s(history: History) -> float:
    return max(one.last_s for one in history.occurrences)


def xid(number: int, at_s: float, uuid: str, boot: str = HERE) -> Occurrence:
    event = XidEvent(at_s, FROM_KERNEL_LOG, number, "0000:17:00.0", f"Xid {number}")
    return replace(occurrence_of(event, boot), uuid=uuid)


def test_what_was_written_is_read_again(tmp_path: Path, history: History, now_s: float) -> None:
    path = tmp_path / ".machine" / "xids.json"
    boot = history.occurrences[-1].boot
    write_history(path, history, boot, now_s)
    assert read_history(path, boot) == history
    assert {each.name for each in path.parent.iterdir()} == {"xids.json", "xids.lock"}


def test_without_a_file_nothing_is_known(tmp_path: Path) -> None:
    assert read_history(tmp_path / "xids.json", HERE) == History()


def test_who_writes_keeps_what_others_wrote(tmp_path: Path) -> None:
    path = tmp_path / "xids.json"
    first, second = xid(79, 100.0, "GPU-a"), xid(48, 90.0, "GPU-b")
    write_history(path, History((first,)), HERE, 101.0)
    write_history(path, History((second,)), HERE, 102.0)
    assert read_history(path, HERE).occurrences == (second, first)


def test_what_two_heard_of_one_trouble_is_kept_once(tmp_path: Path) -> None:
    path = tmp_path / "xids.json"
    write_history(path, History((xid(79, 100.0, ""),)), HERE, 101.0)
    write_history(path, History((xid(79, 100.4, "GPU-a"),)), HERE, 102.0)
    assert [one.uuid for one in read_history(path, HERE).occurrences] == ["GPU-a"]


def test_what_others_wrote_is_forgotten_after_a_day() -> None:
    kept = Shared((xid(79, 0.0, "GPU-a", THERE),), {THERE: BootNote(sequence=7)})
    assert with_own(kept, History(), HERE, KEPT_S - 1.0).occurrences == kept.occurrences
    after = with_own(kept, History(), HERE, KEPT_S + 1.0)
    assert (after.occurrences, list(after.notes)) == ((), [HERE])


def test_a_storm_on_one_node_drops_its_own_oldest_and_nobody_else_s() -> None:
    other = xid(79, 0.0, "GPU-b", THERE)
    storm = [xid(31, 70.0 * place, "GPU-a") for place in range(MOST_KEPT + 9)]
    kept = with_own(Shared((other,)), History(tuple(storm[:-9])), HERE, 40_000.0)
    kept = with_own(kept, History(tuple(storm[9:])), HERE, 40_000.0)
    assert kept.occurrences == (other, *storm[9:])


def test_each_machine_finds_its_own_place_in_its_kernel_s_log(tmp_path: Path) -> None:
    path = tmp_path / "xids.json"
    here = History((xid(79, 1.0, "GPU-a"),), {"0000:17:00.0": 5.0}, {}, {}, HERE, 40)
    there = History((xid(79, 2.0, "GPU-b", THERE),), {"0000:17:00.0": 9.0}, {}, {}, THERE, 900)
    write_history(path, here, HERE, 10.0)
    write_history(path, there, THERE, 10.0)
    found = read_history(path, HERE)
    assert (found.log_sequence, found.cleared) == (40, {"0000:17:00.0": 5.0})


def test_while_another_writes_nothing_is_waited_for(tmp_path: Path, history: History) -> None:
    path = tmp_path / "xids.json"
    with path.with_suffix(".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError):
            write_history(path, history, HERE, 0.0)
    assert not path.exists()


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", "3", '{"version": 99}', '{"version": 2}', "\x00\xff", '{"a": 1}'],
)
def test_a_torn_or_foreign_file_reads_as_nothing(tmp_path: Path, content: str) -> None:
    path = tmp_path / "xids.json"
    path.write_text(content)
    assert read_history(path, HERE) == History()


def test_a_file_cut_anywhere_reads_as_nothing(tmp_path: Path, history: History) -> None:
    path = tmp_path / "xids.json"
    content = json.dumps(as_json(Shared(history.occurrences, {HERE: BootNote(sequence=3)})))
    for length in range(0, len(content), 97):
        path.write_text(content[:length])
        assert read_history(path, HERE) == History()


@pytest.mark.parametrize("broken", [None, 3, {}, {"pci": "x"}, {"number": "NaN"}])
def test_an_occurrence_that_makes_no_sense_is_left_out(
    tmp_path: Path, history: History, broken: Any
) -> None:
    value = as_json(Shared(history.occurrences))
    value["occurrences"].insert(0, broken)
    path = tmp_path / "xids.json"
    path.write_text(json.dumps(value))
    assert read_history(path, HERE).occurrences == history.occurrences


def test_the_kernel_says_which_boot_it_is(tmp_path: Path) -> None:
    assert len(read_boot()) == 36
    assert read_boot(tmp_path / "nowhere") == ""
