from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from holdfast_sidecar.config.paths import Paths
from holdfast_sidecar.config.settings import EvidenceSettings
from holdfast_sidecar.incidents.storage import (
    DAY_S,
    StoredIncident,
    remove_old_incidents,
    superfluous,
)

NOW = 1000 * DAY_S


def remains(name: str, days_ago: float, size_bytes: int = 10) -> StoredIncident:
    return StoredIncident(Path(name), NOW - days_ago * DAY_S, size_bytes)


@pytest.mark.parametrize(
    ("settings", "gone"),
    [
        (EvidenceSettings(), []),
        (EvidenceSettings(keep=2), ["old"]),
        (EvidenceSettings(keep_days=2.0), ["old"]),
        (EvidenceSettings(keep_bytes=25), ["old"]),
        (EvidenceSettings(keep_bytes=1), ["yesterday", "old"]),
        (EvidenceSettings(keep_days=0.01), ["yesterday", "old"]),
    ],
)
def test_the_newest_stay_within_number_age_and_size(
    settings: EvidenceSettings, gone: list[str]
) -> None:
    found = [remains("old", 9), remains("new", 0.5), remains("yesterday", 1)]
    assert [one.directory.name for one in superfluous(found, settings, NOW)] == gone


def test_what_was_only_seen_goes_first_for_its_size(tmp_path: Path) -> None:
    seen = [replace(remains(name, age), is_only_seen=True) for name, age in (("s1", 0), ("s2", 1))]
    found = [*seen, remains("new", 2), remains("old", 3)]
    gone = superfluous(found, EvidenceSettings(keep_bytes=30), NOW)
    assert [one.directory.name for one in gone] == ["s2"]


def test_an_archive_goes_with_its_incident(tmp_path: Path) -> None:
    places = Paths(shm=tmp_path / "shm", state=tmp_path / "state")
    for name in ("old", "new"):
        places.incident(name).mkdir(parents=True)
        (places.incident(name) / "kept.json").write_text("{}")
        (places.incidents / f"{name}.tar.gz").write_bytes(b"x" * 100)
    order = {"old": 1.0, "new": 2.0}
    remove_old_incidents(
        places,
        EvidenceSettings(keep_bytes=150),
        lambda path: order[path.name],
        lambda path: False,
        now_unix_s=3.0,
    )
    assert sorted(path.name for path in places.incidents.iterdir()) == ["new", "new.tar.gz"]
