from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from click.testing import Result
from tests.unit.dashboards.boards import FOLDER, UIDS

Holdfast = Callable[..., Result]


def test_every_file_is_written_as_it_is_shipped(holdfast: Holdfast, tmp_path: Path) -> None:
    result = holdfast("export", "--out", "made/here")
    assert result.exit_code == 0, result.output
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert written == set(result.stdout.split())
    names = [f"{uid}.json" for uid in UIDS]
    names += ["provisioning/dashboards.yaml", "provisioning/datasources.yaml"]
    assert written == {f"made/here/{name}" for name in names}
    for name in names:
        assert (tmp_path / "made/here" / name).read_bytes() == (FOLDER / name).read_bytes()


def test_a_second_export_replaces_the_first(holdfast: Holdfast, tmp_path: Path) -> None:
    holdfast("export")
    path = tmp_path / "holdfast-dashboards" / "holdfast-run.json"
    path.write_text("mine")
    assert holdfast("export").exit_code == 0
    assert path.read_bytes() == (FOLDER / "holdfast-run.json").read_bytes()


def test_a_folder_that_can_t_be_is_one_line(holdfast: Holdfast, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    result = holdfast("export", "--out", "taken")
    assert result.exit_code == 2
    assert result.stderr.startswith("holdfast: cannot write into taken: ")
    assert result.stderr.count("\n") == 1
