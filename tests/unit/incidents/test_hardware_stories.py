"""What people read of ill hardware: which GPU, which rank, what was done, what they have to do."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast_sidecar.incidents.advice import advise
from holdfast_sidecar.incidents.explain import IncidentStory, sum_up, tell
from holdfast_sidecar.policy.hardware import STILL_RAN
from holdfast_sidecar.records.plan import Incident

XID_79 = "xid 79 on 0000:17:00.0, GPU GPU-1, rank 3: its node needs a reboot"


def story(cause: str = "gpu", **given: Any) -> IncidentStory:
    facts: dict[str, Any] = {
        "culprit_node": "b",
        "culprit_ranks": [3],
        "confidence": 0.95,
        "since_unix_s": 10.0,
        "detected_unix_s": 10.5,
        "ended_unix_s": 11.0,
        "reopened_unix_s": 12.0,
        "recovered_unix_s": 13.0,
        "decided": "restart",
        "step_reached": 123,
        "step_resumed": 120,
        "evidence": [XID_79, "NVRM: Xid (PCI:0000:17:00): 79, …", STILL_RAN],
        "gpu": "GPU-1",
        "remedy": "reboot_node",
        "escalation": "without_node",
    }
    return tell(Incident("x", 2, cause, **(facts | given)))


def test_one_sentence_says_which_gpu_which_rank_and_what_was_done() -> None:
    assert sum_up(story()) == (
        "Rank 3 on node b ran on a GPU that is ill: xid 79 on 0000:17:00.0, GPU GPU-1, rank 3: its "
        "node needs a reboot (95% sure); the job was restarted without the node, from step 120: "
        "3.0 s without progress, 3 steps done again."
    )
    lost = story("link", culprit_ranks=[2, 3], evidence=["link down (mlx5_0), node b, ranks 2-3"])
    assert sum_up(lost).startswith("Node b lost a link: link down (mlx5_0), node b")


def test_where_the_rank_stood_says_nothing_about_hardware() -> None:
    stood = [XID_79, "rank 3 in load (train.py:41); ranks 0-2 in all_reduce"]
    assert "xid 79" in sum_up(story(evidence=stood))


def test_whose_deed_the_end_of_a_rank_was_is_told() -> None:
    told = [chapter.what for chapter in story().chapters]
    assert "Holdfast ended attempt 2, and rank 3 on node b by SIGKILL" in told
    died = [XID_79, "rank 3: ended by SIGABRT"]
    assert "attempt 2 ended" in [chapter.what for chapter in story(evidence=died).chapters]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"remedy": "reset_gpu"}, ["`nvidia-smi --gpu-reset -i GPU-1`", "finds it fit"]),
        ({}, ["reboot the node", "let in again after a reboot"]),
        ({"remedy": "replace"}, ["dcgmi diag", "`holdfast node return b`"]),
        ({"cause": "link", "remedy": "replace", "gpu": ""}, ["transceiver", "node return b"]),
        ({"cause": "host", "remedy": "replace", "gpu": ""}, ["memory modules"]),
        (
            {"decided": "stop", "escalation": "", "stopped_for": "node b needs a reboot"},
            ["mend what is named", "reboot the node"],
        ),
        (
            {"decided": "observe", "escalation": "", "recovered_unix_s": 0.0, "ended_unix_s": 0.0},
            ["nothing is done by itself now; set modes.gpu=act", "reboot the node"],
        ),
    ],
)
def test_an_operator_reads_what_to_do(given: dict[str, Any], says: list[str]) -> None:
    told = advise(story(**given))
    for words in says:
        assert any(words in line for line in told), (words, told)
    assert any("is outside" in line for line in told) is bool(story(**given).how)


def test_of_a_job_that_went_further_back_no_node_is_said_to_be_outside() -> None:
    told = advise(story("crash", evidence=["rank 3: SIGABRT"], remedy="", escalation="roll_back"))
    assert not any("is outside" in line for line in told), told


def test_of_hardware_for_which_new_ranks_are_enough_nobody_says_that_it_is_the_program_s() -> None:
    line = "xid 48, GPU GPU-1, rank 3: it is the hardware's, though new ranks are enough"
    cuda = "last words: RuntimeError: CUDA error: an illegal memory access was encountered"
    told = advise(story(evidence=[line, cuda], remedy="", escalation=""))
    assert not any("compute-sanitizer" in one for one in told), told
    assert "`holdfast nodes test b`" in told[0]


def test_what_an_application_did_is_the_program_s_to_mend() -> None:
    line = "xid 31, GPU GPU-1, rank 3: it is the application's, and no machine is to blame"
    told = advise(story("crash", evidence=["rank 3: SIGABRT", line], remedy="", escalation=""))
    assert "compute-sanitizer" in told[0]
