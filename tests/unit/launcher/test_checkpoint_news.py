"""What the console hears of checkpoints."""

from dataclasses import replace

from holdfast_sidecar.launcher.console import CheckpointNews
from holdfast_sidecar.records.checkpoint import ATTEMPT_ENDED, LOOP_ENDED, CheckpointOrder

ORDER = CheckpointOrder("a", 0, 1, 40, "/ck/step-40-a", "armed", 10.0)


def test_a_trouble_is_told_once_and_so_is_its_end():
    news = CheckpointNews()
    assert news.line(None) == news.line(ORDER) == ""
    full = replace(ORDER, state="void", reason="rank 0: No space left on device")
    assert news.line(full) == (
        "the checkpoint of step 40 came to nothing: rank 0: No space left on device"
    )
    assert news.line(full) == news.line(replace(full, identifier="b", step=50)) == ""
    other = replace(full, identifier="c", step=60, reason="rank 1: Input/output error")
    assert "Input/output error" in news.line(other)
    written = replace(ORDER, identifier="d", step=70, state="complete")
    assert news.line(written) == "checkpoints are written again: step 70"
    assert news.line(replace(written, identifier="e")) == ""
    assert news.line(replace(full, identifier="f")) != ""


def test_what_is_no_trouble_is_not_told():
    news = CheckpointNews()
    for reason in ("rank 3: missed", ATTEMPT_ENDED, LOOP_ENDED):
        assert news.line(replace(ORDER, identifier=reason, state="void", reason=reason)) == ""
    refused = replace(ORDER, path="", state="void", reason="no checkpoint directory is configured")
    assert news.line(refused) == ""
