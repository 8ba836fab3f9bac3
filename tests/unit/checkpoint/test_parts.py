"""A node's part: its ranks' states at once, its files once they are made."""

import json
from dataclasses import dataclass, replace

import pytest
from tests.unit.desk_twin import MemoryDesk

from holdfast.contract.page import Identity, Reply, ReplyState
from holdfast.contract.storage import LocalFolder
from holdfast_sidecar.checkpoint.manifest import list_files, owner
from holdfast_sidecar.checkpoint.node_part import NodePart, states_of
from holdfast_sidecar.checkpoint.writer.client import StorageProgress
from holdfast_sidecar.checkpoint.writer.requests import HashFiles, WriteParts, WrittenPart
from holdfast_sidecar.records.checkpoint import CheckpointOrder, FileFact

FILES = {"__0_own.pt": FileFact(1, "aa")}


@dataclass
class Look:
    identity: Identity
    reply: Reply | None


def look(rank, state, identifier="aa", attempt=0, blocked_s=0.0, step=5):
    reply = None if state is None else Reply(state, step, 1, int(blocked_s * 1e9), identifier)
    return Look(Identity(1, 1, attempt, 1, rank, rank, 2, 1, "a", "j"), reply)


def order(identifier="aa", state="armed", **fields):
    return CheckpointOrder(identifier, 0, 1, 5, "/ck/x", state, 60.0, **fields)


@pytest.fixture
def desk():
    return MemoryDesk(lambda question: WrittenPart(FILES, 2.5))


@pytest.fixture
def node(desk):
    return NodePart("a", "/shm/a", desk)


SAVED = (look(0, ReplyState.SAVED), look(1, ReplyState.SAVED))
COPIED = (look(0, ReplyState.COPIED), look(1, ReplyState.COPIED))


def test_states_are_those_of_this_order_and_attempt():
    looks = [
        look(0, ReplyState.SAVED),
        look(1, ReplyState.SAVED, identifier="older"),
        look(2, None),
        look(3, ReplyState.SAVED, attempt=9),
    ]
    assert states_of(order(), looks) == {"0": "saved", "1": "none", "2": "none"}


def test_nothing_is_hashed_before_every_local_rank_saved(node, desk):
    part = node.follow(order(), [look(0, ReplyState.SAVED), look(1, ReplyState.SAVING)])
    assert (part.states, part.files) == ({"0": "saved", "1": "saving"}, {})
    assert desk.asked == []


def test_what_ranks_wrote_is_hashed_once(node, desk):
    assert node.follow(order(), SAVED).files == FILES
    assert node.follow(order(), SAVED).seconds == 2.5
    assert desk.asked == [HashFiles("aa", "/ck/x", [0, 1])]


def test_what_ranks_wrote_at_a_later_boundary_lies_in_a_folder_of_that_step(node, desk):
    armed = replace(order(), path="/ck/step-00000005-aa")
    part = node.follow(armed, [look(rank, ReplyState.SAVED, step=8) for rank in range(2)])
    assert (part.step, part.files) == (8, FILES)
    assert desk.asked == [HashFiles("aa", "/ck/step-00000008-aa", [0, 1])]


def test_ranks_that_came_to_different_boundaries_have_no_part_in_common(node, desk):
    looks = [look(rank, ReplyState.COPIED, step=8 + rank) for rank in range(2)]
    assert "boundaries 8, 9" in node.follow(order(mode="snapshot"), looks).error
    assert desk.asked == []


def test_what_ranks_copied_waits_until_all_nodes_have_it(node, desk):
    assert node.follow(order(mode="snapshot"), COPIED).states == {"0": "copied", "1": "copied"}
    assert desk.asked == []


def test_a_node_writes_the_parts_that_are_its_own(node, desk):
    writing = order(state="writing", mode="snapshot", writers={"0": "a", "1": "b", "2": "a"})
    assert node.follow(writing, COPIED).files == FILES
    (asked,) = desk.asked
    assert isinstance(asked, WriteParts)
    assert (asked.ranks, asked.shm) == ([0, 2], "/shm/a")


def test_a_node_that_writes_nothing_is_asked_nothing(node, desk):
    node.follow(order(state="writing", writers={"0": "b"}), [])
    assert desk.asked == []


def test_a_write_goes_on_while_the_ranks_die_and_the_leader_changes(node, desk):
    writing = order(state="writing", mode="snapshot", writers={"0": "a", "1": "a"})
    desk.is_open = False
    desk.so_far = StorageProgress(10, 30)
    part = node.follow(writing, COPIED)
    assert (part.done_bytes, part.total_bytes) == (10, 30)
    desk.is_open = True
    part = node.follow(replace(writing, epoch=9, requested_by="r"), [])
    assert part.files == FILES
    assert part.states == {"0": "copied", "1": "copied"}
    assert desk.asked[0] == desk.asked[1], "or it would be written twice"


def test_a_write_that_failed_is_told_and_not_tried_again(node, desk):
    def fails(question):
        raise OSError("no space left")

    desk._answer = fails
    writing = order(state="writing", writers={"0": "a"})
    assert node.follow(writing, []).error == "no space left"
    assert node.follow(writing, []).error == "no space left"
    assert len(desk.asked) == 1


def test_files_that_can_not_be_found_are_an_error_and_no_silence(node, desk):
    desk._answer = lambda question: WrittenPart({})
    assert "no file of ranks [0, 1]" in node.follow(order(), SAVED).error


@pytest.mark.parametrize("then", [order(state="void"), order("bb"), None])
def test_what_nobody_waits_for_any_more_is_stopped(node, desk, then):
    desk.is_open = False
    node.follow(order(), SAVED)
    node.follow(then, [])
    assert desk.abandoned == [HashFiles("aa", "/ck/x", [0, 1])]


def test_a_new_order_starts_anew(node):
    node.follow(order(), SAVED)
    part = node.follow(order("bb"), SAVED)
    assert (part.identifier, part.files) == ("bb", {})
    assert part.states == {"0": "none", "1": "none"}


def test_the_slowest_loop_counts_also_once_its_rank_is_gone(node):
    looks = [look(0, ReplyState.COPIED, blocked_s=0.5), look(1, ReplyState.COPIED, blocked_s=2.0)]
    node.follow(order(mode="snapshot"), looks)
    assert node.follow(order(mode="snapshot"), []).blocked_s == 2.0


def test_without_an_order_there_is_no_part(node):
    assert node.follow(None, SAVED) is None


def test_what_names_no_rank_is_rank_zeros(tmp_path):
    assert [owner(n) for n in ("__12_0.distcp", ".metadata", "mine/__1_x")] == [12, 0, 0]
    said = {
        "rank": 0,
        "step": 5,
        "world_size": 2,
        "job": "tested",
        "attempt": 0,
        "finite": True,
        "torch": "2.13.0",
        "ancestors": [],
        "position": {},
        "random_state": True,
        "files": [],
    }
    (tmp_path / "__1_account.json").write_text(json.dumps(said))
    (tmp_path / "poisoned-1.json").write_bytes(b"x")
    (tmp_path / ".x.12345678.writing").write_bytes(b"x")
    (tmp_path / ".metadata").write_bytes(b"x")
    assert list_files(LocalFolder(tmp_path), [0]) == [".metadata"]
    assert list_files(LocalFolder(tmp_path), [1]) == ["__1_account.json"]
