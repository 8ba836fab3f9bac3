"""Snapshots on their way between two real servers."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.integration.peers.link import Link
from tests.integration.peers.two_nodes import TwoNodes, armed, standing
from tests.unit.checkpoint.replication.slots import data_of, set_word, write_slot
from tests.unit.pretend_pages import set_word as set_page_word

from holdfast.contract import page
from holdfast.contract.page import OrderKind
from holdfast.contract.snapshot_file import COPIES_DIRECTORY, OWN_DIRECTORY, HeaderWord
from holdfast_sidecar.checkpoint.replication import fetch, wire
from holdfast_sidecar.config.settings import SnapshotSettings
from holdfast_sidecar.records.findings import Moment
from holdfast_sidecar.records.plan import Candidate
from holdfast_sidecar.records.reports import RankReport

Making = Callable[..., TwoNodes]
BOTH = {"a": "b", "b": "a"}
BIG = os.urandom(3 * 2**20 + 17)


def copies(nodes: TwoNodes, node: str) -> dict[str, list[int]]:
    report = nodes.nodes[node].report
    return {} if report is None else report.copies


def copy_path(nodes: TwoNodes, node: str, rank: int, step: int) -> Path:
    found = [
        path
        for path in (nodes.nodes[node].shm / COPIES_DIRECTORY).glob(f"rank-{rank}-slot-*")
        if data_of(path)[0] == step
    ]
    assert len(found) == 1, found
    return found[0]


def through(nodes: TwoNodes) -> bool:
    assert nodes.order is not None
    return all(
        node.report is not None and node.report.pulled == nodes.order.identifier
        for node in nodes.nodes.values()
        if node.name in nodes.order.pulls.values()
    )


def test_every_rank_s_armed_step_gets_to_the_other_node(make: Making) -> None:
    nodes = make({"a": (0, 1), "b": (2,)})
    nodes.order = armed(7, BOTH)
    nodes.until(lambda: nodes.nodes["b"].order(OrderKind.PEER) is not None, "the page's order")
    for rank, node in ((0, "a"), (1, "a"), (2, "b")):
        nodes.nodes[node].seal(rank, 0, 7, 0, BIG + bytes([rank]))
    nodes.until(lambda: through(nodes))
    nodes.tick()
    assert copies(nodes, "b") == {"0": [7], "1": [7]}
    assert copies(nodes, "a") == {"2": [7]}
    for rank, holder in ((0, "b"), (1, "b"), (2, "a")):
        assert data_of(copy_path(nodes, holder, rank, 7)) == (7, BIG + bytes([rank]))
    counts = nodes.nodes["b"].peers.counts
    assert (counts.copies, counts.failures, counts.refused) == (2, 0, 0)
    assert counts.received_bytes > 2 * len(BIG)


def test_the_next_copy_leaves_the_one_that_is_through(make: Making) -> None:
    nodes = make({"a": (0,), "b": (1,)})
    for number, step in enumerate((3, 5, 8)):
        nodes.order = armed(step, BOTH, through=(-1, 3, 5)[number])
        for rank, node in ((0, "a"), (1, "b")):
            nodes.nodes[node].seal(rank, number, step, 0, bytes([step]))
        nodes.until(lambda: through(nodes))
        order = nodes.nodes["a"].order(OrderKind.PEER)
        assert order is not None
        assert (order.step, order.keeps) == (step, (0, 4, 6)[number])
    nodes.tick()
    assert copies(nodes, "a") == {"1": [8, 5]}
    void = replace(armed(8, BOTH, through=5), state="void")
    nodes.order = void
    nodes.tick()
    order = nodes.nodes["a"].order(OrderKind.PEER)
    assert order is not None
    assert (order.is_withdrawn, order.keeps) == (True, 6), "what is through stays held"
    nodes.order = armed(9, BOTH, through=5)
    nodes.nodes["b"].seal(1, 0, 9, 0, b"nine")
    nodes.until(lambda: copies(nodes, "a") == {"1": [9, 5]}, "the void one's place")


def test_a_slot_that_is_torn_while_it_is_sent_never_becomes_a_copy(make: Making) -> None:
    """The cap makes the transfer slow; in its middle the source's seal goes."""
    settings = SnapshotSettings(peer_bytes_per_s=20e6)
    nodes = make({"a": (0,), "b": (1,)}, settings)
    nodes.order = armed(7, {"a": "b"})
    slot = write_slot(nodes.nodes["a"].shm, 0, 0, 7, 0, os.urandom(12 * 2**20))
    target = nodes.nodes["b"].shm / COPIES_DIRECTORY / "rank-0-slot-0"
    nodes.until(lambda: target.exists() and target.stat().st_size > 2**20)
    set_word(slot, HeaderWord.SEALED, 0)
    nodes.until(lambda: nodes.nodes["b"].peers.counts.failures > 0, "the refusal")
    assert copies(nodes, "b") == {}
    assert not through(nodes)
    set_word(slot, HeaderWord.SEALED, 8)
    nodes.until(lambda: through(nodes), "the next try")


def test_bytes_that_changed_since_they_were_sealed_are_not_passed_on(make: Making) -> None:
    nodes = make({"a": (0,), "b": (1,)})
    slot = write_slot(nodes.nodes["a"].shm, 0, 0, 7, 0, b"weights" * 1000)
    content = bytearray(slot.read_bytes())
    content[content.index(b"weights")] ^= 4
    slot.write_bytes(content)
    nodes.order = armed(7, {"a": "b"})
    nodes.until(lambda: nodes.nodes["b"].peers.counts.failures > 1, "the refusals")
    assert copies(nodes, "b") == {}


def test_a_node_with_another_key_gets_nothing(make: Making) -> None:
    nodes = make({"a": (0,), "b": (1,)}, secrets={"b": "66" * 32})
    nodes.order = armed(7, {"a": "b"})
    nodes.nodes["a"].seal(0, 0, 7, 0, BIG)
    nodes.until(lambda: nodes.nodes["b"].peers.counts.failures > 1, "the refusals")
    nodes.tick()
    assert copies(nodes, "b") == {}
    assert nodes.nodes["a"].peers.counts.sent_bytes == 0
    assert nodes.nodes["a"].peers.counts.refused > 0


def test_a_full_disk_fails_the_copy_and_leaves_the_one_before(
    make: Making, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = make({"a": (0,), "b": (1,)})
    nodes.order = armed(3, {"a": "b"})
    nodes.nodes["a"].seal(0, 0, 3, 0, b"three")
    nodes.until(lambda: through(nodes))

    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    nodes.order = armed(5, {"a": "b"}, through=3)
    nodes.nodes["a"].seal(0, 1, 5, 0, b"five")
    nodes.until(lambda: nodes.nodes["b"].peers.counts.failures > 0, "the failure")
    assert copies(nodes, "b") == {"0": [3]}
    monkeypatch.undo()
    nodes.until(lambda: through(nodes), "room again")
    nodes.tick()
    assert copies(nodes, "b") == {"0": [5, 3]}


def test_in_step_every_snapshot_is_confirmed_to_its_rank(make: Making) -> None:
    nodes = make({"a": (0,), "b": (1,)}, SnapshotSettings(peer="sync"))
    nodes.order = standing(BOTH)
    nodes.until(lambda: copies(nodes, "a") == {}, "the start")
    for step in range(6):
        for rank, node in ((0, "a"), (1, "b")):
            nodes.nodes[node].seal(rank, step % 2, step, 0, bytes([step]) * 999)
            path = nodes.nodes[node].shm / page.page_name(0, 0)
            set_page_word(path, page.Word.SNAPSHOT_EXISTING, step)  # of the step before: + 1 - 1
        for node in ("a", "b"):
            nodes.until(partial(is_confirmed, nodes, node, step), f"step {step}")
    nodes.tick()
    assert copies(nodes, "b") == {"0": [5, 4]}
    assert data_of(copy_path(nodes, "b", 0, 5))[1] == bytes([5]) * 999


def confirmed(nodes: TwoNodes, node: str) -> int:
    order = nodes.nodes[node].order(OrderKind.CONFIRMED)
    return -1 if order is None or order.is_withdrawn else order.step


def is_confirmed(nodes: TwoNodes, node: str, step: int) -> bool:
    return confirmed(nodes, node) == step


def test_in_step_what_others_may_need_is_not_overwritten(make: Making) -> None:
    """Rank 0 is ahead of the rest: nobody knows yet that step 1 exists, so step 2 waits."""
    nodes = make({"a": (0,), "b": (1,)}, SnapshotSettings(peer="sync"))
    nodes.order = standing({"a": "b"})
    for step in (0, 1):
        nodes.nodes["a"].seal(0, step, step, 0, bytes([step]))
        nodes.until(partial(is_confirmed, nodes, "a", step))
    nodes.nodes["a"].seal(0, 2, 2, 0, b"two")
    for _ in range(20):
        nodes.woken.wait(0.02)
        nodes.tick()
    assert copies(nodes, "b") == {"0": [1, 0]}
    path = nodes.nodes["a"].shm / page.page_name(0, 0)
    set_page_word(path, page.Word.SNAPSHOT_EXISTING, 1 + 1)
    nodes.until(lambda: confirmed(nodes, "a") == 2)
    nodes.tick()
    assert copies(nodes, "b") == {"0": [2, 1]}


def test_in_step_a_rank_without_a_partner_is_let_go_and_waits_once_it_has_one(
    make: Making,
) -> None:
    nodes = make({"a": (0,), "b": (1,)}, SnapshotSettings(peer="sync"))
    nodes.tick()
    order = nodes.nodes["a"].order(OrderKind.CONFIRMED)
    assert order is not None
    assert order.is_withdrawn
    assert order.step > 10**9
    nodes.order = standing({"a": "b"})
    nodes.tick()
    order = nodes.nodes["a"].order(OrderKind.CONFIRMED)
    assert order is not None
    assert not order.is_withdrawn
    nodes.nodes["a"].seal(0, 0, 4, 0, b"four")
    nodes.until(lambda: confirmed(nodes, "a") == 4)


def test_in_step_a_partner_that_is_lost_stops_training_only_once(make: Making) -> None:
    nodes = make({"a": (0,), "b": (1,)}, SnapshotSettings(peer="sync", peer_timeout_s=0.3))
    nodes.order = standing({"a": "b"})
    nodes.nodes["a"].seal(0, 0, 1, 0, b"one")
    nodes.until(lambda: confirmed(nodes, "a") == 1)
    nodes.kill("b")
    nodes.nodes["a"].seal(0, 1, 2, 0, b"two")

    def is_let_go() -> bool:
        order = nodes.nodes["a"].order(OrderKind.CONFIRMED)
        return order is not None and order.is_withdrawn

    nodes.until(is_let_go)
    (finding,) = nodes.nodes["a"].peers.findings(Moment(1.0, 2.0, "a", 0.0))
    assert finding.evidence == [
        "ranks [0] go on without copies of their newest steps: node b is behind with them"
    ]
    nodes.nodes["a"].seal(0, 0, 3, 0, b"three")
    nodes.tick()
    assert is_let_go()


def test_a_rank_that_moved_finds_its_copies_in_its_own_slots(make: Making) -> None:
    nodes = make({"a": (0,), "b": (1,), "c": ()})
    holder = nodes.nodes["b"].shm
    write_slot(holder, 0, 0, 5, 0, b"five", room=COPIES_DIRECTORY)
    write_slot(holder, 0, 1, 3, 0, BIG, room=COPIES_DIRECTORY)
    moved = TwoNodes(
        make_folder(nodes.folder / "next"),
        nodes.settings,
        {"c": (0,), "b": (1,)},
        attempt=1,
        resume=[Candidate("snapshot", "", 5, "snapshot", {"0": "b"})],
    )
    try:
        os.rename(holder / COPIES_DIRECTORY, moved.nodes["b"].shm / COPIES_DIRECTORY)
        marker = moved.nodes["c"].shm / "fetched-attempt-1"
        moved.until(marker.exists, "word of the fetch")
        assert json.loads(marker.read_text()) == {"ok": True, "reason": ""}
        own = moved.nodes["c"].shm / OWN_DIRECTORY
        assert sorted(data_of(path) for path in own.iterdir()) == [(3, BIG), (5, b"five")]
    finally:
        moved.close()


def make_folder(path: Path) -> Path:
    path.mkdir()
    return path


def test_what_lies_in_a_rank_s_slots_already_is_not_fetched_again(make: Making) -> None:
    nodes = make(
        {"a": (0,), "b": (1,)},
        attempt=1,
        resume=[Candidate("snapshot", "", 5, "snapshot", {"0": "b"})],
    )
    write_slot(nodes.nodes["b"].shm, 0, 0, 5, 0, b"five", room=COPIES_DIRECTORY)
    write_slot(nodes.nodes["b"].shm, 0, 1, 3, 0, b"three", room=COPIES_DIRECTORY)
    write_slot(nodes.nodes["a"].shm, 0, 0, 5, 0, b"five")
    write_slot(nodes.nodes["a"].shm, 0, 1, 6, 0, b"ahead")
    nodes.until((nodes.nodes["a"].shm / "fetched-attempt-1").exists)
    own = nodes.nodes["a"].shm / OWN_DIRECTORY
    assert [data_of(p) for p in sorted(own.iterdir())] == [(5, b"five"), (3, b"three")]
    assert nodes.nodes["a"].peers.counts.copies == 1


def test_a_holder_without_copies_is_said_to_the_ranks_who_wait(make: Making) -> None:
    nodes = make(
        {"a": (0,), "b": (1,)},
        attempt=1,
        resume=[Candidate("snapshot", "", 5, "snapshot", {"0": "b"})],
    )
    marker = nodes.nodes["a"].shm / "fetched-attempt-1"
    nodes.until(marker.exists)
    word = json.loads(marker.read_text())
    assert word["ok"] is False
    assert "rank 0: the node that should have it has none of its steps" in word["reason"]


def test_copies_of_a_branch_that_was_left_are_forgotten_once_ranks_began(make: Making) -> None:
    nodes = make(
        {"a": (0,), "b": (1,)}, attempt=1, resume=[Candidate("snapshot", "", 5, "snapshot")]
    )
    write_slot(nodes.nodes["b"].shm, 0, 0, 5, 0, b"five", room=COPIES_DIRECTORY)
    write_slot(nodes.nodes["b"].shm, 0, 1, 9, 0, b"nine", room=COPIES_DIRECTORY)
    nodes.tick()
    assert copies(nodes, "b") == {"0": [9, 5]}
    rank = RankReport(0, 0, 1, 0, "communicating", 0.1, 0.1, 0.1)
    nodes.rank_reports = [rank]  # DDP hands out parameters before anything is resumed
    nodes.tick()
    nodes.tick()
    assert copies(nodes, "b") == {"0": [9, 5]}
    nodes.rank_reports = [replace(rank, step=5, phase="data", resumed_step=5, in_loop=True)]
    nodes.tick()
    nodes.tick()
    assert copies(nodes, "b") == {"0": [5]}


def test_a_restarted_sidecar_goes_on_where_the_one_before_was(make: Making) -> None:
    nodes = make({"a": (0,), "b": (1,)})
    nodes.order = armed(7, BOTH)
    nodes.nodes["a"].seal(0, 0, 7, 0, BIG)
    nodes.until(lambda: copies(nodes, "b") == {"0": [7]})
    nodes.kill("b")
    nodes.tick()
    nodes.revive("b")
    nodes.nodes["b"].seal(1, 0, 7, 0, b"of b")
    nodes.until(lambda: through(nodes), "b's part by its new address, a's part on disk")
    assert nodes.nodes["b"].peers.counts.copies == 0


@pytest.mark.parametrize("peer", ["async", "sync"])
def test_transfers_go_on_with_the_key_that_an_emptied_store_was_given(
    make: Making, peer: str
) -> None:
    nodes = make({"a": (0,), "b": (1,)}, SnapshotSettings(peer=peer))
    nodes.order = standing({"a": "b"}) if peer == "sync" else armed(7, {"a": "b"})
    nodes.tick()
    nodes.tick()
    nodes.secrets = dict.fromkeys("ab", "77" * 32)
    nodes.tick()
    nodes.nodes["a"].seal(0, 0, 7, 0, b"seven")
    nodes.until(lambda: copies(nodes, "b") == {"0": [7]})


def test_in_step_a_restarted_partner_confirms_what_it_has(make: Making) -> None:
    nodes = make({"a": (0,), "b": (1,)}, SnapshotSettings(peer="sync"))
    nodes.order = standing({"a": "b"})
    nodes.nodes["a"].seal(0, 0, 1, 0, b"one")
    nodes.until(lambda: confirmed(nodes, "a") == 1)
    nodes.kill("b")
    nodes.nodes["a"].seal(0, 1, 2, 0, b"two")
    nodes.tick()
    nodes.revive("b")
    nodes.until(lambda: confirmed(nodes, "a") == 2)
    nodes.kill("a")
    nodes.revive("a")
    nodes.nodes["a"].seal(0, 0, 3, 0, b"three")
    path = nodes.nodes["a"].shm / page.page_name(0, 0)
    set_page_word(path, page.Word.SNAPSHOT_EXISTING, 2 + 1)
    nodes.until(lambda: confirmed(nodes, "a") == 3)


def test_loopback_is_told_of_when_other_machines_take_part(make: Making) -> None:
    nodes = make({"a": (0,), "b": (1,)}, machine=lambda name: name)
    nodes.tick()
    (finding,) = nodes.nodes["a"].peers.findings(Moment(1.0, 2.0, "a", 0.0))
    assert "set snapshot.peer_listen" in finding.evidence[0]


def test_superseded_copies_of_other_ranks_give_their_memory_back(make: Making) -> None:
    nodes = make({"a": (0,), "b": (1,), "c": ()})
    write_slot(nodes.nodes["c"].shm, 0, 0, 5, 0, b"five", room=COPIES_DIRECTORY)
    nodes.order = armed(7, BOTH)
    nodes.tick()
    nodes.tick()
    assert copies(nodes, "c") == {"0": [5]}, "nobody else has it yet"
    for rank, node in ((0, "a"), (1, "b")):
        nodes.nodes[node].seal(rank, 0, 7, 0, BIG)
    nodes.until(lambda: through(nodes))
    nodes.until(lambda: copies(nodes, "c") == {})
    assert list((nodes.nodes["c"].shm / COPIES_DIRECTORY).iterdir()) == []


def test_a_link_that_is_cut_in_the_middle_is_noticed_and_tried_again(
    make: Making, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody hangs up: bytes just no longer arrive, as when a cable is pulled."""
    monkeypatch.setattr(wire, "FRAME_S", 0.5)
    nodes = make({"a": (0,), "b": (1,)})
    report = nodes.nodes["a"].report
    assert report is not None
    host, _, port = report.peer_address.rpartition(":")
    with Link((host, int(port)), cut_after=2 * 2**20) as link:
        nodes.told_address = {"a": link.address}
        nodes.order = armed(7, {"a": "b"})
        nodes.nodes["a"].seal(0, 0, 7, 0, BIG)
        nodes.until(lambda: nodes.nodes["b"].peers.counts.failures > 0, "the timeout")
        assert copies(nodes, "b") == {}
        link.heal()
        nodes.until(lambda: through(nodes), "the next try")


def test_a_key_that_is_none_serves_nobody_and_disturbs_nothing(make: Making) -> None:
    nodes = make({"a": (0,), "b": (1,)}, secrets={"a": "not hex"})
    nodes.order = armed(7, {"a": "b"})
    nodes.nodes["a"].seal(0, 0, 7, 0, BIG)
    nodes.until(lambda: nodes.nodes["b"].peers.counts.failures > 0)
    assert nodes.nodes["a"].report is not None
    assert nodes.nodes["a"].peers.counts.sent_bytes == 0


def test_a_copy_that_makes_progress_is_not_given_up_however_long_it_takes(make: Making) -> None:
    slow = SnapshotSettings(peer_bytes_per_s=len(BIG) / 2, peer_timeout_s=0.3)
    nodes = make({"a": (0,), "b": (1,)}, slow)
    nodes.order = armed(7, {"a": "b"})
    nodes.nodes["a"].seal(0, 0, 7, 0, BIG)
    nodes.until(lambda: copies(nodes, "b") == {"0": [7]})
    assert nodes.nodes["b"].peers.counts.failures == 0


def test_what_is_fetched_before_a_resume_is_not_capped(make: Making) -> None:
    nodes = make(
        {"a": (0, 1), "b": (2,)},
        SnapshotSettings(peer_bytes_per_s=len(BIG) / 3600),
        attempt=1,
        resume=[Candidate("snapshot", "", 5, "snapshot", {"0": "b", "1": "b"})],
    )
    for rank in (0, 1):
        write_slot(nodes.nodes["b"].shm, rank, 0, 5, 0, BIG, room=COPIES_DIRECTORY)
        write_slot(nodes.nodes["b"].shm, rank, 1, 4, 0, BIG, room=COPIES_DIRECTORY)
    marker = nodes.nodes["a"].shm / "fetched-attempt-1"
    nodes.until(marker.exists)
    assert json.loads(marker.read_text())["ok"] is True
    own = nodes.nodes["a"].shm / OWN_DIRECTORY
    assert Counter(data_of(path)[0] for path in own.iterdir()) == {4: 2, 5: 2}


def behind_a_link(make: Making, data: bytes) -> tuple[TwoNodes, tuple[str, int], Path]:
    """Rank 0 of node a finds its copy on node b alone; nothing is fetched yet."""
    nodes = make({"a": (0,), "b": (1,)}, attempt=1)
    write_slot(nodes.nodes["b"].shm, 0, 0, 5, 0, data, room=COPIES_DIRECTORY)
    report = nodes.nodes["b"].report
    assert report is not None
    host, _, port = report.peer_address.rpartition(":")
    nodes.resume = [Candidate("snapshot", "", 5, "snapshot", {"0": "b"})]
    return nodes, (host, int(port)), nodes.nodes["a"].shm / "fetched-attempt-1"


def fetched(nodes: TwoNodes) -> tuple[int | None, bytes]:
    (path,) = (nodes.nodes["a"].shm / OWN_DIRECTORY).iterdir()
    return data_of(path)


def test_after_a_broken_connection_the_rest_is_fetched_and_then_word_is_left(
    make: Making, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "FRAME_S", 0.5)
    nodes, address, marker = behind_a_link(make, BIG)
    with Link(address, cut_after=2 * 2**20 + 2**19) as link:
        nodes.told_address = {"b": link.address}
        nodes.until(lambda: nodes.nodes["a"].peers.counts.failures > 0, "the timeout")
        assert not marker.exists()
        link.heal()
        nodes.until(marker.exists, "word of the fetch")
        assert json.loads(marker.read_text()) == {"ok": True, "reason": ""}
        assert fetched(nodes) == (5, BIG)
        assert link.passed < len(BIG) + 2**20
        assert nodes.nodes["a"].peers.counts.received_bytes < len(BIG)


def test_what_was_sealed_anew_since_the_connection_broke_is_fetched_from_its_beginning(
    make: Making, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "FRAME_S", 0.5)
    nodes, address, marker = behind_a_link(make, BIG)
    with Link(address, cut_after=2 * 2**20 + 2**19) as link:
        nodes.told_address = {"b": link.address}
        nodes.until(lambda: nodes.nodes["a"].peers.counts.failures > 0, "the timeout")
        other = os.urandom(len(BIG))
        write_slot(nodes.nodes["b"].shm, 0, 0, 5, 0, other, room=COPIES_DIRECTORY)
        link.heal()
        nodes.until(marker.exists, "word of the fetch")
        assert fetched(nodes) == (5, other)


def test_a_slot_that_nobody_has_summed_yet_is_fetched_in_two_parts_as_well(
    make: Making, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "FRAME_S", 0.5)
    nodes, address, marker = behind_a_link(make, BIG)
    holder = nodes.nodes["b"].shm
    write_slot(holder, 0, 0, 5, 0, BIG, room=COPIES_DIRECTORY, checked=False)
    with Link(address, cut_after=2 * 2**20 + 2**19) as link:
        nodes.told_address = {"b": link.address}
        nodes.until(lambda: nodes.nodes["a"].peers.counts.failures > 0, "the timeout")
        link.heal()
        nodes.until(marker.exists, "word of the fetch")
        assert fetched(nodes) == (5, BIG)
        assert link.passed < len(BIG) + 2**20


def test_a_fetch_that_comes_on_is_not_given_up_however_often_its_connection_breaks(
    make: Making, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "UNREACHED_S", 0.5)
    data = os.urandom(8 * 2**20)
    nodes, address, marker = behind_a_link(make, data)
    with Link(address, cut_after=2**20 + 2**19, hangs_up=True) as link:
        nodes.told_address = {"b": link.address}
        nodes.until(marker.exists, "word of the fetch")
        assert json.loads(marker.read_text()) == {"ok": True, "reason": ""}
        assert fetched(nodes) == (5, data)
        assert nodes.nodes["a"].peers.counts.failures > 4


def test_a_copy_in_step_goes_on_where_its_connection_broke(make: Making) -> None:
    nodes = make({"a": (0,), "b": (1,)})
    report = nodes.nodes["a"].report
    assert report is not None
    host, _, port = report.peer_address.rpartition(":")
    with Link((host, int(port)), cut_after=2**20 + 2**19, hangs_up=True) as link:
        nodes.told_address = {"a": link.address}
        nodes.order = armed(7, {"a": "b"})
        nodes.nodes["a"].seal(0, 0, 7, 0, BIG)
        nodes.until(lambda: through(nodes))
        nodes.order = standing({"a": "b"})
        nodes.nodes["a"].seal(0, 1, 8, 0, BIG[::-1])
        nodes.until(lambda: confirmed(nodes, "a") == 8)
    assert data_of(copy_path(nodes, "b", 0, 8)) == (8, BIG[::-1])


def test_the_next_best_step_does_not_keep_ranks_waiting(
    make: Making, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "SPARE_S", -1.0, raising=False)
    nodes, _, marker = behind_a_link(make, BIG)
    write_slot(nodes.nodes["b"].shm, 0, 1, 4, 0, BIG, room=COPIES_DIRECTORY)
    nodes.until(marker.exists, "word of the fetch")
    assert json.loads(marker.read_text()) == {"ok": True, "reason": ""}
    assert fetched(nodes) == (5, BIG)


def test_word_is_left_once_there_is_room_for_it(
    make: Making, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []
    replace_ = Path.replace

    def full_at_first(path: Path, target: Path) -> Path:
        if target.name.startswith("fetched-"):
            tries.append(target)
            if len(tries) < 3:
                raise OSError(28, "No space left on device")
        return replace_(path, target)

    monkeypatch.setattr(Path, "replace", full_at_first)
    nodes, _, marker = behind_a_link(make, b"five")
    nodes.until(marker.exists, "word of the fetch")
    assert json.loads(marker.read_text()) == {"ok": True, "reason": ""}
    assert [path.name for path in marker.parent.glob(".fetched*")] == []
