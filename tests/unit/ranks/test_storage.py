"""Slow storage is told, and only once it really is."""

import pytest

from holdfast_sidecar.ranks.checks import SILENT_S, find_slow_storage
from holdfast_sidecar.records.findings import Kind, Moment

NOW = Moment(100.0, 1100.0, "a", 0.0)


@pytest.mark.parametrize(
    ("silent_s", "skipped", "found"),
    [
        (0.0, "", []),
        (SILENT_S - 1, "", []),
        (SILENT_S, "", ["answer"]),
        (0.0, "c1", ["write"]),
        (SILENT_S, "c1", ["answer", "write"]),
    ],
)
def test_silence_and_a_skipped_checkpoint_are_slow_storage(silent_s, skipped, found):
    findings = list(find_slow_storage(silent_s, skipped, NOW))
    assert [f.what for f in findings] == found
    assert all(f.kind is Kind.STORAGE_SLOW and not f.acts for f in findings)
