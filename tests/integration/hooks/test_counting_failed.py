"""An attempt that ended while a step was counted is not followed by one that counts."""

from __future__ import annotations

import signal

import pytest

from holdfast import environment, page
from holdfast.page import Word, bits_float

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("warm")]

SCRIPT = """
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 7):
    model(torch.ones(2, 4)).sum().backward()
    if step == 4:
        {ending}
    optimizer.step()
    optimizer.zero_grad()
"""


def run(stage, attempt: int, ending: str):
    evidence = stage.evidence / f"attempt-{attempt}"
    evidence.mkdir()
    more = {environment.EVIDENCE_DIR: str(evidence), environment.ATTEMPT: str(attempt)}
    name = f"attempt-{attempt}.py"
    env = stage.environment(**more)
    return stage.end(stage.start(SCRIPT.format(ending=ending), env, name), timeout_s=120)


def counted(stage, attempt: int) -> float:
    words = page.parse_words(stage.read(attempt=attempt))
    assert words[Word.HOOK_ERRORS] == 0
    return bits_float(words[Word.MODEL_FLOPS])


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("raise TypeError", 1),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
        ("import sys; sys.exit(3)", 3),
    ],
)
def test_after_a_failure_in_the_counted_step_the_next_attempts_count_none(
    stage, ending: str, code: int
) -> None:
    failed = run(stage, 0, ending)
    assert failed.code == code
    assert ("ended in the step whose operations were counted" in failed.err) == (code > 0)
    again = run(stage, 2, "pass")
    assert (again.code, counted(stage, 2)) == (0, 0.0)
    assert "an earlier attempt ended in the step in which they were" in again.err


def test_a_script_that_was_at_its_end_then_leaves_nothing_and_the_next_attempt_counts(
    stage,
) -> None:
    assert run(stage, 0, "break").code == 0
    assert run(stage, 1, "pass").err == ""
    assert counted(stage, 1) > 0
    assert list(stage.evidence.glob("*/counting-*")) == []
