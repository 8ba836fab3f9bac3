"""The sidecar as a process, beside real ranks' pages and a real server."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from tests.integration.sidecar.node import Node, wait_for

from holdfast_sidecar.export.live.packing import unpack


def test_it_reports_the_ranks_of_its_node(node: Node) -> None:
    node.rank("--rank=0", "--world-size=2")
    node.rank("--rank=1", "--world-size=2")
    node.sidecar()
    report = wait_for(lambda: (r := node.report()) and len(r.ranks) == 2 and r)
    assert [rank.rank for rank in report.ranks] == [0, 1]
    assert wait_for(lambda: (r := node.report()) and all(x.step > 10 for x in r.ranks) and r)
    page = wait_for(lambda: "holdfast_rank_step_seconds" in (p := node.ask("/metrics")) and p)
    assert 'holdfast_rank_step{node="a",rank="1",run="job"}' in page
    health = json.loads(node.ask("/healthz"))
    assert (health["ok"], health["store_up"], health["ranks"]) == (True, True, 2)
    view = unpack(node.ask("/live.json").encode())
    assert view is not None
    assert (view.run, view.node, view.leader_node) == ("job", "a", "a")
    assert [(rank.rank, rank.node, rank.alive) for rank in view.ranks] == [
        (0, "a", True),
        (1, "a", True),
    ]
    assert list(view.heat.rows) == [0, 1]
    assert "<canvas" in node.ask("/")


def test_a_stopped_rank_is_a_hang_within_a_second_and_three_steps(node: Node) -> None:
    rank = node.rank("--step-s=0.05", "--rank=0", "--world-size=2")
    node.rank("--step-s=0.05", "--rank=1", "--world-size=2")
    node.sidecar()
    wait_for(lambda: (r := node.report()) and [x.step > 20 for x in r.ranks] == [True, True])
    assert not node.findings("hang")
    stopped_s = time.monotonic()
    os.kill(rank.pid, signal.SIGSTOP)
    (finding,) = wait_for(lambda: node.findings("hang"))
    took_s = time.monotonic() - stopped_s
    assert (finding.acts, finding.ranks) == (True, [0])
    assert took_s < 3 * 0.05 + 1 + 0.5  # half a second for two cores that others use, too


def test_a_killed_rank_is_a_crash_and_a_finished_one_is_not(node: Node) -> None:
    crashing, finishing = node.rank("--rank=0"), node.rank("--rank=1", "--steps=30")
    node.sidecar()
    wait_for(lambda: (r := node.report()) and len(r.ranks) == 2 and r.ranks[0].step > 3)
    finishing.wait(10)
    crashing.kill()
    (finding,) = wait_for(lambda: node.findings("crash"))
    assert finding.ranks == [0]
    report = node.report()
    assert report is not None
    assert [(rank.alive, rank.ending) for rank in report.ranks] == [(False, 0), (False, 1)]


def test_an_exception_is_told_in_its_own_words(node: Node) -> None:
    node.sidecar()
    wait_for(node.report)
    node.rank("--raise-at=60")
    (finding,) = wait_for(lambda: node.findings("crash"))
    assert any("ValueError: planted" in text for text in finding.evidence)


def test_a_loss_that_is_no_number_is_found(node: Node) -> None:
    node.rank("--nan-at=20")
    node.sidecar()
    assert wait_for(lambda: node.findings("nonfinite"))


def test_a_job_goes_on_while_its_sidecar_is_killed_and_started_again(node: Node) -> None:
    rank = node.rank()
    first = node.sidecar()
    wait_for(lambda: (r := node.report()) and r.ranks and r.ranks[0].step > 5)
    first.kill()
    first.wait()
    step = node.report().ranks[0].step  # type: ignore[union-attr]
    node.sidecar()
    wait_for(lambda: (r := node.report()) and r.ranks and r.ranks[0].step > step + 5)
    assert rank.poll() is None


def test_a_second_sidecar_of_the_same_node_is_refused_in_one_line(node: Node) -> None:
    node.sidecar()
    wait_for(node.report)
    assert node.sidecar().wait(20) == 2
    assert "already watches node 'a'" in node.log().splitlines()[-1]


def test_sigterm_ends_it_cleanly_and_leaves_the_pages(node: Node) -> None:
    node.rank()
    sidecar = node.sidecar()
    wait_for(lambda: (r := node.report()) and r.ranks)
    sidecar.terminate()
    assert sidecar.wait(10) == 0
    assert not node.places.sidecar_record.exists()
    assert list(node.places.shm.glob("*.page"))


def test_nothing_of_torch_is_ever_imported(node: Node) -> None:
    node.rank()
    sidecar = node.sidecar()
    wait_for(lambda: (r := node.report()) and r.ranks and node.ask("/metrics"))
    mapped = Path(f"/proc/{sidecar.pid}/maps").read_text()
    assert not [name for name in ("torch", "numpy") if name in mapped]
