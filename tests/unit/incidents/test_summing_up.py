from typing import Any

import pytest

from holdfast_sidecar.incidents.explain import sum_up, tell
from holdfast_sidecar.records.plan import Incident


def incident(cause: str, **given: Any) -> Incident:
    facts: dict[str, Any] = {
        "culprit_node": "b",
        "culprit_ranks": [3],
        "confidence": 0.9,
        "since_unix_s": 10.0,
        "detected_unix_s": 10.5,
        "step_reached": 123,
    }
    return Incident("x", 2, cause, **(facts | given))


RESTARTED = {"decided": "restart", "recovered_unix_s": 13.0, "step_resumed": 120}


@pytest.mark.parametrize(
    ("cause", "given", "sentence"),
    [
        (
            "hang",
            {
                "evidence": [
                    "rank 3 in forward for 1.2 s, step 123",
                    "process 7 stopped (state T)",
                ],
                **RESTARTED,
            },
            "Rank 3 on node b hung while its peers waited for it: process 7 stopped (state T) "
            "(90% sure); the job was restarted from step 120: 3.0 s without progress, 3 steps done "
            "again.",
        ),
        (
            "hang",
            {"evidence": ["silent", "rank 3 in load (train.py:41); ranks 0-2 in all_reduce"]},
            "Rank 3 on node b hung while its peers waited for it: rank 3 in load (train.py:41); "
            "ranks 0-2 in all_reduce (90% sure); what to do is not decided yet.",
        ),
        (
            "crash",
            {"evidence": ["rank 3: ValueError: boom\nmore"], "decided": "restart"},
            "Rank 3 on node b crashed: ValueError: boom (90% sure); the job is being restarted.",
        ),
        (
            "crash",
            {"signature": "ValueError: boom at step 9", "decided": "stop"},
            "Rank 3 on node b crashed: ValueError: boom at step 9 (90% sure); the job was stopped.",
        ),
        (
            "crash",
            {"decided": "stop", "stopped_for": "3 of 3 restarts are used up"},
            "Rank 3 on node b crashed (90% sure); the job was stopped: 3 of 3 restarts are used "
            "up.",
        ),
        (
            "node_lost",
            {"culprit_ranks": [2, 3], **RESTARTED, "step_resumed": 0},
            "Node b was lost (90% sure); the job was restarted from its beginning: 3.0 s without "
            "progress, 123 steps done again.",
        ),
        (
            "stall",
            {"decided": "observe", "recovered_unix_s": 22.0, "step_resumed": 123},
            "Rank 3 on node b was silent for longer than its history allows (90% sure); nothing "
            "was done, as the mode for it is observe; it was over by itself 12.0 s later.",
        ),
        (
            "crash",
            {"decided": "leave", "evidence": ["process 7 is gone in forward, step 9"]},
            "Rank 3 on node b crashed: process 7 is gone in forward, step 9 (90% sure); what "
            "follows is for whoever launched the job.",
        ),
        (
            "hang",
            {"decided": "paused"},
            "Rank 3 on node b hung while its peers waited for it (90% sure); nothing was done, as "
            "the job was paused.",
        ),
        (
            "crash",
            {"culprit_node": "", "culprit_ranks": []},
            "Somebody unknown crashed (90% sure); what to do is not decided yet.",
        ),
        (
            "nonfinite",
            {"culprit_node": "", "culprit_ranks": [], **RESTARTED, "escalation": "roll_back"},
            "The job computed numbers that are not finite (90% sure); the job was restarted from "
            "further back, from step 120: 3.0 s without progress, 3 steps done again.",
        ),
        (
            "flood",
            {"culprit_ranks": [1, 3]},
            "Ranks 1, 3 on node b: flood (90% sure); what to do is not decided yet.",
        ),
        (
            "crash",
            {"evidence": ["rank 3: left by exit code 0 at step 7 while others went on"]},
            "Rank 3 on node b left by exit code 0 at step 7 while others went on (90% sure); what "
            "to do is not decided yet.",
        ),
        (
            "grow",
            {"decided": "restart", "recovered_unix_s": 11.0, "step_resumed": 122},
            "The job made room for nodes that joined; the job was restarted from step 122: 1.0 s "
            "without progress, 1 step done again.",
        ),
    ],
)
def test_the_verdict_is_one_sentence(cause: str, given: dict[str, Any], sentence: str) -> None:
    assert sum_up(tell(incident(cause, **given))) == sentence
