from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.unit.dashboards.boards import FOLDER, UIDS, load


def test_the_committed_files_are_what_the_script_writes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, FOLDER / "write.py", tmp_path], check=True, timeout=60)
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert sorted(written) == [f"{uid}.json" for uid in UIDS]
    stale = [name for name, text in written.items() if (FOLDER / name).read_text() != text]
    assert stale == [], "run python dashboards/write.py"


def test_each_answers_a_question_and_names_itself_by_its_uid() -> None:
    boards = [load(uid) for uid in UIDS]
    assert [board["uid"] for board in boards] == list(UIDS)
    assert len({board["title"] for board in boards}) == len(UIDS)
    assert all(board["description"].endswith("?") for board in boards)
